"""From records to the numbers a person reads: acceptance, bound, block efficiency, speed, each with its uncertainty."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

from gpu.records import PHASES, Record, Visit

CONFIDENCE = 0.95


class Estimate(NamedTuple):
    """A ratio and its 95 % interval; NaN where there is nothing to divide, the interval NaN below two clusters."""

    value: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        return (self.high - self.low) / 2


class Summary(NamedTuple):
    """Many records of one method.

    acceptance        fraction of nodes with drafts at which a draft was emitted.
    bound             mean optimal acceptance rate alpha* over the same nodes; NaN when it was not asked for.
    gap               bound minus acceptance, paired node by node.
    block_efficiency  emitted tokens per target pass.
    by_depth, by_rank acceptance at nodes of each depth; how often the draft of each child rank was accepted, per node
                      that had that many drafts.
    seconds           by phase, summed over the records.
    """

    texts: int
    tokens: int
    target_passes: int
    draft_passes: int
    acceptance: Estimate
    bound: float
    gap: Estimate
    block_efficiency: Estimate
    by_depth: list[Estimate]
    by_rank: list[Estimate]
    seconds: dict[str, float]

    @property
    def tokens_per_second(self) -> float:
        """Emitted tokens over decoding time, the prompts' own passes left out."""
        total = sum(self.seconds[phase] for phase in PHASES)
        return self.tokens / total if total else float("nan")

    def as_dict(self) -> dict:
        """Everything, as JSON takes it."""
        sums = {key: as_json(value) for key, value in self._asdict().items()}
        return sums | {"tokens_per_second": self.tokens_per_second}


def summarise(records: Sequence[Record]) -> Summary:
    """Sums over records of one method.

    Nodes of one target pass depend on each other (one is visited only when its parent's draft was accepted), so
    intervals treat the pass as the unit: the ratio estimator with linearised variance over passes, Student's t.
    """
    passes = [
        [visit for visit in record.visits if visit.step == step]
        for record in records
        for step in range(record.target_passes)
    ]
    drafted = [[visit for visit in visits if visit.drafts] for visits in passes]
    everywhere = [visit for visits in drafted for visit in visits]
    bounded = bool(everywhere) and all(visit.bound is not None for visit in everywhere)
    depths = range(1 + max((visit.depth for visit in everywhere), default=-1))
    ranks = range(max((visit.drafts for visit in everywhere), default=0))
    return Summary(
        texts=len(records),
        tokens=sum(len(record.tokens) for record in records),
        target_passes=len(passes),
        draft_passes=sum(record.draft_passes for record in records),
        acceptance=_rate(drafted, lambda visit: visit.rank >= 0),
        bound=float(np.mean([visit.bound for visit in everywhere])) if bounded else float("nan"),
        gap=_rate(drafted, lambda visit: visit.bound - (visit.rank >= 0)) if bounded else Estimate(*[float("nan")] * 3),
        # a contestant that tells no visits is counted text by text
        block_efficiency=ratio(
            ((len(visits), 1) for visits in passes)
            if any(passes)
            else ((len(record.tokens), record.target_passes) for record in records)
        ),
        by_depth=[_rate([[v for v in vs if v.depth == d] for vs in drafted], lambda v: v.rank >= 0) for d in depths],
        by_rank=[_rate([[v for v in vs if v.drafts > r] for vs in drafted], lambda v, r=r: v.rank == r) for r in ranks],
        seconds={phase: sum(record.seconds[phase] for record in records) for phase in ("prefill", *PHASES)},
    )


def ratio(clusters: Iterable[tuple[float, float]]) -> Estimate:
    """sum(a) / sum(b) over independent clusters (a, b), with its interval (Cochran, Sampling Techniques, ch. 6)."""
    a, b = np.array([pair for pair in clusters if pair[1]], dtype=float).reshape(-1, 2).T
    if not b.sum():
        return Estimate(float("nan"), float("nan"), float("nan"))
    value, n = a.sum() / b.sum(), len(a)
    if n < 2:
        return Estimate(value, float("nan"), float("nan"))
    error = np.sqrt(n / (n - 1) * ((a - value * b) ** 2).sum()) / b.sum()
    reach = stats.t.ppf((1 + CONFIDENCE) / 2, n - 1) * error
    return Estimate(value, value - reach, value + reach)


def _rate(passes: Sequence[Sequence[Visit]], score) -> Estimate:  # noqa: ANN001
    return ratio((sum(map(score, visits)), len(visits)) for visits in passes)


def as_json(value: object) -> object:
    """Estimates, lists and numbers as JSON takes them: NaN becomes None."""
    if isinstance(value, Estimate):
        return {"value": as_json(value.value), "low": as_json(value.low), "high": as_json(value.high)}
    if isinstance(value, float) and math.isnan(value):
        return None  # JSON has no NaN
    if isinstance(value, list):
        return [as_json(item) for item in value]
    return value

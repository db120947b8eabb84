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


class Children(NamedTuple):
    """How many drafts there were, and how many were accepted, by depth of their node (row) and child rank (column)."""

    offered: list[list[int]]
    accepted: list[list[int]]


class Summary(NamedTuple):
    """Many records of one method.

    acceptance        fraction of nodes with drafts at which a draft was emitted.
    bound             mean optimal acceptance rate alpha* over the same nodes; NaN when it was not asked for.
    gap               bound minus acceptance, paired node by node.
    block_efficiency  emitted tokens per target pass.
    children          the drafts at visited nodes, by depth and child rank.
    by_depth, by_rank its marginals: acceptance at nodes of each depth (accepted there / offered at rank 0); how often
                      the draft of each child rank was accepted, per node that had that many drafts.
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
    children: Children
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
    offered, accepted = _children(drafted)
    nodes, hits = offered.any(-1), accepted.any(-1)
    depths, ranks = map(range, offered.shape[1:])
    return Summary(
        texts=len(records),
        tokens=sum(len(record.tokens) for record in records),
        target_passes=len(passes),
        draft_passes=sum(record.draft_passes for record in records),
        acceptance=_rate(hits, nodes),
        bound=float(np.mean([visit.bound for visit in everywhere])) if bounded else float("nan"),
        gap=ratio((sum(v.bound - (v.rank >= 0) for v in vs), len(vs)) for vs in (drafted if bounded else [])),
        # a contestant that tells no visits is counted text by text
        block_efficiency=ratio(
            ((len(visits), 1) for visits in passes)
            if any(passes)
            else ((len(record.tokens), record.target_passes) for record in records)
        ),
        children=Children(offered.sum(0).tolist(), accepted.sum(0).tolist()),
        by_depth=[_rate(hits[:, depth], nodes[:, depth]) for depth in depths],
        by_rank=[_rate(accepted[:, :, rank], offered[:, :, rank]) for rank in ranks],
        seconds={phase: sum(record.seconds[phase] for record in records) for phase in ("prefill", *PHASES)},
    )


def _children(passes: Sequence[Sequence[Visit]]) -> np.ndarray:
    """bool (2, P, D, R): whether a pass offered, and accepted, a draft of each child rank at the node that it visited
    at each depth; it visits one node of a depth at most."""
    visits = [(number, visit) for number, visits in enumerate(passes) for visit in visits]
    depths = max((visit.depth + 1 for _, visit in visits), default=0)
    ranks = max((visit.drafts for _, visit in visits), default=0)
    offered, accepted = children = np.zeros((2, len(passes), depths, ranks), dtype=bool)
    for number, visit in visits:
        offered[number, visit.depth, : visit.drafts] = True
        if visit.rank >= 0:
            accepted[number, visit.depth, visit.rank] = True
    return children


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


def _rate(part: np.ndarray, whole: np.ndarray) -> Estimate:
    """The ratio of two counts by pass, (P, ...) each."""
    within = tuple(range(1, part.ndim))
    return ratio(zip(part.sum(within, dtype=int), whole.sum(within, dtype=int), strict=True))


def as_json(value: object) -> object:
    """Estimates, counts, lists and numbers as JSON takes them: NaN becomes None."""
    if isinstance(value, (Estimate, Children)):
        return {key: as_json(part) for key, part in value._asdict().items()}
    if isinstance(value, float) and math.isnan(value):
        return None  # JSON has no NaN
    if isinstance(value, list):
        return [as_json(item) for item in value]
    return value

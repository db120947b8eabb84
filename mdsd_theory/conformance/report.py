"""`suite`: a verifier on all the cases, and what a person reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from mdsd_theory.conformance.cases import CASES, drafts_for
from mdsd_theory.conformance.counting import paired_sample_size
from mdsd_theory.conformance.losslessness import (
    FALSE_ALARM,
    POWER,
    RESOLUTION,
    TOLERANCE,
    Verdict,
    check,
    level_per_token,
)
from mdsd_theory.conformance.subject import has_interface, instance, name_of
from mdsd_theory.verifiers.base import Verifier


class Run(NamedTuple):
    """One case of a suite: its name, what the drafts are, and the verdict."""

    case: str
    drafts: str
    verdict: Verdict


@dataclass(frozen=True)
class Report:
    """What a suite found.

    Attributes:
        verifier: its name.
        sampler: as asked for.
        runs: one per case that the verifier serves.
        refused: why it refuses others of the sampler's drafts, one sentence each.
        false_alarm: the probability that a lossless verifier fails is at most this.
        resolution, power: a token's mass off by `resolution` in any counted case is found with probability `power`.
    """

    verifier: str
    sampler: str
    runs: tuple[Run, ...]
    refused: tuple[str, ...]
    false_alarm: float
    resolution: float
    power: float

    @property
    def failures(self) -> tuple[Run, ...]:
        return tuple(run for run in self.runs if not run.verdict.lossless)

    @property
    def lossless(self) -> bool:
        return not self.failures

    def __str__(self) -> str:
        head = f"{self.verifier} on {self.sampler} drafts:"
        if self.lossless:
            return f"{head} lossless in all {len(self.runs)} cases"
        failures = [f"  {case}, {drafts}: {verdict.reason}" for case, drafts, verdict in self.failures]
        return "\n".join([f"{head} NOT LOSSLESS in {len(failures)} of {len(self.runs)} cases", *failures])


def suite(
    verifier: Any,
    sampler: str = "with-replacement",
    *,
    n: Sequence[int] = (1, 2, 3, 4),
    seed: int = 0,
    resolution: float = RESOLUTION,
    power: float = POWER,
    false_alarm: float = FALSE_ALARM,
    tolerance: float = TOLERANCE,
    progress: Callable[[int, int], None] | None = None,
) -> Report:
    """`check` on small vocabularies: zeros, ties, p = q, disjoint supports, point masses, repeated drafts, long tails.

    Args:
        verifier: as in `check`.
        sampler: one of `drafts.names()`; "top-then-sample:2" fixes how many drafts are certain.
        n: numbers of drafts to try, those that the sampler can have.
        false_alarm: probability that a lossless verifier fails any case; the others are those of `check`.
        progress: called with the number of cases done and the number of all.

    Raises:
        ValueError: as `check`; unknown sampler; no drafts to try; or a verifier that refuses all of them.
    """
    verifier = instance(verifier)
    if sampler == "top-then-sample" and not has_interface(verifier):
        raise ValueError(
            "sampler: a function is not told how many drafts of top-then-sample are certain; say how many, "
            "as in top-then-sample:1"
        )
    planned = [(case, label, draft) for case in CASES for label, draft in drafts_for(sampler, case, n)]
    if not planned:
        raise ValueError(f"n: {', '.join(map(str, n)) or 'none'}; {sampler} has no such drafts")
    runs, refused, seen = [], {}, set()
    for done, (case, label, draft) in enumerate(planned):
        if progress is not None:
            progress(done, len(planned))
        if isinstance(verifier, Verifier) and (why := verifier.refusal(draft)) is not None:
            refused[f"{label}: {why}"] = None
            continue
        share, calls = false_alarm / len(planned), None
        if case.paired is not None and case.name not in seen:
            calls = paired_sample_size(case.paired * resolution, level_per_token(share, case.p.size), power)
        seen.add(case.name)
        verdict = check(
            verifier,
            case.p,
            draft,
            seed=seed + done,
            resolution=resolution,
            power=power,
            false_alarm=share,
            tolerance=tolerance,
            calls=calls,
        )
        runs.append(Run(case.name, label, verdict))
    if progress is not None:
        progress(len(planned), len(planned))
    if not runs:
        raise ValueError(f"verifier {name_of(verifier)} cannot serve {sampler} drafts: {next(iter(refused))}")
    return Report(name_of(verifier), sampler, tuple(runs), tuple(refused), false_alarm, resolution, power)

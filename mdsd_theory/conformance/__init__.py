"""Is a verifier lossless? By enumeration, exactly, where it tells its law; else by calling it and counting.

A verifier is anything of these two kinds:

- a callable `(p, q, tokens, rng) -> token`: p float64 (V,), q what the sampler was made of (float64 (V,); one row per
  drafter for "independent", the table for "joint"), tokens int64 (width,) in draw order, rng a numpy Generator;
- an object with `kernel(p, draft, tokens)`, `verify(p, draft, tokens, rng)` or both, as in `mdsd_theory.verifiers`;
  where it has `prepare(p, draft)` too, both are given the result as `state`.

`check` answers for one p and one draft sampler, `suite` for the small vocabularies on which verifiers go wrong.
"""

from mdsd_theory.conformance.cases import CASES, Case, drafts_for
from mdsd_theory.conformance.losslessness import FALSE_ALARM, POWER, RESOLUTION, TOLERANCE, Verdict, check
from mdsd_theory.conformance.report import Report, Run, suite

__all__ = [
    "CASES",
    "FALSE_ALARM",
    "POWER",
    "RESOLUTION",
    "TOLERANCE",
    "Case",
    "Report",
    "Run",
    "Verdict",
    "check",
    "drafts_for",
    "suite",
]

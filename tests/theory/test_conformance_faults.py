"""The conformance kit catches what is not lossless, for every way that verifiers go wrong."""

import numpy as np
import pytest

from mdsd_theory import conformance
from tests.theory.user_verifiers import PLANTED, float16_p, float16_q, rrs, rrs_without

# Every suite of the conformance tests raises a false alarm with probability below conformance.FALSE_ALARM = 1e-9;
# there are under 200.

# Coarser than the default, to be quick: an error of a mass of 0.12 instead of 0.03 is surely found.
COARSE = 0.12


@pytest.mark.parametrize(("verifier", "sampler"), PLANTED, ids=[f"{v.__name__}-{s}" for v, s in PLANTED])
@pytest.mark.usefixtures("quick")
def test_a_wrong_verifier_is_caught(verifier, sampler):
    report = conformance.suite(verifier, sampler, n=(1, 2), resolution=COARSE)
    assert not report.lossless
    assert "NOT LOSSLESS" in str(report)
    for run in report.failures:
        assert run.verdict.reason


def test_float16_is_caught_with_replacement_too(monkeypatch):
    # Off by 1/4000 of mass: only emitted token against first draft can tell, at the default resolution.
    (case,) = [case for case in conformance.CASES if case.paired]
    monkeypatch.setattr("mdsd_theory.conformance.report.CASES", (case,))
    for wrong in (float16_q, float16_p):
        (run,) = conformance.suite(wrong, n=(1,)).failures
        assert "replaced the first draft" in run.verdict.reason
    assert conformance.suite(rrs, n=(1,)).lossless


def test_float16_rounding_moves_the_mass_that_the_suite_looks_for():
    (case,) = [case for case in conformance.CASES if case.paired]
    assert case.p.sum() == 1.0
    moved = case.p.astype(np.float16).astype(np.float64) - case.p
    looked_for = case.paired * conformance.RESOLUTION
    assert min(np.maximum(moved, 0).sum(), np.maximum(-moved, 0).sum()) >= looked_for


@pytest.mark.parametrize(("verifier", "sampler"), [(rrs, "with-replacement"), (rrs_without, "without-replacement")])
def test_a_right_function_passes(verifier, sampler):
    assert conformance.suite(verifier, sampler, resolution=COARSE).lossless

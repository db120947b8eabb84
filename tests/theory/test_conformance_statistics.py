"""The conformance kit's statistics: their levels and powers are what they claim."""

import numpy as np
import pytest

from mdsd_theory import conformance, drafts
from mdsd_theory.conformance import counting
from tests.theory.reference_pair import P, Q, verdict_of
from tests.theory.user_verifiers import rrs


def test_the_levels_are_exact():
    """By enumeration of all counts: the test rejects with probability at most its level, and nearly so."""
    from scipy.stats import binom

    for calls, mass, level in [(50, 0.3, 0.01), (400, 0.01, 1e-4), (2000, 0.5, 1e-6), (30, 0.999, 1e-3)]:
        counts = np.arange(calls + 1)
        rejected = counting.surprise(counts, calls, mass) < level
        assert binom.pmf(counts, calls, mass)[rejected].sum() < level
    assert counting.surprise([0, 1], 1000, 0.0).tolist() == [1.0, 0.0]
    assert counting.surprise([1000, 999], 1000, 1.0).tolist() == [1.0, 0.0]
    assert counting.difference_surprise(0, 0) == 1.0
    assert counting.difference_surprise(30, 0) == pytest.approx(2.0**-29)


@pytest.mark.parametrize("p", [[0.5, 0.5], [0.3, 0.4, 0.3], [0.999, 0.001], [1.0, 0.0]])
@pytest.mark.parametrize(("resolution", "level", "power"), [(0.03, 1e-12, 0.99), (0.1, 1e-3, 0.9), (0.01, 1e-9, 0.5)])
def test_the_power_is_what_it_claims(p, resolution, level, power):
    """By enumeration of all counts under every error of the size `resolution`, and 20 % fewer calls are too few."""
    from scipy.stats import binom

    def least_power(calls):
        counts = np.arange(calls + 1)
        powers = [
            binom.pmf(counts, calls, wrong)[counting.surprise(counts, calls, mass) < level].sum()
            for mass in p
            for wrong in (mass - resolution, mass + resolution)
            if 0 <= wrong <= 1
        ]
        return min(powers)

    calls = counting.sample_size(np.array(p), resolution, level, power)
    assert least_power(calls) >= power - 1e-12
    assert least_power(int(0.8 * calls)) < power


def test_the_default_false_alarm_is_below_one_in_a_million():
    assert conformance.FALSE_ALARM < 1e-6
    report = conformance.suite(rrs, n=(1,), resolution=0.5, false_alarm=1e-7)
    assert report.false_alarm == 1e-7


@pytest.mark.parametrize("false_alarm", [0.02, 0.3])
def test_a_lossless_verifier_fails_no_more_often_than_said(false_alarm):
    """400 suites of a right verifier; this test itself is wrong less than once in 1e9 runs."""
    from scipy.stats import binom

    draft = drafts.WithReplacement(Q, 2)

    def fails(seed):
        try:
            return not conformance.check(rrs, P, draft, false_alarm=false_alarm, resolution=0.4, seed=seed).lossless
        except ValueError as error:  # the sampler's own test takes its share of the level
            return "sample()" in str(error)

    failed = sum(fails(seed) for seed in range(400))
    assert failed <= binom.isf(1e-9, 400, false_alarm)
    assert failed > 0 or false_alarm < 0.1


def test_same_seed_same_verdict():
    assert verdict_of(rrs, seed=3) == verdict_of(rrs, seed=3)
    assert verdict_of(rrs, seed=3) != verdict_of(rrs, seed=4)

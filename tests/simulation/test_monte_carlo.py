"""Estimators: unbiased against enumeration, paired, and with intervals that cover; wrong ones are caught.

Statistical tests raise a false alarm with probability below FALSE_ALARM each.
"""

from collections import Counter

import numpy as np
import pytest
from scipy.stats import binom, norm

from mdsd_theory import drafts, optimal_acceptance, verifiers
from simulation.monte_carlo import acceptance, exceeds, mean_interval, seed_of

FALSE_ALARM = 1e-9
Z = norm.isf(FALSE_ALARM / 2)
P = np.array([0.3, 0.25, 0.2, 0.15, 0.1])
Q = np.array([0.1, 0.4, 0.1, 0.3, 0.1])


class NoClosedForm:
    """A verifier that can only be estimated; counts how often it is asked. `bias` makes it wrong."""

    def __init__(self, verifier, bias=0.0):
        self.verifier, self.bias, self.calls = verifier, bias, Counter()

    def closed_form_rate(self, p, draft):
        return None

    def acceptance_rate(self, p, draft):
        raise NotImplementedError

    def prepare(self, p, draft):
        self.calls["prepare"] += 1
        return self.verifier.prepare(p, draft)

    def acceptance(self, p, draft, tokens, state=None):
        self.calls[tuple(tokens.tolist())] += 1
        return self.verifier.acceptance(p, draft, tokens, state) + self.bias


def pairs(count, vocab=5, seed=0):
    rng = np.random.default_rng(seed)
    return zip(rng.dirichlet(np.ones(vocab), count), rng.dirichlet(np.ones(vocab), count), strict=True)


def z_against_enumeration(bias):
    """Monte Carlo less exact rates of rrs without replacement, summed over pairs, in standard errors."""
    error = variance = 0.0
    for k, (p, q) in enumerate(pairs(40)):
        draft = drafts.make("without-replacement", q, n=3)
        [found] = acceptance(p, draft, [NoClosedForm(verifiers.make("rrs"), bias)], 200, np.random.default_rng(k))
        assert not found.exact
        error += found.rate - verifiers.make("rrs").acceptance_rate(p, draft)
        variance += found.variance / 200
    return error / np.sqrt(variance)


def test_the_estimate_agrees_with_enumeration_and_a_biased_one_does_not():
    assert abs(z_against_enumeration(0.0)) < Z
    assert abs(z_against_enumeration(0.05)) > Z


def test_a_closed_form_is_used_where_there_is_one():
    draft = drafts.make("with-replacement", Q, n=3)
    rrs, kseq = acceptance(P, draft, [verifiers.make("rrs"), verifiers.make("kseq")], 8, None)  # no generator needed
    assert rrs == (verifiers.make("rrs").acceptance_rate(P, draft), 0.0, True)
    assert kseq.exact


def test_few_tuples_are_enumerated():
    draft = drafts.make("without-replacement", np.array([0.6, 0.4, 0, 0, 0]), n=2)
    [found] = acceptance(P, draft, [verifiers.make("rrs")], 4, None)
    assert found == (pytest.approx(verifiers.make("rrs").acceptance_rate(P, draft)), 0.0, True)


def test_all_verifiers_see_the_same_drafts_each_evaluated_once():
    draft = drafts.make("without-replacement", Q, n=2)
    one, other = NoClosedForm(verifiers.make("rrs")), NoClosedForm(verifiers.make("naive"))
    acceptance(P, draft, [one, other], 500, np.random.default_rng(0))
    assert one.calls == other.calls
    assert set(one.calls.values()) == {1}
    assert one.calls["prepare"] == 1


def test_no_coin_is_tossed():
    # Given the drafts naive accepts with probability p(drafts); a coin would add its own variance.
    draft = drafts.make("without-replacement", Q, n=2)
    [found] = acceptance(P, draft, [NoClosedForm(verifiers.make("naive"))], 4000, np.random.default_rng(0))
    tokens, probability = draft.joint()
    mass = P[tokens].sum(axis=1)
    exact = probability @ mass**2 - (probability @ mass) ** 2
    assert abs(found.variance - exact) < 0.15 * exact
    assert found.variance < 0.1 * found.rate * (1 - found.rate)


def test_common_drafts_make_the_difference_sharper_than_either_rate():
    same, apart = [], []
    for seed in range(200):
        draft = drafts.make("without-replacement", Q, n=2)
        two = [NoClosedForm(verifiers.make("rrs")), NoClosedForm(verifiers.make("rrs"), 0.01)]
        first, second = acceptance(P, draft, two, 20, np.random.default_rng(seed))
        [alone] = acceptance(P, draft, two[1:], 20, np.random.default_rng(10_000 + seed))
        same.append(second.rate - first.rate)
        apart.append(alone.rate - first.rate)
    assert np.std(same) < 1e-12 < 1e-3 < np.std(apart)


def dataset(rng, prompts):
    """Positions in [0, 1] that resemble each other within a prompt; the true mean is 2/3."""
    sizes = rng.integers(1, 32, size=prompts)
    of_prompt = rng.beta(4, 2, size=prompts)
    values = [rng.beta(3 * m, 3 * (1 - m), size=size) for m, size in zip(of_prompt, sizes, strict=True)]
    return np.concatenate(values), np.repeat(np.arange(prompts), sizes)


def covered(cluster, sets=400, prompts=12):
    rng = np.random.default_rng(5)
    hits = 0
    for k in range(sets):
        values, clusters = dataset(rng, prompts)
        found = mean_interval(values, clusters if cluster else np.arange(len(values)), 0.95, k)
        hits += found.low <= 2 / 3 <= found.high
    return hits


def test_intervals_cover_as_often_as_they_say_and_ignoring_prompts_would_not():
    # A true coverage inside [0.92, 0.98] fails with probability below FALSE_ALARM.
    least, most = binom.ppf(FALSE_ALARM / 2, 400, 0.92), binom.isf(FALSE_ALARM / 2, 400, 0.98)
    assert least <= covered(cluster=True) <= most
    assert covered(cluster=False) < least


def test_the_interval_of_one_prompt_does_not_exist():
    mean, low, high = mean_interval(np.array([0.2, 0.4]), np.array([3, 3]))
    assert mean == pytest.approx(0.3)
    assert np.isnan([low, high]).all()


def test_the_interval_of_equal_values_is_that_value():
    assert mean_interval(np.full(9, 0.25), np.arange(9)) == (0.25, 0.25, 0.25)


@pytest.mark.parametrize("draws", [16, 64])
def test_lossless_verifiers_are_not_flagged_and_a_planted_wrong_one_is(draws):
    right, wrong, optima = [], [], []
    for k, (p, q) in enumerate(pairs(200, seed=1)):
        draft = drafts.make("without-replacement", q, n=2)
        planted = [NoClosedForm(verifiers.make("rrs")), NoClosedForm(verifiers.make("rrs"), bias=0.2)]
        estimates = acceptance(p, draft, planted, draws, np.random.default_rng(k))
        right.append(estimates[0])
        wrong.append(estimates[1])
        optima.append(optimal_acceptance(p, draft).rate)
    for estimates, flagged in ((right, False), (wrong, True)):
        rates, variances, exact = map(np.array, zip(*estimates, strict=True))
        assert exceeds(rates, variances, exact, np.array(optima), draws) is flagged


def test_one_exact_position_above_the_optimum_is_enough():
    rates, exact = np.array([0.5, 0.8]), np.array([True, True])
    assert not exceeds(rates, np.zeros(2), exact, np.array([0.5, 0.8]) - 1e-12, 64)
    assert exceeds(rates, np.zeros(2), exact, np.array([0.9, 0.8 - 1e-6]), 64)


def test_draws_that_happen_to_agree_are_not_taken_for_certainty():
    # Conditional acceptance 1 for the usual draft, 0 for one in a thousand: 64 draws see only the usual one.
    assert not exceeds(np.ones(5), np.zeros(5), np.zeros(5, dtype=bool), np.full(5, 0.999), 64)


def test_the_false_alarm_bound_holds_for_rare_losses():
    # Bernoulli acceptances at the optimum itself, the hardest lossless case, rare and common.
    rng = np.random.default_rng(0)
    for optimum in (0.5, 0.99, 0.9999):
        for _ in range(2000):
            values = rng.random((10, 8)) < optimum
            assert not exceeds(
                values.mean(axis=1), values.var(axis=1, ddof=1), np.zeros(10, dtype=bool), np.full(10, optimum), 8
            )


def test_seeds_depend_on_their_key_alone():
    one = np.random.default_rng(seed_of(1, 2, 3)).random()
    assert one == np.random.default_rng(seed_of(1, 2, 3)).random()
    assert len({np.random.default_rng(seed_of(*key)).random() for key in [(1, 2, 3), (1, 3, 2), (2, 2, 3)]}) == 3

"""The canonical verifier: lossless at any alphabet, optimal on the whole one, its rate exact, at full vocabulary."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mdsd_theory import drafts, optimal_acceptance, verifiers
from tests.theory.strategies import drafted

PAIRS = drafted(("with-replacement", "independent"), max_n=2)


def laws(verifier, p, draft):
    """Kernels (N, V) and conditional acceptance (N,) of every draft tuple, and the tuples' probability."""
    state = verifier.prepare(p, draft)
    tokens, probability = draft.joint()
    kernels = np.array([verifier.kernel(p, draft, x, state) for x in tokens])
    return kernels, np.array([verifier.acceptance(p, draft, x, state) for x in tokens]), probability


@settings(max_examples=250, deadline=None)
@given(PAIRS, st.integers(0, 7))
def test_lossless_with_the_rate_it_states_at_any_alphabet(case, alphabet):
    p, draft = case
    assume(draft.n == 2)
    verifier = verifiers.Canonical(alphabet)
    kernels, acceptance, probability = laws(verifier, p, draft)
    np.testing.assert_allclose(kernels.sum(axis=1), 1.0, rtol=0, atol=1e-12)
    np.testing.assert_allclose(probability @ kernels, p, rtol=0, atol=1e-12)
    assert kernels.min() >= -1e-15
    rate = verifier.acceptance_rate(p, draft)
    assert abs(probability @ acceptance - rate) <= 1e-12
    assert rate <= optimal_acceptance(p, draft).rate + 1e-12


@settings(max_examples=150, deadline=None)
@given(PAIRS)
def test_whole_alphabet_reaches_the_optimum_and_sums_min_t_p(case):
    p, draft = case
    assume(draft.n == 2)
    verifier = verifiers.Canonical(p.size)
    best = optimal_acceptance(p, draft).rate
    assert abs(verifier.acceptance_rate(p, draft) - best) <= 1e-12
    assert abs(np.minimum(verifier.prepare(p, draft).t, p).sum() - best) <= 1e-12


@settings(max_examples=100, deadline=None)
@given(PAIRS, st.integers(0, 6))
def test_selected_draft_has_the_law_t(case, alphabet):
    p, draft = case
    assume(draft.n == 2)
    verifier = verifiers.Canonical(alphabet)
    state = verifier.prepare(p, draft)
    t = np.zeros(p.size)
    accept = np.minimum(1.0, np.divide(p, state.t, out=np.ones(p.size), where=state.t > 0))
    for tokens, probability in zip(*draft.joint(), strict=True):
        accepted = verifier._law(state, tokens).accepted
        # What acceptance divides out again is the probability of being selected, where p > 0.
        np.add.at(t, tokens, probability * np.divide(accepted, accept[tokens], out=np.zeros(2), where=accepted > 0))
    np.testing.assert_allclose(t[p > 0], state.t[p > 0], rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize("two_drafters", [False, True])
def test_a_larger_alphabet_helps_here_and_none_beats_the_optimum(two_drafters):
    rng = np.random.default_rng(5)
    logits = rng.normal(0, 2, 14)
    p, q1, q2 = (np.exp(logits + rng.normal(0, 1, 14)) for _ in range(3))
    p, q1, q2 = p / p.sum(), q1 / q1.sum(), q2 / q2.sum()
    draft = drafts.Independent([q1, q2]) if two_drafters else drafts.WithReplacement(q1, 2)
    rates = [verifiers.Canonical(a).acceptance_rate(p, draft) for a in (0, 7, 14)]
    assert rates[0] < rates[-1] - 1e-3
    assert max(rates) == pytest.approx(optimal_acceptance(p, draft).rate, abs=1e-12)


def test_kernel_and_verify_agree():
    # Hoeffding: one of the 12 frequencies is off by 0.04 with probability below 24 exp(-2 * 10,000 * 0.04^2) < 1e-12.
    p, draft = np.array([0.1, 0.4, 0.2, 0.3]), drafts.Independent([[0.7, 0.1, 0.1, 0.1], [0.2, 0.2, 0.3, 0.3]])
    verifier, rng = verifiers.Canonical(2), np.random.default_rng(0)
    state = verifier.prepare(p, draft)
    for tokens in ([0, 1], [2, 3], [0, 0]):
        drawn = [verifier.verify(p, draft, tokens, rng, state) for _ in range(10_000)]
        frequency = np.bincount(drawn, minlength=4) / len(drawn)
        np.testing.assert_allclose(frequency, verifier.kernel(p, draft, tokens, state), rtol=0, atol=0.04)


def test_full_vocabulary_at_every_draw():
    rng = np.random.default_rng(1)
    logits = rng.normal(0, 3, 152_064)
    p, q = np.exp(logits + rng.normal(0, 1, logits.size)), np.exp(logits)
    p, q = p / p.sum(), q / q.sum()
    draft, verifier = drafts.WithReplacement(q, 2), verifiers.Canonical()
    state = verifier.prepare(p, draft)
    best = optimal_acceptance(p, draft).rate
    rate = verifier.acceptance_rate(p, draft)
    assert best - 0.01 < rate <= best + 1e-12
    assert state.t.sum() == pytest.approx(1.0, abs=1e-11)
    # Hoeffding, 20,000 draws: off by more than 0.025 with probability below 1e-10.
    mean = np.mean([verifier.acceptance(p, draft, x, state) for x in draft.sample(rng, 20_000)])
    assert abs(mean - rate) < 0.025


@pytest.mark.parametrize(
    ("draft", "why"),
    [
        (drafts.WithReplacement([0.5, 0.5], 3), r"canonical cannot serve with-replacement drafts \(n = 3\)"),
        (drafts.WithoutReplacement([0.5, 0.5], 2), "canonical cannot serve without-replacement"),
        (drafts.Greedy([0.5, 0.5], 2), "canonical cannot serve greedy"),
        (drafts.Independent([[0.5, 0.5]]), r"canonical cannot serve independent drafts \(n = 1\)"),
    ],
)
def test_other_drafts_are_refused(draft, why):
    with pytest.raises(ValueError, match=why):
        verifiers.Canonical().check([0.5, 0.5], draft)


@pytest.mark.parametrize("alphabet", [-1, 1.5, True])
def test_alphabet_is_checked(alphabet):
    with pytest.raises(ValueError, match="alphabet"):
        verifiers.make("canonical", alphabet=alphabet)

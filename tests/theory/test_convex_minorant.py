"""The convex-minorant verifier beyond small vocabularies: geometry, extremes, and the two ways it finds a block."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mdsd_theory import drafts, optimal_acceptance, verifiers
from mdsd_theory.minorant import block_start, places
from mdsd_theory.verifiers.convex_minorant import intermediate_target

VERIFIER = verifiers.make("convex-minorant")


def pair(rng, vocab_size, style):
    """A target and a draft of many shapes: close, far, with ties, with zeros."""
    base = rng.normal(size=vocab_size) * rng.choice([0.5, 2, 4])
    p, q = (
        np.exp(base + rng.normal(size=vocab_size) * rng.choice([0, 0.1, 1, 3])),
        np.exp(base + rng.normal(size=vocab_size)),
    )
    if style == "zeros":
        p, q = p * (rng.random(vocab_size) < 0.7), q * (rng.random(vocab_size) < 0.7)
    if style == "ties":
        p, q = np.ceil(4 * p) / 4, np.ceil(4 * q) / 4
    if style == "extreme":
        p, q = p * 10.0 ** rng.uniform(-300, 0, vocab_size), q * 10.0 ** rng.uniform(-300, 0, vocab_size)
    if p.sum() == 0 or q.sum() == 0:
        return pair(rng, vocab_size, style)
    return p / p.sum(), q / q.sum()


@pytest.mark.parametrize("style", ["plain", "zeros", "ties", "extreme"])
@pytest.mark.parametrize("vocab_size", [2, 7, 60, 3000])
def test_the_clipped_target_has_the_properties_the_proof_needs(style, vocab_size):
    """t sums to 1, t/q' is nondecreasing, T >= X^m, and sum min(p', t) + P(Top) = alpha*."""
    rng = np.random.default_rng(vocab_size)
    for n in (2, 3, 8):
        p, q = pair(rng, vocab_size, style)
        draft = drafts.TopThenSample(q, n, int(rng.integers(0, n)))
        state = VERIFIER.prepare(p, draft)
        if not state.m:
            continue
        t, rest = state.ordered.t, draft.rest
        off_top = np.where(state.top, 0.0, p)
        assert t.sum() == pytest.approx(1, abs=1e-12)
        order = np.argsort(state.ordered.place)[np.count_nonzero(state.ordered.place < 0) :]
        # Subnormal masses carry no nine digits to compare.
        whole = order[rest[order] > 1e-290]
        ratio = t[whole] / rest[whole]
        assert (np.diff(ratio) >= -1e-9 * ratio[1:]).all()
        x, total = np.cumsum(rest[order]), np.cumsum(t[order])
        assert (total >= x**state.m - 1e-12).all()
        rate = p[state.top].sum() + np.minimum(off_top, t).sum()
        assert rate == pytest.approx(optimal_acceptance(p, draft).rate, abs=1e-12)


@pytest.mark.parametrize("style", ["plain", "zeros", "ties"])
@pytest.mark.parametrize("vocab_size", [2, 9, 200, 5000])
def test_one_edge_by_bridging_is_the_edge_of_the_whole_envelope(style, vocab_size):
    """`verify` finds one block in linear time, the exact law knows all merge times: the same drafts are inside."""
    rng = np.random.default_rng(vocab_size)
    compared = 0
    for n in (2, 3, 5, 8):
        p, q = pair(rng, vocab_size, style)
        draft = drafts.TopThenSample(q, n, int(rng.integers(0, n - 1)))
        state = VERIFIER.prepare(p, draft)
        if state.m < 2:
            continue
        (blocks, ids, scale), ordered = state.search, state.ordered
        clip = np.minimum(np.maximum(np.where(state.top, 0, p), blocks.kappa * draft.rest), blocks.tau * draft.rest)
        np.testing.assert_allclose(clip, ordered.t, atol=1e-13)
        for tokens in draft.sample(rng, 30)[:, draft.top_tokens.size :]:
            s = rng.random()
            where = places(blocks, ids, tokens, p, q, scale)
            inside = set(tokens[where >= block_start(blocks, s, where.max(), p, q, scale)])
            first = ordered.place[tokens].max()
            while first > 0 and ordered.deaths[first - 1] <= s:
                first -= 1
            assert inside == set(tokens[ordered.place[tokens] >= first])
            compared += 1
    assert compared


@pytest.mark.parametrize("n", [2, 3, 8])
def test_ratios_from_1e_minus_300_to_1e300(n):
    """Lossless by enumeration with masses that differ by 300 orders of magnitude either way."""
    p = np.array([1e-300, 0.4, 1e-150, 0.6 - 1e-9, 1e-9, 0.0])
    q = np.array([0.5, 1e-300, 0.3, 1e-160, 0.2, 0.0])
    draft = drafts.WithReplacement(q, n)
    if n < 8:
        state = VERIFIER.prepare(p, draft)
        tokens, probability = draft.joint()
        law = probability @ np.array([VERIFIER.kernel(p, draft, x, state) for x in tokens])
        np.testing.assert_allclose(law, p, atol=1e-12)
    rng = np.random.default_rng(0)
    drawn = draft.sample(rng, 300)
    emitted = [VERIFIER.verify(p, draft, x, rng) for x in drawn]
    assert (p[emitted] > 0).all()


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 6), min_size=1, max_size=5).filter(any),
    st.data(),
    st.integers(1, 4),
)
def test_fractions_are_lossless_to_the_last_digit(a, data, n):
    b = data.draw(st.lists(st.integers(0, 6), min_size=len(a), max_size=len(a)).filter(any))
    p, q = ([Fraction(x, sum(weights)) for x in weights] for weights in (a, b))
    draft = drafts.TopThenSample(q, n, data.draw(st.integers(0, n)))
    state = VERIFIER.prepare(p, draft)
    tokens, probability = draft.joint()
    law = sum(w * VERIFIER.kernel(p, draft, x, state) for x, w in zip(tokens, probability, strict=True))
    assert list(law) == p
    rate = sum(w * VERIFIER.acceptance(p, draft, x, state) for x, w in zip(tokens, probability, strict=True))
    assert rate == optimal_acceptance(p, draft).rate == VERIFIER.acceptance_rate(p, draft)


def test_the_target_of_one_draft_is_q_itself():
    p, q = np.array([0.2, 0.8]), np.array([0.6, 0.4])
    np.testing.assert_array_equal(intermediate_target(p, q, 1), q)


def test_repeated_drafts_count_repeatedly():
    """Two of three drafts equal and all in one block: selected two to one."""
    p = q = np.array([0.5, 0.5])
    draft = drafts.WithReplacement(q, 3)
    np.testing.assert_allclose(VERIFIER.kernel(p, draft, [0, 0, 1]) + VERIFIER.kernel(p, draft, [1, 1, 0]), [1.0, 1.0])


def test_full_vocabulary_draws_follow_the_exact_acceptance():
    """V = 152,064: 2,000 draws at one position are accepted as often as the closed form says.

    A binomial two-sided test at level 1e-9.
    """
    from scipy.stats import binomtest

    rng = np.random.default_rng(3)
    base = rng.normal(size=152_064) * 3
    p, q = (np.exp(base + rng.normal(size=base.size)) for _ in range(2))
    p, q = p / p.sum(), q / q.sum()
    draft = drafts.TopThenSample(q, 4, 1)
    state = VERIFIER.prepare(p, draft)
    drawn = draft.sample(rng, 2000)
    hits = sum(VERIFIER.verify(p, draft, x, rng, state) in x for x in drawn)
    assert binomtest(hits, 2000, VERIFIER.acceptance_rate(p, draft)).pvalue > 1e-9
    assert binomtest(int(0.9 * hits), 2000, VERIFIER.acceptance_rate(p, draft)).pvalue < 1e-9

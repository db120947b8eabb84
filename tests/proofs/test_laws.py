"""The laws of the proofs that no other layer states, as properties of the exact mode: Fractions, no tolerance."""

from fractions import Fraction

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from mdsd_theory import drafts, optimal_acceptance, verifiers
from mdsd_theory.acceptance import certificate
from mdsd_theory.qconvexity import is_q_convex
from tests.theory.strategies import exact_distributions, exact_drafted

SETTINGS = settings(max_examples=60, deadline=None)
Q_CONVEX = ("with-replacement", "without-replacement")


def all_sets(size):
    return [np.array([bool(bits >> i & 1) for i in range(size)]) for bits in range(2**size)]


@st.composite
def optimally_served(draw):
    """(p, draft) in Fractions, and an optimal verifier for them."""
    if draw(st.booleans()):
        p, draft = draw(exact_drafted(samplers=("with-replacement",)))
        return p, draft, verifiers.make("convex-minorant")
    size = draw(st.integers(2, 4))
    p, q = draw(exact_distributions(size)), draw(exact_distributions(size))
    n = draw(st.integers(2, size))
    return p, drafts.TopThenSample(q, n, n - 1), verifiers.make("greedy")


@SETTINGS
@given(exact_drafted())
def test_q_of_every_sampler_is_supermodular(case):
    _, draft = case
    sets = all_sets(draft.vocab_size)
    mass = {a.tobytes(): draft.subset_mass(a) for a in sets}
    for a in sets:
        for b in sets:
            together = mass[(a | b).tobytes()] + mass[(a & b).tobytes()]
            assert mass[a.tobytes()] + mass[b.tobytes()] <= together


@SETTINGS
@given(exact_drafted(samplers=Q_CONVEX))
def test_with_and_without_replacement_are_q_convex_exactly(case):
    _, draft = case
    verdict = is_q_convex(draft, tolerance=0)
    assert verdict.holds
    assert verdict.complete


def test_a_sampler_that_is_not_q_convex_is_told():
    """Two different drafters: Q(H) = q_1(H) q_2(H) bends down where they favour different tokens."""
    q_1, q_2 = (np.array([Fraction(x, 10) for x in w], dtype=object) for w in ([8, 1, 1], [1, 1, 8]))
    assert not is_q_convex(drafts.Independent([q_1, q_2]), tolerance=0)


@SETTINGS
@given(exact_drafted(samplers=Q_CONVEX))
def test_a_prefix_of_the_tokens_sorted_by_ratio_is_optimal(case):
    p, draft = case
    q = draft.q
    order = sorted(range(p.size), key=lambda i: (q[i] == 0, p[i] / q[i] if q[i] else 0))
    prefixes = [np.isin(np.arange(p.size), order[:k]) for k in range(p.size + 1)]
    values = [sum(p[h]) - draft.subset_mass(h) for h in prefixes]
    assert min(values) == min(sum(p[h]) - draft.subset_mass(h) for h in all_sets(p.size))


@SETTINGS
@given(optimally_served())
def test_an_optimal_coupling_and_the_best_set_are_a_certificate(case):
    p, draft, verifier = case
    tokens, probability = draft.joint()
    coupling = np.array([w * verifier.kernel(p, draft, x) for x, w in zip(tokens, probability, strict=True)])
    best = optimal_acceptance(p, draft)
    checked = certificate(p, draft, coupling, best.subset)
    assert checked.optimal
    assert checked.lower == checked.upper == best.rate
    for subset in all_sets(p.size):
        assert certificate(p, draft, coupling, subset).upper >= best.rate


@SETTINGS
@given(exact_drafted(samplers=Q_CONVEX))
def test_every_verifier_is_matched_by_selecting_one_draft(case):
    """Canonical decomposition: select what the verifier accepts, else the first draft; t is the law selected."""
    p, draft = case
    verifier = verifiers.make("rrs")
    tokens, probability = draft.joint()
    t, accepted = [Fraction(0)] * p.size, Fraction(0)
    for x, w in zip(tokens, probability, strict=True):
        kernel = verifier.kernel(p, draft, x)
        inside = sum(kernel[i] for i in set(x.tolist()))
        accepted += w * inside
        for i in set(x.tolist()):
            t[i] += w * kernel[i]
        t[x[0]] += w * (1 - inside)
    assert sum(t) == 1
    assert accepted == verifier.acceptance_rate(p, draft)
    assert accepted <= sum(map(min, t, p)) <= optimal_acceptance(p, draft).rate

"""The laws of alpha* and of Q, each for every sampler it is claimed for ([1] Hu et al. 2025, sections 3 to 5)."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mdsd_theory import drafts, is_q_convex, optimal_acceptance, optimal_acceptance_batch, verifiers
from mdsd_theory.drafts.base import Draft
from tests.theory.strategies import SAMPLERS, distributions, drafted, drafts_of, exact_drafted, pairs

SOME = settings(max_examples=150, deadline=None)
Q_CONVEX = ("with-replacement", "without-replacement", "greedy", "top-then-sample", "spechub")
# Masses that sit at the very end of float64, where quotients and reciprocals overflow.
SUBNORMAL = st.sampled_from([1.0, 0.5, 0.0, 1e-300, 5e-301, 1e-308, 1e-310, 5e-324])


def target_masses(p):
    """P of every subset, (2**V,), bit i of the index for token i."""
    masses = np.zeros(1, dtype=p.dtype)
    for mass in p:
        masses = np.concatenate([masses, masses + mass])
    return masses


def enumerated_rate(p, draft):
    """alpha* from its formula, over all subsets, with Q from the joint law alone."""
    return 1 + (target_masses(p) - Draft.all_subset_masses(draft)).min()


# Q ------------------------------------------------------------------------------------------------------------------


@SOME
@given(drafted(Q_CONVEX), st.randoms(use_true_random=False))
def test_q_convexity_along_random_orders(case, random):
    """By enumeration, apart from the sampler's own Q; the top-then-sample family behind Top, in q'."""
    _, draft = case
    top = draft.top_tokens if isinstance(draft, drafts.TopThenSample) else np.zeros(0, dtype=int)
    q = draft.rest if top.size else draft.q
    tokens, probability = draft.joint()
    order = np.flatnonzero(q > 0)
    random.shuffle(order)
    rank = np.full(draft.vocab_size, draft.vocab_size)
    rank[order] = np.arange(order.size)
    rank[top] = -1
    last = rank[tokens].max(axis=1)
    rise, width = np.bincount(last[last >= 0], probability[last >= 0], order.size), q[order]
    assert (rise[:-1] * width[1:] <= rise[1:] * width[:-1] + 1e-12 * (width[:-1] + width[1:])).all()


@SOME
@given(drafted(("with-replacement", "without-replacement")))
def test_is_q_convex_accepts_the_q_convex_samplers(case):
    assert is_q_convex(case[1]) == (True, True, None, None)


def test_certain_tokens_are_not_q_convex_in_any_order():
    # Q jumps to 1 with the certain token and stays there.
    verdict = is_q_convex(drafts.TopThenSample([0.5, 0.5], 1, 1))
    assert not verdict
    assert verdict.slopes == (2.0, 0.0)


def test_independent_drafters_are_not_q_convex_and_the_counterexample_holds():
    draft = drafts.Independent([[0.6, 0.3, 0.1], [0.1, 0.3, 0.6]])
    verdict = is_q_convex(draft)
    assert not verdict
    *held, x, y = verdict.order
    rises = [draft.subset_mass([*held, x]) - draft.subset_mass(held)]
    rises.append(draft.subset_mass([*held, x, y]) - draft.subset_mass([*held, x]))
    slopes = rises[0] / draft.q[x], rises[1] / draft.q[y]
    assert slopes[0] > slopes[1] + 1e-9
    assert verdict.slopes == pytest.approx(slopes, rel=1e-12)


def test_q_convexity_of_many_tokens_is_sampled_and_says_so():
    q = np.full(40, 1 / 40)
    assert is_q_convex(drafts.WithReplacement(q, 3)) == (True, False, None, None)
    other = np.concatenate([np.full(20, 0.045), np.full(20, 0.005)])
    assert not is_q_convex(drafts.Independent([other, other[::-1]])).complete


@SOME
@given(drafted(max_size=5))
def test_supermodular(case):
    _, draft = case
    masses = Draft.all_subset_masses(draft)
    a, b = np.indices((masses.size, masses.size))
    assert (masses[a] + masses[b] <= masses[a | b] + masses[a & b] + 1e-12).all()


@SOME
@given(drafted())
def test_own_subset_masses_equal_enumeration(case):
    _, draft = case
    wanted = Draft.all_subset_masses(draft)
    np.testing.assert_allclose(draft.all_subset_masses(), wanted, rtol=0, atol=1e-12)
    own = [draft.subset_mass((h >> np.arange(draft.vocab_size)) & 1 == 1) for h in range(wanted.size)]
    np.testing.assert_allclose(own, wanted, rtol=0, atol=1e-12)


def without_replacement_errors(q, n):
    """The largest error of prefix masses over a few orders, against enumeration."""
    draft, rng = drafts.WithoutReplacement(q, n), np.random.default_rng(0)
    tokens, probability = draft.joint()
    for _ in range(4):
        order = rng.permutation(len(q))
        rank = np.argsort(order)
        wanted = np.concatenate([[0.0], np.cumsum(np.bincount(rank[tokens].max(axis=1), probability, len(q)))])
        yield abs(draft.prefix_masses(order) - wanted).max()


@SOME
@given(distributions(2), st.integers(1, 4))
def test_without_replacement_equals_enumeration(q, n):
    assert max(without_replacement_errors(q, n)) <= 1e-12


@SOME
@given(st.lists(SUBNORMAL, min_size=2, max_size=5), st.integers(1, 4))
def test_without_replacement_equals_enumeration_at_the_end_of_float64(weights, n):
    q = np.array(weights)
    assume(q.sum() > 0.4)
    assert max(without_replacement_errors(q / q.sum(), n)) <= 1e-12


@pytest.mark.parametrize("n", [1, 2, 3, 4])
@pytest.mark.parametrize(
    "q",
    [
        [1 - 1e-9, 5e-10, 3e-10, 1e-10, 1e-10],
        [1 - 1e-9, 1e-9, 1e-18, 1e-27, 1e-36],
        [0.5, 0.5 - 1e-9, 1e-9, 0.0, 0.0],
        # What a cap on the quadrature's last node once put off by 1e-2.
        [0.5, 0.5, 1.6e-301, 1.6e-301, 1.7e-13],
        [0.75, 0.25, 2.5e-301, 2.5e-301, 0.0],
    ],
)
def test_without_replacement_equals_enumeration_for_peaked_q(q, n):
    assert max(without_replacement_errors(np.array(q), n)) <= 1e-12


# alpha* -------------------------------------------------------------------------------------------------------------


@SOME
@given(drafted())
def test_optimum_equals_the_minimum_over_all_subsets(case):
    p, draft = case
    best = optimal_acceptance(p, draft)
    assert abs(best.rate - enumerated_rate(p, draft)) <= 1e-12
    assert abs(best.target_mass - p[best.subset].sum()) <= 1e-12
    assert abs(best.draft_mass - draft.subset_mass(best.subset)) <= 1e-12
    assert abs(best.rate - (1 + best.target_mass - best.draft_mass)) <= 1e-12
    assert best.gap == 0


@SOME
@given(pairs(), st.integers(0, 3))
def test_more_drafts_never_hurt(pair, top):
    p, q = pair
    families = {
        "with": [drafts.WithReplacement(q, n) for n in (1, 2, 3, 4)],
        "without": [drafts.WithoutReplacement(q, n) for n in (1, 2, 3, 4)],
        "top": [drafts.TopThenSample(q, n, min(top, 1)) for n in (1, 2, 3, 4)],
        "independent": [drafts.Independent([q, p, q, q][:n]) for n in (1, 2, 3, 4)],
    }
    for name, family in families.items():
        rates = [optimal_acceptance(p, draft).rate for draft in family]
        assert (np.diff(rates) >= -1e-12).all(), name


@SOME
@given(pairs(), st.integers(1, 5))
def test_without_replacement_is_never_worse_than_with(pair, n):
    p, q = pair
    without = optimal_acceptance(p, drafts.WithoutReplacement(q, n)).rate
    assert without >= optimal_acceptance(p, drafts.WithReplacement(q, n)).rate - 1e-12


@SOME
@given(pairs())
def test_one_draft_gives_one_minus_total_variation(pair):
    p, q = pair
    overlap = np.minimum(p, q).sum()
    singles = [
        drafts.WithReplacement(q, 1),
        drafts.WithoutReplacement(q, 1),
        drafts.Greedy(q, 1),
        drafts.TopThenSample(q, 1, 0),
        drafts.Independent([q]),
        drafts.Joint(q),
    ]
    for draft in singles:
        assert abs(optimal_acceptance(p, draft).rate - overlap) <= 1e-12, draft


@SOME
@given(drafted(), st.randoms(use_true_random=False))
def test_names_of_tokens_do_not_matter(case, random):
    p, draft = case
    if isinstance(draft, drafts.TopThenSample):
        # Ties for Top are broken by the token's number, so that only q without ties is free of names.
        assume(np.unique(draft.q).size == draft.q.size)
    names = np.arange(p.size)
    random.shuffle(names)
    if draft.name == "joint":
        renamed = drafts.Joint(draft.table[np.ix_(*[names] * draft.n)])
    elif draft.name == "independent":
        renamed = drafts.Independent(draft.qs[:, names])
    else:
        top = {"top": draft.top} if draft.name == "top-then-sample" else {}
        renamed = drafts.make(draft.name, draft.q[names], n=draft.n, **top)
    assert abs(optimal_acceptance(p[names], renamed).rate - optimal_acceptance(p, draft).rate) <= 1e-12


@SOME
@given(exact_drafted())
def test_certain_acceptance_exactly_where_no_set_has_less_target_than_draft_mass(case):
    p, draft = case
    covered = (target_masses(p) >= Draft.all_subset_masses(draft)).all()
    assert (optimal_acceptance(p, draft).rate == 1) == covered


@pytest.mark.parametrize("sampler", Q_CONVEX)
def test_fractions_of_more_tokens_than_are_enumerated(sampler):
    rng = np.random.default_rng(3)
    p, q = (np.array([Fraction(int(w), 1) for w in rng.integers(0, 20, 14)]) for _ in range(2))
    p, q = p / p.sum(), q / q.sum()
    n = 2 if sampler in ("spechub", "without-replacement") else 3
    top = {"top": 1} if sampler == "top-then-sample" else {}
    exact = optimal_acceptance(p, drafts.make(sampler, q, n=n, **top)).rate
    floats = optimal_acceptance(p.astype(float), drafts.make(sampler, q.astype(float), n=n, **top)).rate
    assert isinstance(exact, Fraction)
    assert abs(float(exact) - floats) <= 1e-12
    assert 0.5 < floats < 1


@SOME
@given(exact_drafted())
def test_fractions_stay_exact_and_agree_with_floats(case):
    p, draft = case
    exact = optimal_acceptance(p, draft)
    assert isinstance(exact.rate, (Fraction, int))
    assert exact.rate == enumerated_rate(p, draft)
    as_floats = {"q": np.asarray(draft.q, dtype=float)}
    if draft.name == "joint":
        same = drafts.Joint(draft.table.astype(float))
    elif draft.name == "independent":
        same = drafts.Independent(draft.qs.astype(float))
    else:
        top = {"top": draft.top} if draft.name == "top-then-sample" else {}
        same = drafts.make(draft.name, **as_floats, n=draft.n, **top)
        # Fractions tell apart what rounds to a tie.
        assume(not isinstance(draft, drafts.TopThenSample) or list(same.top_tokens) == list(draft.top_tokens))
    assert abs(optimal_acceptance(p.astype(float), same).rate - float(exact.rate)) <= 1e-12


@settings(max_examples=60, deadline=None)
@given(st.data(), st.sampled_from(Q_CONVEX), st.integers(1, 4), st.integers(0, 2))
def test_batch_equals_single(data, sampler, n, top):
    if sampler == "spechub":
        n = 2
    top = {"top": min(top, n)} if sampler == "top-then-sample" else {}
    size = data.draw(st.integers(1, 6))
    rows = data.draw(st.lists(pairs(size, size), min_size=1, max_size=4))
    p, q = np.array([row[0] for row in rows]), np.array([row[1] for row in rows])
    batch = optimal_acceptance_batch(p, q, n=n, sampler=sampler, **top)
    for k in range(len(rows)):
        draft = drafts.make(sampler, q[k], n=n, **top)
        assert abs(batch.rate[k] - optimal_acceptance(p[k], draft).rate) <= 1e-12
        subset = batch.subset[k]
        assert abs(batch.rate[k] - (1 + p[k][subset].sum() - draft.subset_mass(subset))) <= 1e-12


@settings(max_examples=40, deadline=None)
@given(
    st.lists(SUBNORMAL, min_size=5, max_size=5),
    st.lists(SUBNORMAL, min_size=5, max_size=5),
    st.sampled_from(Q_CONVEX),
    st.integers(1, 4),
)
def test_everything_holds_at_the_end_of_float64(p, q, sampler, n):
    """alpha*, alone and in a batch, and every verifier's output and rate, with masses down to 5e-324."""
    p, q = np.array(p), np.array(q)
    assume(min(p.sum(), q.sum()) > 0.4)
    p, q = p / p.sum(), q / q.sum()
    n = 2 if sampler == "spechub" else n
    top = {"top": n // 2} if sampler == "top-then-sample" else {}
    draft = drafts.make(sampler, q, n=n, **top)
    best = enumerated_rate(p, draft)
    assert abs(optimal_acceptance(p, draft).rate - best) <= 1e-12
    batch = optimal_acceptance_batch(p[None], q[None], n=n, sampler=sampler, **top)
    assert abs(batch.rate[0] - best) <= 1e-12
    tokens, probability = draft.joint()
    rng = np.random.default_rng(0)
    for name in verifiers.NAMES:
        verifier = verifiers.make(name)
        if verifier.refusal(draft):
            continue
        state = verifier.prepare(p, draft)
        kernels = np.array([verifier.kernel(p, draft, x, state) for x in tokens])
        np.testing.assert_allclose(probability @ kernels, p, rtol=0, atol=1e-10, err_msg=name)
        accepted = probability @ [verifier.acceptance(p, draft, x, state) for x in tokens]
        assert abs(accepted - verifier.acceptance_rate(p, draft)) <= 1e-12, name
        for x in draft.sample(rng, 3):
            assert p[verifier.verify(p, draft, x, rng, state)] > 0, name


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_strategies_reach_every_sampler(sampler):
    """The strategy the laws rest on does draw what it is asked for."""

    @settings(max_examples=20, deadline=None)
    @given(distributions().flatmap(lambda q: drafts_of(q, (sampler,))))
    def law(draft):
        assert draft.name == sampler
        assert abs(draft.joint()[1].sum() - 1) <= 1e-12

    law()


@pytest.mark.parametrize("tail", [1e-20, 1e-151, 1e-310])
def test_a_tail_that_rounding_hides_keeps_the_minorant_lossless(tail):
    """q' beyond H* below the resolution of 1: 1 - h^m must not become 0, in the kernel and in `verify` alike."""
    p, q = np.array([0.15, 0.0, 0.85]), np.array([tail, 0.5, 0.5])
    draft, verifier = drafts.WithReplacement(q, 3), verifiers.ConvexMinorant()
    state = verifier.prepare(p, draft)
    tokens, probability = draft.joint()
    kernels = np.array([verifier.kernel(p, draft, x, state) for x in tokens])
    np.testing.assert_allclose(probability @ kernels, p, rtol=0, atol=1e-12)
    rng = np.random.default_rng(0)
    emitted = [verifier.verify(p, draft, x, rng, state) for x in draft.sample(rng, 4000)]
    # Hoeffding: off by 0.06 in one of 3 entries with probability below 6 exp(-2 * 4000 * 0.06^2) < 1e-11.
    np.testing.assert_allclose(np.bincount(emitted, minlength=3) / len(emitted), p, rtol=0, atol=0.06)

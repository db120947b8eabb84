"""The linear programs are the oracle: primal = dual = MILP = optimal_acceptance for every sampler, and the optimal
coupling is a lossless verifier.
"""

import sys
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings

from mdsd_theory import certificate, drafts, optimal_acceptance, transport, verifiers
from mdsd_theory.flow import draft_sets, maximum_flow
from tests.theory.strategies import SAMPLERS, drafted

FEW = settings(max_examples=15, deadline=None)
MANY = settings(max_examples=120, deadline=None)
EVERY_SAMPLER = pytest.mark.parametrize("sampler", SAMPLERS)
A_P, A_Q = np.array([0.3, 0.4, 0.3]), np.array([0.6, 0.3, 0.1])


def tolerance(p, draft):
    """What the solver states: every marginal may be off by TOLERANCE, and no potential exceeds 1."""
    return transport.TOLERANCE * (len(draft.joint()[0]) + p.size) + 1e-13


def value_tolerance(p, draft):
    """Beside the marginals, potentials may be off by the solver's own tolerance, each times a mass; masses sum to 1."""
    return tolerance(p, draft) + transport.POTENTIAL_TOLERANCE


def drafted_by(sampler):
    return drafted((sampler,), max_size=5, max_n=3)


@EVERY_SAMPLER
def test_primal_dual_milp_and_optimal_acceptance_agree(sampler):
    @FEW
    @given(drafted_by(sampler))
    def law(case):
        p, draft = case
        best = optimal_acceptance(p, draft).rate
        for solve in (transport.primal, transport.dual, transport.subset_milp):
            solution = solve(p, draft)
            assert solution.status == "optimal"
            assert abs(solution.value - best) <= value_tolerance(p, draft), solve.__name__

    law()


@EVERY_SAMPLER
def test_optimal_coupling_is_a_lossless_verifier_and_certified(sampler):
    @FEW
    @given(drafted_by(sampler))
    def law(case):
        p, draft = case
        coupling = transport.primal(p, draft).coupling
        _, probability = draft.joint()
        assert coupling.min() >= -transport.TOLERANCE
        np.testing.assert_allclose(coupling.sum(axis=0), p, rtol=0, atol=tolerance(p, draft))
        np.testing.assert_allclose(coupling.sum(axis=1), probability, rtol=0, atol=tolerance(p, draft))
        best = optimal_acceptance(p, draft)
        proof = certificate(p, draft, coupling, best.subset)
        assert proof.optimal
        assert abs(proof.lower - best.rate) <= value_tolerance(p, draft)

    law()


@EVERY_SAMPLER
def test_dual_rounds_to_a_set_at_every_threshold(sampler):
    @FEW
    @given(drafted_by(sampler))
    def law(case):
        p, draft = case
        best, solution = optimal_acceptance(p, draft).rate, transport.dual(p, draft)
        levels = np.unique(np.concatenate([[0.0, 1.0], solution.target_potential]))
        for low, high in pairwise(levels):
            # The value is the average over thresholds; a gap of width w can hide an excess of tolerance / w.
            subset = solution.rounded((low + high) / 2)
            value = 1 + p[subset].sum() - draft.subset_mass(subset)
            assert value >= best - 1e-13
            assert value - best <= value_tolerance(p, draft) / (high - low)

    law()


@EVERY_SAMPLER
def test_milp_set_is_a_minimiser(sampler):
    @FEW
    @given(drafted_by(sampler))
    def law(case):
        p, draft = case
        subset = transport.subset_milp(p, draft).subset
        value = 1 + p[subset].sum() - draft.subset_mass(subset)
        assert abs(value - optimal_acceptance(p, draft).rate) <= value_tolerance(p, draft)

    law()


def test_a_coupling_that_is_not_optimal_is_not_certified():
    draft = drafts.WithReplacement(A_Q, 2)
    tokens, probability = draft.joint()
    naive = probability[:, None] * A_P
    assert not certificate(A_P, draft, naive, optimal_acceptance(A_P, draft).subset).optimal
    with pytest.raises(ValueError, match="coupling: a marginal differs from p"):
        certificate(A_P, draft, probability[:, None] * A_Q, [0])
    assert len(tokens) == 9


@pytest.mark.parametrize(
    ("draft", "best"),
    [
        (drafts.WithReplacement(A_Q, 2), 0.89),
        (drafts.WithReplacement(A_Q, 3), 0.971),
        (drafts.WithoutReplacement(A_Q, 2), 139 / 140),
        (drafts.Greedy(A_Q, 2), 0.95),
    ],
)
def test_reference_pair(draft, best):
    for solve in (transport.primal, transport.dual, transport.subset_milp):
        assert solve(A_P, draft).value == pytest.approx(best, abs=1e-12)
    assert verifiers.TransportPlan().acceptance_rate(A_P, draft) == pytest.approx(best, abs=1e-13)


def test_too_large_is_refused_with_the_numbers():
    q = np.full(60, 1 / 60)
    with pytest.raises(ValueError, match=r"draft: 216,000 tuples and 60 tokens make 12,960,000 variables"):
        transport.primal(q, drafts.WithReplacement(q, 3))
    with pytest.raises(ValueError, match="joint"):
        verifiers.TransportPlan().prepare(q, drafts.WithReplacement(q, 8))
    with pytest.raises(ValueError, match="p: 59 entries"):
        transport.dual(q[:59] * 60 / 59, drafts.WithReplacement(q, 2))


def test_missing_cvxpy_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "cvxpy", None)
    with pytest.raises(ImportError, match=r"pip install 'mdsd\[lp\]'"):
        transport.primal(A_P, drafts.WithReplacement(A_Q, 1))


@EVERY_SAMPLER
def test_transport_plan_is_lossless_and_optimal(sampler):
    @MANY
    @given(drafted((sampler,)))
    def law(case):
        p, draft = case
        verifier = verifiers.TransportPlan()
        state = verifier.prepare(p, draft)
        tokens, probability = draft.joint()
        kernels = np.array([verifier.kernel(p, draft, x, state) for x in tokens])
        acceptance = np.array([verifier.acceptance(p, draft, x, state) for x in tokens])
        assert kernels.min() >= 0.0
        np.testing.assert_allclose(kernels.sum(axis=1), 1.0, rtol=0, atol=1e-12)
        np.testing.assert_allclose(probability @ kernels, p, rtol=0, atol=1e-12)
        rate = verifier.acceptance_rate(p, draft)
        assert abs(probability @ acceptance - rate) <= 1e-12
        assert abs(rate - optimal_acceptance(p, draft).rate) <= 1e-12

    law()


def test_transport_plan_reads_the_drafts_as_a_set():
    verifier, draft = verifiers.TransportPlan(), drafts.WithReplacement(A_Q, 3)
    state = verifier.prepare(A_P, draft)
    first = verifier.kernel(A_P, draft, [0, 0, 1], state)
    for tokens in ([0, 1, 0], [1, 0, 0], [1, 1, 0]):
        np.testing.assert_array_equal(verifier.kernel(A_P, draft, tokens, state), first)
    keys, sets, members, mass = draft_sets(*draft.joint())
    assert sorted(keys) == [(0,), (0, 1), (0, 1, 2), (0, 2), (1,), (1, 2), (2,)]
    assert [tuple(members[sets == s]) for s in range(len(keys))] == keys
    assert mass.sum() == pytest.approx(1.0, abs=1e-15)
    assert mass[keys.index((0, 1, 2))] == pytest.approx(6 * 0.6 * 0.3 * 0.1, abs=1e-16)


def test_flow_obeys_its_bounds_and_finds_a_known_maximum():
    sets, tokens = np.array([0, 0, 1]), np.array([0, 1, 1])
    flow = maximum_flow(sets, tokens, np.array([0.5, 0.25]), np.array([0.125, 0.5]))
    assert flow.sum() == pytest.approx(0.625, abs=1e-15)
    assert maximum_flow(sets[:0], tokens[:0], np.array([0.5]), np.array([1.0])).size == 0

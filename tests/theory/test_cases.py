"""Exact rational values of small cases, and small inputs at which others' code has gone wrong, with the right answers.

`tests/data/small_vocab.json`: 80 random cases of up to 7 tokens, optima and rates as exact fractions (K-SEQ in floating
point).
"""

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from mdsd_theory import drafts, optimal_acceptance, probabilities, verifiers
from mdsd_theory.distributions import pad_vocabulary

CASES = json.loads((Path(__file__).parents[1] / "data" / "small_vocab.json").read_text())["cases"]
A_P, A_Q = np.array([0.3, 0.4, 0.3]), np.array([0.6, 0.3, 0.1])
WITH, WITHOUT, GREEDY = "with-replacement", "without-replacement", "greedy"


def fractions(values):
    exact = np.empty(np.shape(values), dtype=object)
    exact[...] = np.vectorize(Fraction, otypes=[object])(values)
    return exact


def drafts_of_case(case, number):
    """The case's drafts by the names of its table; `number` makes arrays of Fractions or of floats."""
    q, n = number(case["q"]), case["n"]
    return {
        "with_replacement": drafts.WithReplacement(q, n),
        "without_replacement": drafts.WithoutReplacement(q, n),
        "greedy": drafts.Greedy(q, n),
        "independent": drafts.Independent(number(case["independent_q"])),
    }


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_exact_optima_and_rates(case):
    p, exact = fractions(case["p"]), drafts_of_case(case, fractions)
    floats = drafts_of_case(case, lambda values: fractions(values).astype(float))
    for name, best in case["optimal"].items():
        assert optimal_acceptance(p, exact[name]).rate == Fraction(best), name
        assert abs(optimal_acceptance(p.astype(float), floats[name]).rate - float(Fraction(best))) <= 1e-12, name
    rrs = verifiers.RecursiveRejection()
    for name in ("with_replacement", "without_replacement"):
        rate = Fraction(case["verifier"][f"rrs_{name}"])
        assert rrs.acceptance_rate(p, exact[name]) == rate, name
        assert abs(rrs.acceptance_rate(p.astype(float), floats[name]) - float(rate)) <= 1e-12, name
    kseq = verifiers.KSeq().acceptance_rate(p.astype(float), floats["with_replacement"])
    assert abs(kseq - case["verifier"]["kseq"]) <= 1e-12


def output(verifier, p, draft):
    """The law of the emitted token, by enumeration."""
    state = verifier.prepare(p, draft)
    return sum(w * verifier.kernel(p, draft, x, state) for x, w in zip(*draft.joint(), strict=True))


def serving(draft):
    return [v for v in map(verifiers.make, verifiers.NAMES) if v.refusal(draft) is None]


@pytest.mark.parametrize(
    ("n", "with_best", "rrs_with", "kseq", "gamma", "without_best", "rrs_without", "greedy_best"),
    [
        (1, 0.7, 0.7, 0.7, 1.0, 0.7, 0.7, 0.7),
        (2, 0.89, 0.82, 0.84, 1.4, 139 / 140, 0.875, 0.95),
        (3, 0.971, 0.848, 0.875, 1.75, 1.0, 1.0, 1.0),
    ],
)
def test_reference_pair(n, with_best, rrs_with, kseq, gamma, without_best, rrs_without, greedy_best):
    rrs = verifiers.RecursiveRejection()
    replaced, distinct = drafts.WithReplacement(A_Q, n), drafts.WithoutReplacement(A_Q, n)
    found = [
        optimal_acceptance(A_P, replaced).rate,
        rrs.acceptance_rate(A_P, replaced),
        verifiers.KSeq().acceptance_rate(A_P, replaced),
        verifiers.KSeq().prepare(A_P, replaced).gamma,
        optimal_acceptance(A_P, distinct).rate,
        rrs.acceptance_rate(A_P, distinct),
        optimal_acceptance(A_P, drafts.Greedy(A_Q, n)).rate,
    ]
    wanted = [with_best, rrs_with, kseq, gamma, without_best, rrs_without, greedy_best]
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-12)


def test_certain_drafts_are_point_masses_and_not_samples_of_q():
    p, draft = [0.6, 0.2, 0.1, 0.1], drafts.TopThenSample([0.4, 0.3, 0.2, 0.1], 2, 2)
    assert draft.joint()[0].tolist() == [[0, 1]]
    assert optimal_acceptance(p, draft).rate == pytest.approx(0.8, abs=1e-15)
    for verifier in (verifiers.Naive(), verifiers.Greedy(), verifiers.ConvexMinorant(), verifiers.TransportPlan()):
        assert verifier.acceptance_rate(p, draft) == pytest.approx(0.8, abs=1e-15)
        np.testing.assert_allclose(output(verifier, p, draft), p, rtol=0, atol=1e-15)


def test_drafts_without_replacement_need_their_own_rule():
    distinct = drafts.WithoutReplacement(A_Q, 2)
    for verifier in (verifiers.KSeq(), verifiers.ConvexMinorant()):
        with pytest.raises(ValueError, match="cannot serve without-replacement"):
            verifier.check(A_P, distinct)
    # What the refusal prevents: the i.i.d. rule, run blindly on these drafts.
    rrs, replaced = verifiers.RecursiveRejection(), drafts.WithReplacement(A_Q, 2)
    blind = sum(w * rrs.kernel(A_P, replaced, x) for x, w in zip(*distinct.joint(), strict=True))
    np.testing.assert_allclose(blind, [0.3, 0.525, 0.175], rtol=0, atol=1e-12)
    np.testing.assert_allclose(output(rrs, A_P, distinct), A_P, rtol=0, atol=1e-12)


def test_second_sibling_without_replacement():
    # Draft 0 is rejected with probability 1/2; then draft 1 is accepted with probability 4/9, draft 2 always.
    rrs, draft = verifiers.RecursiveRejection(), drafts.WithoutReplacement(A_Q, 2)
    np.testing.assert_allclose(rrs.kernel(A_P, draft, [0, 1]), [1 / 2, 1 / 2 * 4 / 9, 1 / 2 * 5 / 9], atol=1e-12)
    np.testing.assert_allclose(rrs.kernel(A_P, draft, [0, 2]), [1 / 2, 0, 1 / 2], rtol=0, atol=1e-12)


def test_temperature_belongs_to_every_law():
    law = probabilities([2.0, 1.0, 0.0], temperature=0.5)
    np.testing.assert_allclose(law, [0.8668, 0.1173, 0.0159], rtol=0, atol=5e-5)


def test_the_verifier_needs_the_q_that_was_sampled():
    single = verifiers.SingleDraft()
    one_hot, truncated = np.array([1.0, 0.0, 0.0]), probabilities(np.log(A_Q), top_k=2)
    np.testing.assert_allclose(truncated, [2 / 3, 1 / 3, 0], rtol=0, atol=1e-15)
    raw = drafts.WithReplacement(A_Q, 1)
    for sampled, mistake in ((one_hot, [0.5, 1 / 6, 1 / 3]), (truncated, [1 / 3, 4 / 9, 2 / 9])):
        draft = drafts.WithReplacement(sampled, 1)
        np.testing.assert_allclose(output(single, A_P, draft), A_P, rtol=0, atol=1e-15)
        wrong = sum(w * single.kernel(A_P, raw, x) for x, w in zip(*draft.joint(), strict=True))
        np.testing.assert_allclose(wrong, mistake, rtol=0, atol=1e-12)


def test_sixteen_bits_are_normalised_once_for_drawing_and_verifying():
    q = np.array([0.6, 0.3, 0.096], dtype=np.float16)
    draft = drafts.WithReplacement(q, 2)
    assert draft.q.sum() == pytest.approx(1.0, abs=1e-15)
    for verifier in serving(draft):
        np.testing.assert_allclose(output(verifier, A_P, draft), A_P, rtol=0, atol=1e-12)


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("sampler", [WITH, WITHOUT, GREEDY])
def test_vocabularies_of_different_length(sampler, n):
    p, q = [0.5, 0.25, 0.125, 0.125], [0.5, 0.25, 0.25]
    with pytest.raises(ValueError, match="p: 4 entries where its partner has 3"):
        optimal_acceptance(p, drafts.make(sampler, q, n=n))
    padded = drafts.make(sampler, pad_vocabulary(q, 4, "q"), n=n)
    assert optimal_acceptance(p, padded).rate == pytest.approx(7 / 8, abs=1e-12)


@pytest.mark.parametrize("sampler", [WITH, WITHOUT])
@pytest.mark.parametrize("nearly", [0.0, 1e-16])
def test_nothing_left_of_the_target(sampler, nearly):
    q = np.array([0.5, 0.3, 0.2])
    p, draft = q * (1 - nearly), drafts.make(sampler, q, n=2)
    for verifier in serving(draft):
        if verifier.name != "naive":
            assert verifier.acceptance_rate(p, draft) == pytest.approx(1.0, abs=1e-14), verifier.name
        assert np.isfinite(output(verifier, p, draft)).all()


def test_minus_infinity():
    np.testing.assert_array_equal(probabilities([-np.inf, 0.0, -np.inf]), [0, 1, 0])
    with pytest.raises(ValueError, match="logits"):
        probabilities([-np.inf, -np.inf])


@pytest.mark.parametrize(("n", "skipping"), [(2, [0.3, 0.45, 0.25]), (3, [0.3, 0.48, 0.22])])
def test_a_repeated_draft_is_tested_again(n, skipping):
    rrs, draft = verifiers.RecursiveRejection(), drafts.WithReplacement(A_Q, n)
    np.testing.assert_allclose(output(rrs, A_P, draft), A_P, rtol=0, atol=1e-12)
    wrong = 0
    for tokens, weight in zip(*draft.joint(), strict=True):
        once = list(dict.fromkeys(tokens.tolist()))
        wrong = wrong + weight * rrs.kernel(A_P, drafts.WithReplacement(A_Q, len(once)), once)
    np.testing.assert_allclose(wrong, skipping, rtol=0, atol=1e-12)


def test_ties_go_to_the_lowest_token():
    draft = drafts.Greedy([0.4, 0.4, 0.2], 2)
    assert draft.top_tokens.tolist() == [0]
    assert optimal_acceptance([0.1, 0.8, 0.1], draft).rate == pytest.approx(13 / 15, abs=1e-15)


@pytest.mark.parametrize("n", [2, 3])
def test_support_smaller_than_n(n):
    draft = drafts.WithoutReplacement([0.7, 0.3, 0, 0], n)
    assert draft.width == 2
    assert optimal_acceptance([0.4, 0.3, 0.2, 0.1], draft).rate == pytest.approx(0.7, abs=1e-15)


@pytest.mark.parametrize("sampler", [WITH, WITHOUT, GREEDY])
def test_disjoint_supports(sampler):
    p, draft = [1.0, 0, 0], drafts.make(sampler, [0, 0.5, 0.5], n=2)
    assert optimal_acceptance(p, draft).rate == 0
    for verifier in serving(draft):
        for tokens in draft.joint()[0]:
            np.testing.assert_array_equal(verifier.kernel(p, draft, tokens), p)


@pytest.mark.parametrize(("n", "rates"), [(1, (0.3, 0.3, 0.3)), (2, (0.51, 47 / 60, 0.75)), (3, (0.657, 1.0, 1.0))])
def test_one_hot_target(n, rates):
    for sampler, rate in zip((WITH, WITHOUT, GREEDY), rates, strict=True):
        assert optimal_acceptance([0, 1.0, 0], drafts.make(sampler, A_Q, n=n)).rate == pytest.approx(rate, abs=1e-12)


def test_exact_answers_are_fractions_even_where_they_are_whole():
    p, q = [Fraction(1), Fraction(0)], [Fraction(0), Fraction(1)]
    for draft in (drafts.WithReplacement(p, 2), drafts.WithReplacement(q, 2), drafts.Independent([p, q])):
        best = optimal_acceptance(p, draft)
        assert {type(x) for x in (best.rate, best.target_mass, best.draft_mass)} == {Fraction}
        assert type(draft.subset_mass([])) is Fraction

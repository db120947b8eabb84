"""Checking distributions at the door, and logits to probabilities."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from mdsd_theory import drafts, optimal_acceptance, optimal_acceptance_batch, probabilities
from mdsd_theory.distributions import distribution, pad_vocabulary

A_P, A_Q = np.array([0.3, 0.4, 0.3]), np.array([0.6, 0.3, 0.1])

BAD = {
    "nan": [0.5, np.nan, 0.5],
    "inf": [0.5, np.inf, 0.5],
    "negative": [0.6, -0.1, 0.5],
    "empty": [],
    "scalar": 0.5,
    "scalar one": 1.0,
    "two-dimensional": [[0.5, 0.5]],
    "half": [0.25, 0.25],
    "too much": [0.6, 0.5],
    "text": ["a", "b"],
    "objects": np.array([None, 1.0], dtype=object),
    "ragged": [[0.5], [0.25, 0.25]],
    "complex": [0.5 + 0j, 0.5],
    "bool": [True, False],
    "structured": np.zeros(2, dtype=[("a", float)]),
    "float16 off": np.array([0.5, 0.45], dtype=np.float16),
    "float32 off": np.array([0.5, 0.499], dtype=np.float32),
    "float objects": np.array([Fraction(1, 2), 0.5], dtype=object),
    "fractions off": [Fraction(1, 2), Fraction(1, 3)],
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_every_door_refuses_what_is_no_distribution_and_names_it(bad):
    good = drafts.WithReplacement([0.5, 0.5], 2)
    with pytest.raises(ValueError, match=r"^p\b"):
        optimal_acceptance(bad, good)
    for build in (
        lambda: drafts.WithReplacement(bad, 2),
        lambda: drafts.WithoutReplacement(bad, 2),
        lambda: drafts.Greedy(bad, 2),
        lambda: drafts.TopThenSample(bad, 2, 1),
        lambda: drafts.SpecHub(bad),
    ):
        with pytest.raises(ValueError, match=r"^q\b"):
            build()
    with pytest.raises(ValueError, match=r"^qs\[1\]"):
        drafts.Independent([[0.5, 0.5], bad])


@pytest.mark.parametrize("n", [0, -1, 1.5, True, "2", None])
def test_number_of_drafts_is_checked(n):
    for build in (drafts.WithReplacement, drafts.WithoutReplacement, drafts.Greedy):
        with pytest.raises(ValueError, match=r"^n: "):
            build(A_Q, n)
    with pytest.raises(ValueError, match=r"^top: "):
        drafts.TopThenSample(A_Q, 2, 3)


def test_vocabularies_of_different_length_are_refused_and_padded_on_request():
    p, q = [0.5, 0.25, 0.125, 0.125], [0.5, 0.25, 0.25]
    with pytest.raises(ValueError, match=r"^p: 4 entries where its partner has 3"):
        optimal_acceptance(p, drafts.WithReplacement(q, 2))
    padded = pad_vocabulary(q, 4, "q")
    for n in (1, 2, 3):
        for sampler in ("with-replacement", "without-replacement", "greedy"):
            assert optimal_acceptance(p, drafts.make(sampler, padded, n=n)).rate == pytest.approx(7 / 8, abs=1e-15)
    with pytest.raises(ValueError, match=r"^q: 3 entries cannot be padded to 2"):
        pad_vocabulary(q, 2, "q")


def test_sixteen_bit_softmax_is_normalised_once():
    """bfloat16-like rounding leaves a sum of .996: the array that draws is the array that verifies."""
    q = np.array([0.4, 0.3, 0.296], dtype=np.float16)
    draft = drafts.WithReplacement(q, 2)
    assert draft.q.dtype == np.float64
    assert draft.q.sum() == pytest.approx(1.0, abs=1e-15)
    np.testing.assert_allclose(draft.q, q.astype(float) / q.astype(float).sum(), rtol=1e-15)
    with pytest.raises(ValueError, match=r"^q: sums to 0.996"):
        drafts.WithReplacement(np.array([0.4, 0.3, 0.296]), 2)


def test_torch_tensors_are_read():
    torch = pytest.importorskip("torch")
    for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
        q = distribution(torch.tensor([0.5, 0.25, 0.25], dtype=dtype), "q")
        np.testing.assert_array_equal(q, [0.5, 0.25, 0.25])


def attempt(call):
    """What a call returns and what its ValueError says: one of the two."""
    try:
        return call(), None
    except ValueError as error:
        return None, str(error)


any_array = hnp.arrays(
    dtype=st.sampled_from([np.float64, np.float32, np.float16, np.int64]),
    shape=hnp.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=5),
)


@settings(max_examples=400, deadline=None)
@given(any_array, any_array, st.integers(1, 5), st.sampled_from(["with-replacement", "without-replacement", "greedy"]))
def test_any_array_gives_a_right_answer_or_an_error_that_names_it(p, q, n, sampler):
    best, complaint = attempt(lambda: optimal_acceptance(p, drafts.make(sampler, q, n=n)))
    if complaint:
        assert complaint.split(":")[0] in ("p", "q")
        return
    rate = best.rate
    assert 0 <= rate <= 1
    p, q = (np.asarray(x, dtype=float) / np.asarray(x, dtype=float).sum() for x in (p, q))
    bounds = [np.minimum(p, q).sum(), 1.0]
    assert bounds[0] - 1e-9 <= rate or sampler == "greedy"


@settings(max_examples=200, deadline=None)
@given(any_array, any_array, st.integers(1, 4))
def test_any_batch_gives_an_answer_or_an_error_that_names_it(p, q, n):
    best, complaint = attempt(lambda: optimal_acceptance_batch(p, q, n))
    if complaint:
        assert complaint.split(":")[0] in ("p", "q", "p, q")
        return
    rate = best.rate
    assert ((rate >= 0) & (rate <= 1)).all()


def test_batch_errors_name_argument_and_row():
    p = np.array([[0.5, 0.5], [0.9, 0.2]])
    with pytest.raises(ValueError, match=r"^p: row 1 sums to 1.1"):
        optimal_acceptance_batch(p, np.full((2, 2), 0.5))
    with pytest.raises(ValueError, match=r"^q: row 0 has a NaN"):
        optimal_acceptance_batch(np.full((2, 2), 0.5), np.array([[np.nan, 1.0], [0.5, 0.5]]))
    with pytest.raises(ValueError, match=r"^p, q: shapes"):
        optimal_acceptance_batch(np.full((2, 2), 0.5), np.full((3, 2), 0.5))
    with pytest.raises(ValueError, match=r"^sampler: 'joint' has no batched form"):
        optimal_acceptance_batch(p, p, sampler="joint")
    with pytest.raises(ValueError, match=r"^top: "):
        optimal_acceptance_batch(p, p, sampler="greedy", top=1)


class TestProbabilities:
    def test_temperature(self):
        np.testing.assert_allclose(probabilities([2, 1, 0], 0.5), [0.8668, 0.1173, 0.0159], atol=5e-5)

    def test_zero_is_one_hot_at_the_lowest_of_equals(self):
        np.testing.assert_array_equal(probabilities([1.0, 3.0, 3.0], 0), [0, 1, 0])

    def test_minus_infinity(self):
        np.testing.assert_array_equal(probabilities([-np.inf, 4.0, -np.inf]), [0, 1, 0])

    @pytest.mark.parametrize(
        "bad", [[-np.inf, -np.inf], [np.nan, 0.0], [np.inf, 0.0], [], 3.0, [[0.0, 1.0], [np.nan, 0.0]], ["a"]]
    )
    def test_bad_logits(self, bad):
        with pytest.raises(ValueError, match=r"^logits"):
            probabilities(bad)

    @pytest.mark.parametrize(
        ("arguments", "name"),
        [
            ({"temperature": -0.1}, "temperature"),
            ({"temperature": np.nan}, "temperature"),
            ({"temperature": np.inf}, "temperature"),
            ({"top_k": 0}, "top_k"),
            ({"top_p": 0.0}, "top_p"),
            ({"top_p": 1.1}, "top_p"),
        ],
    )
    def test_bad_parameters(self, arguments, name):
        with pytest.raises(ValueError, match=rf"^{name}: "):
            probabilities([0.0, 1.0], **arguments)

    def test_top_k_takes_the_lowest_of_equals(self):
        np.testing.assert_allclose(probabilities(np.log([0.2, 0.4, 0.2, 0.2]), top_k=2), [1 / 3, 2 / 3, 0, 0])

    def test_top_p_keeps_the_smallest_set_that_reaches_it(self):
        p = np.log([0.1, 0.5, 0.3, 0.1])
        np.testing.assert_allclose(probabilities(p, top_p=0.5), [0, 1, 0, 0])
        np.testing.assert_allclose(probabilities(p, top_p=0.51), [0, 5 / 8, 3 / 8, 0])

    @pytest.mark.parametrize("filters", [{"top_k": 1}, {"top_p": 0.4}])
    @pytest.mark.parametrize("temperature", [0.0, 1e-300, 1.0, 1e300])
    def test_no_temperature_changes_which_token_is_most_probable(self, temperature, filters):
        np.testing.assert_array_equal(probabilities([-3.0, -1.5], temperature, **filters), [0, 1])

    @settings(max_examples=200, deadline=None)
    @given(
        hnp.arrays(np.float32, st.tuples(st.integers(1, 3), st.integers(1, 6)), elements=st.floats(-80, 80, width=32)),
        st.floats(0, 5),
        st.one_of(st.none(), st.integers(1, 6)),
        st.one_of(st.none(), st.floats(0.01, 1)),
    )
    def test_rows_are_distributions_and_independent(self, logits, temperature, top_k, top_p):
        p = probabilities(logits, temperature, top_k, top_p)
        np.testing.assert_allclose(p.sum(axis=-1), 1, atol=1e-12)
        assert (p >= 0).all()
        for row, alone in zip(p, logits, strict=True):
            np.testing.assert_array_equal(row, probabilities(alone, temperature, top_k, top_p))
        if top_k is not None:
            assert (np.count_nonzero(p, axis=-1) <= top_k).all()

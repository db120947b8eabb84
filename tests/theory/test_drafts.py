"""Samplers: what they draw follows their joint law, and Q is that law's mass on tuples inside H."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from mdsd_theory import drafts
from tests.theory.strategies import drafted

# 16 chi-square tests below: a false alarm in less than one of 10**7 runs.
LEVEL = 1e-9
Q = np.array([0.45, 0.25, 0.15, 0.15, 0.0])
PEAKED = np.array([1 - 1e-9, 2e-10, 3e-10, 5e-10])
SAMPLERS = [
    drafts.WithReplacement(Q, 3),
    drafts.WithoutReplacement(Q, 3),
    drafts.WithoutReplacement(Q, 9),
    drafts.WithoutReplacement(PEAKED, 2),
    drafts.Greedy(Q, 2),
    drafts.TopThenSample(Q, 4, 2),
    drafts.TopThenSample(Q, 2, 2),
    drafts.SpecHub(Q),
    drafts.Independent([Q, Q[::-1].copy()]),
    drafts.Joint(np.array([[0.1, 0.2, 0.0], [0.3, 0.0, 0.1], [0.0, 0.05, 0.25]])),
]


def goodness(drawn, tokens, probability):
    """p-value of drawn tuples against the joint law; 0 where an impossible tuple was drawn."""
    index = {tuple(x): k for k, x in enumerate(tokens.tolist())}
    if any(tuple(x) not in index for x in drawn.tolist()):
        return 0.0
    counts = np.bincount([index[tuple(x)] for x in drawn.tolist()], minlength=len(tokens))
    expected = probability * len(drawn)
    # Rare tuples are pooled so that the chi-square approximation holds.
    rare = expected < 5
    counts = np.append(counts[~rare], counts[rare].sum())
    expected = np.append(expected[~rare], expected[rare].sum())
    if expected[-1] == 0:
        counts, expected = counts[:-1], expected[:-1]
    return 1.0 if counts.size == 1 else stats.chisquare(counts, expected * (counts.sum() / expected.sum())).pvalue


@pytest.mark.parametrize("draft", SAMPLERS, ids=repr)
def test_samples_follow_the_joint_law(draft):
    drawn = draft.sample(np.random.default_rng(5), 20_000)
    assert drawn.dtype == np.int64
    assert drawn.shape == (20_000, draft.width)
    assert goodness(drawn, *draft.joint()) > LEVEL


def test_the_comparison_catches_a_wrong_sampler():
    """Independent draws with repeats thrown away jointly are no draw without replacement."""
    wrong = drafts.WithReplacement(Q, 3).sample(np.random.default_rng(5), 60_000)
    distinct = np.array([len(set(x)) == 3 for x in wrong.tolist()])
    assert goodness(wrong[distinct][:20_000], *drafts.WithoutReplacement(Q, 3).joint()) < LEVEL


@pytest.mark.parametrize("draft", SAMPLERS, ids=repr)
def test_same_generator_same_draws(draft):
    first, second = (draft.sample(np.random.default_rng(2), 50) for _ in range(2))
    np.testing.assert_array_equal(first, second)


@settings(max_examples=150, deadline=None)
@given(drafted(max_size=5, max_n=4), st.data())
def test_subset_mass_prefix_masses_and_inclusion_agree_with_the_joint_law(case, data):
    _, draft = case
    tokens, probability = draft.joint()
    assert probability.sum() == pytest.approx(1, abs=1e-12)
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=draft.vocab_size, max_size=draft.vocab_size)))
    inside = probability[mask[tokens].all(axis=1)].sum()
    assert draft.subset_mass(mask) == pytest.approx(inside, abs=1e-12)
    assert draft.subset_mass(np.flatnonzero(mask)) == pytest.approx(inside, abs=1e-12)
    order = np.array(data.draw(st.permutations(range(draft.vocab_size))))
    expected = [probability[np.isin(tokens, order[:j]).all(axis=1)].sum() for j in range(draft.vocab_size + 1)]
    np.testing.assert_allclose(draft.prefix_masses(order), expected, atol=1e-12)
    member = np.zeros(draft.vocab_size)
    for row, mass in zip(tokens, probability, strict=True):
        member[np.unique(row)] += mass
    np.testing.assert_allclose(draft.inclusion(), member, atol=1e-12)


def test_ties_go_to_the_lowest_token_when_drafting_and_verifying():
    draft = drafts.Greedy([0.4, 0.4, 0.2], 2)
    assert draft.top_tokens.tolist() == [0]
    assert (draft.sample(np.random.default_rng(0), 100)[:, 0] == 0).all()


def test_a_small_support_is_proposed_whole():
    q = [0.7, 0.3, 0, 0]
    for n in (2, 3, 9):
        assert sorted(drafts.WithoutReplacement(q, n).sample(np.random.default_rng(n), 1)[0]) == [0, 1]
        assert drafts.Greedy(q, n).width == 2
    assert drafts.WithReplacement(q, 9).width == 9


def test_a_large_vocabulary_without_replacement_draws_distinct_tokens():
    q = np.random.default_rng(0).dirichlet(np.full(50_000, 0.02))
    drawn = drafts.WithoutReplacement(q, 16).sample(np.random.default_rng(1), 200)
    assert all(len(set(x)) == 16 for x in drawn.tolist())
    assert (q[drawn] > 0).all()


@pytest.mark.parametrize("subset", [[0, 9], [-1], [0.5], np.ones(3, dtype=bool)])
def test_bad_subsets_are_named(subset):
    for draft in SAMPLERS[:3]:
        with pytest.raises(ValueError, match=r"^subset: "):
            draft.subset_mass(subset)


def test_enumeration_refuses_large_vocabularies():
    q = np.full(2000, 1 / 2000)
    for draft in (drafts.WithReplacement(q, 3), drafts.WithoutReplacement(q, 3), drafts.Independent([q] * 3)):
        with pytest.raises(ValueError, match=r"^joint: "):
            draft.joint()


@pytest.mark.parametrize("table", [[[0.5, 0.5]], [[0.5, 0.2], [0.2, 0.2]], [], 1.0])
def test_bad_tables_are_named(table):
    with pytest.raises(ValueError, match=r"^table: "):
        drafts.Joint(table)


def test_make_reads_names_and_parameters():
    assert drafts.make("top-then-sample", Q, n=3, top=1).top == 1
    assert drafts.make("spechub", Q, n=2).n == 2
    assert drafts.make("independent", [Q, Q], n=2).n == 2
    with pytest.raises(ValueError, match="n: 3; spechub here has n = 2"):
        drafts.make("spechub", Q, n=3)
    with pytest.raises(ValueError, match="top"):
        drafts.make("top-then-sample", Q, n=3)
    with pytest.raises(ValueError, match="top"):
        drafts.make("with-replacement", Q, n=3, top=1)

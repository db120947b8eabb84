"""The torch samplers draw what `mdsd_theory.drafts` says they draw."""

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from gpu.samplers import SAMPLERS, Sampler
from tests.gpu.strategies import distribution

P_VALUE = 1e-9  # false alarm rate of each statistical test

EVERY = [Sampler(name) for name in SAMPLERS if name != "top-then-sample"]
EVERY += [Sampler("top-then-sample", top) for top in (0, 1, 2)]
NAMES = [f"{sampler.name}:{sampler.top}" for sampler in EVERY]


def draw(sampler, q, n, size, seed=0):
    q = torch.from_numpy(q).expand(size, -1)
    u = torch.rand(size, n, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return sampler(q, n, u)


@pytest.mark.parametrize("sampler", EVERY, ids=NAMES)
@pytest.mark.parametrize("q", [[0.5, 0.2, 0.2, 0.1, 0.0], [0.9, 0.1, 0.0, 0.0, 0.0], [0.2, 0.4, 0.4, 0.0, 0.0]])
@pytest.mark.parametrize("n", [2, 3])
def test_drafts_have_the_theorys_joint_law(sampler, q, n):
    if sampler.name == "spechub" and n == 3:
        pytest.skip("SpecHub has two drafts")
    q = np.array(q)
    tokens, probability = sampler.theory(q, n).joint()
    size = 20_000
    drafts = draw(sampler, q, n, size)
    assert (drafts.count == tokens.shape[1]).all()
    seen = Counter(map(tuple, drafts.tokens[:, : tokens.shape[1]].tolist()))
    law = {tuple(x): 0.0 for x in tokens.tolist()}
    for x, mass in zip(tokens.tolist(), probability, strict=True):
        law[tuple(x)] += mass
    law = {x: mass for x, mass in law.items() if mass}
    assert seen.keys() <= law.keys()
    if len(law) > 1:
        assert chisquare([seen[x] for x in law], [size * mass for mass in law.values()]).pvalue > P_VALUE


def test_the_law_test_catches_a_wrong_sampler():
    q = np.array([0.5, 0.2, 0.2, 0.1])
    tokens, probability = Sampler("without-replacement").theory(q, 2).joint()
    drafts = draw(Sampler("with-replacement"), q, 2, 20_000).tokens.tolist()
    seen = Counter(tuple(x) for x in drafts if x[0] != x[1])
    total = sum(seen.values())
    observed = [seen[tuple(x)] for x in tokens.tolist()]
    assert chisquare(observed, total * probability).pvalue < P_VALUE


@settings(max_examples=50)
@given(q=distribution(7), n=st.integers(1, 7), seed=st.integers(0, 1000))
@pytest.mark.parametrize("sampler", EVERY, ids=NAMES)
def test_only_possible_tokens_are_drafted(sampler, q, n, seed):
    n = 2 if sampler.name == "spechub" else n
    drafts = draw(sampler, q, n, 3, seed)
    for tokens, count, leading in zip(drafts.tokens, drafts.count, drafts.leading, strict=True):
        real = tokens[:count].tolist()
        assert count == sampler.theory(q, n).width
        assert (q[real] > 0).all()
        assert (tokens[count:] == 0).all()
        assert 0 <= leading <= count
        if sampler.name not in ("with-replacement", "top-then-sample"):
            assert len(set(real)) == len(real)


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match="known: with-replacement"):
        Sampler("beam")
    with pytest.raises(ValueError, match="top"):
        Sampler("top-then-sample", -1)

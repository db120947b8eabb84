"""What drafters of every kind hold to: sessions like plain recomputation, drafts from the stated q, losslessness."""

import numpy as np
import pytest
import torch

from gpu.drafters.base import PADDED, ROOT_PARENT, UNEXPANDED
from gpu.samplers import Sampler
from tests.gpu.decoded_texts import P_VALUE, VOCABULARY, make_method, p_value
from tests.gpu.tiny_drafters import KINDS, features_of, root_logits


@pytest.mark.parametrize("kind", KINDS)
def test_cached_and_uncached_agree_after_rejections(target, every, kind):
    """Three texts of different lengths, trees with rejected branches, an accepted leaf, a row that is dropped."""
    drafter = every[kind]
    rng = np.random.default_rng(5)
    texts = [[3, 1, 4, 1, 5], [2, 7], [6]]
    session = drafter.begin([t[:-1] for t in texts], [features_of(target, t[:-1]) for t in texts])
    for step in range(6):
        batch = len(texts)
        roots = torch.tensor([[t[-1]] for t in texts])
        first = session.expand(roots, torch.full((batch, 1), ROOT_PARENT))
        for row, text in enumerate(texts):
            torch.testing.assert_close(first[row, 0], root_logits(drafter, target, text), atol=1e-4, rtol=1e-4)
        level = torch.from_numpy(rng.integers(0, VOCABULARY, (batch, 2)))
        parents = torch.zeros((batch, 2), dtype=torch.int64)
        parents[0, 1] = PADDED  # nodes 1 and 2; the first row has no node 2
        session.expand(level, parents)
        deeper = torch.from_numpy(rng.integers(0, VOCABULARY, (batch, 1)))
        session.expand(deeper, torch.ones((batch, 1), dtype=torch.int64))  # node 3 below node 1
        leaf, bonus = (int(x) for x in rng.integers(0, VOCABULARY, 2))
        outcomes = [
            ([0], [bonus]),
            ([0, 1], [int(level[0, 0]), bonus]),
            ([0, 1, 3], [int(level[0, 0]), int(deeper[0, 0]), bonus]),
            ([0, 1, 3, UNEXPANDED], [int(level[0, 0]), int(deeper[0, 0]), leaf, bonus]),
        ]
        paths, emitted = [], []
        for row in range(batch):
            path, tokens = outcomes[(step + row) % 4]
            own = [int(level[row, 0]), int(deeper[row, 0]), leaf][: len(path) - 1]
            paths.append(path)
            emitted.append([*own, tokens[-1]])
        grown = [text + new for text, new in zip(texts, emitted, strict=True)]
        features = [features_of(target, new[:-1])[len(text) - 1 :] for text, new in zip(texts, grown, strict=True)]
        session.commit(paths, emitted, features)
        texts = grown
        if step == 3:
            session.keep([2, 0])
            texts = [texts[2], texts[0]]


@pytest.mark.parametrize("kind", KINDS)
def test_drafts_are_drawn_from_the_stated_q(target, every, kind):
    """Chi-square of first draft tokens against the softmax of the drafter's logits; another law must be caught."""
    from scipy.stats import chisquare

    from gpu.distributions import Sampling, categorical

    text = [1, 5, 2]
    count = 4000
    session = every[kind].begin([text[:-1]] * count, [features_of(target, text[:-1])] * count)
    logits = session.expand(torch.full((count, 1), text[-1]), torch.full((count, 1), ROOT_PARENT))[:, 0]
    uniform = torch.rand(count, generator=torch.Generator().manual_seed(1))
    tokens = categorical(Sampling()(logits), uniform)
    seen = np.bincount(tokens.numpy(), minlength=VOCABULARY)
    q = torch.softmax(root_logits(every[kind], target, text).double(), -1).numpy()
    assert chisquare(seen, count * q / q.sum()).pvalue > P_VALUE
    wrong = np.roll(q, 1)
    assert chisquare(seen, count * wrong / wrong.sum()).pvalue < P_VALUE


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sampler", ["with-replacement", "without-replacement"])
def test_each_kind_is_lossless(target, every, tmp_path, kind, sampler):
    assert p_value(target, every[kind], make_method(tmp_path, Sampler(sampler), "rrs", "kary"), 2000) > P_VALUE

"""Mixtures of drafters: their weights, their q and their names."""

import pytest
import torch
from safetensors.torch import save_file

from gpu import drafters
from gpu.drafters import lens
from gpu.drafters.callable import CallableDrafter
from gpu.drafters.mixture import Mixture
from gpu.drafters.ngram import NGram
from tests.gpu.tiny_drafters import root_logits


def test_mixture_weights_sum_to_one_and_make_q(target, every):
    logits = [torch.randn(2, 3, 8, generator=torch.Generator().manual_seed(i)) * 4 for i in range(3)]
    q, weights = every["confident-mixture"].combine(logits)
    torch.testing.assert_close(weights.sum(0), torch.ones(2, 3))
    torch.testing.assert_close(q.exp().sum(-1), torch.ones(2, 3))
    laws = [torch.softmax(z, -1) for z in logits]
    raw = [w * law.max(-1).values ** 2 for w, law in zip((1, 1, 2), laws, strict=True)]
    expected = sum(r[..., None] * law for r, law in zip(raw, laws, strict=True)) / sum(raw)[..., None]
    torch.testing.assert_close(q.exp(), expected)
    fixed = Mixture(every["confident-mixture"].drafters, [1, 1, 2])
    torch.testing.assert_close(fixed.combine(logits)[0].exp(), (laws[0] + laws[1] + 2 * laws[2]) / 4)


def test_mixture_gives_tokens_a_shorter_vocabulary_lacks_probability_zero(target):
    short = CallableDrafter(lambda texts: torch.zeros(len(texts), 4), 4)
    q = torch.softmax(root_logits(Mixture([short, NGram(8, 2)], [1, 1]), target, [1, 2]), -1)
    ngram = torch.softmax(root_logits(NGram(8, 2), target, [1, 2]), -1)
    torch.testing.assert_close(q, ngram / 2 + torch.tensor([0.125] * 4 + [0.0] * 4))


@pytest.mark.parametrize("weights", [[1.0], [1.0, 0.0], [1.0, -1.0], [float("nan"), 1.0], [float("inf"), 1.0]])
def test_impossible_mixtures_are_refused(weights):
    with pytest.raises(ValueError, match="weight"):
        Mixture([NGram(8, 2), NGram(8, 3)], weights)


def test_mixture_by_name(target, tmp_path):
    mixture = drafters.make("mixture:3*ngram:2+1*ngram:3^0.5", target)
    assert (mixture.weights, mixture.confidence) == ([0.75, 0.25], 0.5)
    for spec in ("mixture:", "mixture:ngram:2", "mixture:x*ngram:2", "mixture:0*ngram:2"):
        with pytest.raises(ValueError, match="mixture:"):
            drafters.make(spec, target)
    file = tmp_path / "a+b.safetensors"
    save_file(lens.packed(torch.zeros(32, 33), 1), file, {"kind": "lens"})
    assert len(drafters.make(f"mixture:0.5*lens:{file}+0.5*ngram:3", target).drafters) == 2

"""Speed of the decoding layer's parts on this machine, bundled model or its vocabulary: pytest tests/benchmarks."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from gpu import trees, verification  # noqa: E402
from gpu.attention import Reader  # noqa: E402
from gpu.bounds import optimal_acceptance  # noqa: E402
from gpu.models import load_target  # noqa: E402
from gpu.samplers import Sampler  # noqa: E402

VOCABULARY = 49_152
PAIRS = [
    "with-replacement naive", "with-replacement rrs", "without-replacement rrs", "with-replacement kseq",
    "greedy greedy", "with-replacement convex-minorant", "top-then-sample:1 convex-minorant",
]  # fmt: skip


def pair(rows):
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(rows, VOCABULARY, generator=generator)
    return logits.softmax(-1), (logits + torch.randn(logits.shape, generator=generator)).softmax(-1)


@pytest.mark.parametrize("spec", PAIRS)
def test_verify_one_node(benchmark, spec):
    (p, q), (sampler, verifier) = pair(1), spec.split()
    sampler = Sampler.parse(sampler)
    u = torch.rand(1, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    law, drafts = verification.make(verifier, sampler, trees.kary(4, 1)), sampler(q, 4, u)
    assert benchmark(law, p, drafts, u[:, 0]).shape == p.shape


@pytest.mark.parametrize("sampler", ["with-replacement", "without-replacement", "greedy", "top-then-sample:1"])
def test_draw_one_nodes_children(benchmark, sampler):
    u = torch.rand(1, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    assert benchmark(Sampler.parse(sampler), pair(1)[1], 4, u).tokens.shape == (1, 4)


def test_alpha_of_sixteen_positions(benchmark):
    assert benchmark(optimal_acceptance, *pair(16), 4).shape == (16,)


@pytest.fixture(scope="module")
def model():
    return load_target(None).model


@pytest.mark.parametrize("tree", ["plain", "chain:4", "eagle-sparse", "kary:2x4"])
def test_target_pass(benchmark, model, tree):
    """One pass over a whole tree after a text of 200 tokens."""
    tree = trees.parse(tree)
    rng = np.random.default_rng(0)
    reader = Reader(model, 1)
    reader.read_texts([rng.integers(100, 40_000, 200).tolist()])
    tokens = torch.from_numpy(rng.integers(100, 40_000, (1, tree.size)))
    depths, visible = torch.tensor([tree.depths]), torch.from_numpy(tree.ancestors)[None]

    def one_pass():
        reader.read(tokens, depths, visible)
        reader.keep_columns([[]])

    benchmark.pedantic(one_pass, rounds=15, warmup_rounds=2)

"""Speed of the decoding layer on this machine: its parts at the bundled model's vocabulary, the whole with that model.

`pytest tests/benchmarks/test_decoding.py -s` prints the figures. What is compared runs alternately.
"""

from functools import partial

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from gpu import drafters, trees, verification  # noqa: E402
from gpu.attention import Reader  # noqa: E402
from gpu.benchmark import answer, assisted_generation, plain_beside  # noqa: E402
from gpu.bounds import optimal_acceptance  # noqa: E402
from gpu.comparison import compare  # noqa: E402
from gpu.method import Method  # noqa: E402
from gpu.models import load_target  # noqa: E402
from gpu.prompts import DEMO, read_questions  # noqa: E402
from gpu.records import PHASES  # noqa: E402
from gpu.samplers import Sampler  # noqa: E402
from tests.benchmarks.timing import fastest  # noqa: E402

VOCABULARY = 49_152
PAIRS = [
    "with-replacement naive", "with-replacement rrs", "without-replacement rrs", "with-replacement kseq",
    "greedy greedy", "with-replacement convex-minorant", "top-then-sample:1 convex-minorant",
]  # fmt: skip

METHODS = [
    "chain:1 with-replacement single-draft", "chain:4 with-replacement single-draft",
    "kary:2x2 without-replacement rrs", "eagle-sparse without-replacement rrs",
    "eagle-sparse top-then-sample:1 convex-minorant",
]  # fmt: skip
QUESTIONS, FIRST_TOKENS, MAX_TOKENS, DRAFTS = read_questions(DEMO), 8, 40, 4


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
def target():
    return load_target(None, device="cpu")


def test_cost_of_a_tree_pass(target):
    """One pass over all tokens of a tree after a text of 200 tokens, against one over a single token."""
    rng, calls = np.random.default_rng(0), {}
    for name in ("plain", "chain:4", "eagle-sparse", "kary:2x4"):
        tree, reader = trees.parse(name), Reader(target.model, 1)
        reader.read_texts([rng.integers(100, 40_000, 200).tolist()])
        tokens = torch.from_numpy(rng.integers(100, 40_000, (1, tree.size)))
        calls[name] = partial(one_pass, reader, tokens, torch.tensor([tree.depths]), torch.tensor(tree.ancestors)[None])
    seconds = fastest(calls)
    for name, spent in seconds.items():
        size, ratio = trees.parse(name).size, spent / seconds["plain"]
        print(f"\npass over {size:2} tokens ({name}): {1e3 * spent:.1f} ms, {ratio:.2f} times one token's")


def one_pass(reader, tokens, depths, visible):
    reader.read(tokens, depths, visible)
    reader.keep_columns([[]])


def test_trees_against_plain_decoding(target):
    """Every method on the same questions, turn by turn, with the bundled drafter at temperature 1.

    Verification and bookkeeping are below a tenth of the time of a step of eagle-sparse.
    """
    methods = plain_beside([Method.parse(spec, temperature=1.0) for spec in METHODS])
    turns = answer(target, drafters.make("bundled", target), QUESTIONS, methods, MAX_TOKENS, seed=0, bounds=False)
    rows = compare([turn for answered in turns for turn in answered.turns], by_category=False)
    shares = {}
    for row in rows:
        s = row.summary
        total = sum(s.seconds[phase] for phase in PHASES)
        split = ", ".join(f"{phase} {100 * s.seconds[phase] / total:.1f} %" for phase in PHASES)
        shares[row.method] = (s.seconds["verify"] + s.seconds["bookkeeping"]) / total
        print(f"\n{row.method}: block efficiency {s.block_efficiency.value:.2f}, speed-up {row.speedup.value:.2f} "
              f"[{row.speedup.low:.2f}, {row.speedup.high:.2f}]; {split}")  # fmt: skip
    assert all(share < 0.1 for method, share in shares.items() if "eagle-sparse" in method)


def test_chain_against_assisted_generation(target):
    """The same drafter and draft length at temperature 0, where both emit the same tokens: only the loops differ.

    Ours reads the prompt in a pass of its own, assisted generation together with the first drafts, so the first tokens
    are told apart from those that follow.
    """
    drafter = drafters.make("early-exit:24", target)
    method = Method.make(f"chain:{DRAFTS}", "with-replacement", "single-draft", temperature=0.0)
    seconds, passes = {}, {}
    for size in (FIRST_TOKENS, MAX_TOKENS):
        assisted = assisted_generation(target, drafter, method, DRAFTS, size, seed=0)
        turns = answer(target, drafter, QUESTIONS, [method], size, seed=0, bounds=False, assisted=assisted)
        turns = [turn for answered in turns for turn in answered.turns]
        texts = [[turn.record for turn in turns if turn.method == name] for name in (method.name, "assisted")]
        assert [record.tokens for record in texts[0]] == [record.tokens for record in texts[1]]
        seconds[size] = np.array([[sum(record.seconds.values()) for record in records] for records in texts])
        passes[size] = [sum(record.target_passes for record in records) for records in texts]
    whole, after = seconds[MAX_TOKENS], seconds[MAX_TOKENS] - seconds[FIRST_TOKENS]
    for name, (ours, theirs) in (("prompt and all", whole), (f"tokens after the first {FIRST_TOKENS}", after)):
        ratios = theirs / ours
        spread = f"median of {len(ratios)} texts, {ratios.min():.2f} to {ratios.max():.2f}"
        print(f"\nassisted generation takes {np.median(ratios):.2f} times the chain's time, {name} ({spread})")
    print("target passes: {} of the chain, {} of assisted generation".format(*passes[MAX_TOKENS]))
    assert np.median(whole[1] / whole[0]) >= 1

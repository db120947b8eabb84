"""Block efficiency on recorded trees: chain identity, enumeration of a Markov pair, recursion against random walks."""

import numpy as np
import pytest
from scipy.stats import norm

from mdsd_theory import drafts, verifiers
from simulation.traces import Trace, TraceWriter
from simulation.trees import WALKS, block_efficiency

FALSE_ALARM = 1e-9
Z = norm.isf(FALSE_ALARM / 2)
V = 4
RNG = np.random.default_rng(11)
TARGET, DRAFT = RNG.dirichlet(np.ones(V), V + 1), RNG.dirichlet(np.ones(V), V + 1)  # row: the last token; V: a start


def log(p):
    with np.errstate(divide="ignore"):
        return np.log(p).astype(np.float32)


def record(folder, steps, sampler, children, grow, target=TARGET, draft=DRAFT):
    """Trees of a first-order Markov pair; `grow(q, n, rng)` draws one node's tokens."""
    rng = np.random.default_rng(3)
    width = max(children)
    with TraceWriter(
        folder,
        target_model="markov",
        draft_model="markov",
        prompts=["start"],
        temperature=1.0,
        dtype="float32",
        tree={"sampler": sampler, "temperature": 1.0},
    ) as writer:
        for step in range(steps):
            nodes = [(-1, 0, 0, V)]  # parent, depth, rank, token
            drawn = []
            for index, (_, depth, _, token) in enumerate(nodes):  # grows while it is walked
                tokens = grow(draft[token], children[depth], rng) if depth < len(children) else []
                drawn.append([*tokens, *[-1] * (width - len(tokens))])
                for rank, child in enumerate(tokens):
                    if child not in tokens[:rank]:
                        nodes.append((index, depth + 1, rank, child))
            parent, depth, rank, token = np.array(nodes).T
            writer.append(
                log(target[token]),
                log(draft[token]),
                prompt=0,
                position=step,
                sequence=step,
                step=0,
                parent=parent,
                depth=depth,
                child_rank=rank,
                token=token,
                drafts=np.array(drawn),
            )
    return Trace(folder)


def sampled(name):
    return lambda q, n, rng: drafts.make(name, q, n=n).sample(rng, 1)[0].tolist()


def mean_efficiency(trace, verifier, **options):
    found = [block_efficiency(trace, rows, verifier, **options)[0] for rows in trace.steps()]
    return np.mean(found), np.std(found, ddof=1) / np.sqrt(len(found))


def exact_efficiency(sampler, verifier, children, token=V):
    """By enumeration of every draft tuple at every node."""
    if not children:
        return 1.0
    draft = drafts.make(sampler, DRAFT[token], n=children[0])
    below = {child: exact_efficiency(sampler, verifier, children[1:], child) for child in range(V)}
    total = 1.0
    for tokens, probability in zip(*draft.joint(), strict=True):
        law = verifier.kernel(TARGET[token], draft, tokens)
        total += probability * sum(law[child] * below[child] for child in set(tokens.tolist()))
    return total


@pytest.mark.parametrize("acceptance", [0.0, 0.37, 0.9])
@pytest.mark.parametrize("length", [1, 2, 5])
def test_a_chain_of_constant_acceptance_obeys_the_geometric_identity(tmp_path, acceptance, length):
    target = np.tile([acceptance / 2, acceptance / 2, 1 - acceptance, 0], (V + 1, 1))
    draft = np.tile([0.5, 0.5, 0, 0], (V + 1, 1))
    trace = record(tmp_path / "t", 3, "with-replacement", [1] * length, sampled("with-replacement"), target, draft)
    for rows in trace.steps():
        for cut in range(1, length + 1):
            found, exact = block_efficiency(trace, rows, "single-draft", topology=[1] * cut)
            assert exact
            expected = (1 - acceptance ** (cut + 1)) / (1 - acceptance)
            assert found == pytest.approx(expected, rel=1e-6)  # logits are float32
        assert block_efficiency(trace, rows, "single-draft") == (found, True)


@pytest.mark.parametrize(
    ("sampler", "verifier"),
    [("with-replacement", "rrs"), ("with-replacement", "kseq"), ("without-replacement", "rrs"), ("greedy", "greedy")],
)
def test_the_mean_over_recorded_steps_is_the_enumerated_one(tmp_path, sampler, verifier):
    children = [2, 2]
    trace = record(tmp_path / "t", 600, sampler, children, sampled(sampler))
    mean, error = mean_efficiency(trace, verifier)
    expected = exact_efficiency(sampler, verifiers.make(verifier), children)
    assert abs(mean - expected) < Z * error
    assert abs(mean - expected + 0.2) > Z * error  # the test can fail


def test_drafts_that_the_named_sampler_did_not_draw_are_found_out(tmp_path):
    grow = lambda q, n, rng: np.argsort(-q)[:n].tolist()  # noqa: E731
    trace = record(tmp_path / "t", 600, "with-replacement", [2, 2], grow)
    mean, error = mean_efficiency(trace, "rrs")
    expected = exact_efficiency("with-replacement", verifiers.make("rrs"), [2, 2])
    assert abs(mean - expected) > Z * max(error, 1e-3)


def test_cutting_recorded_drafts_gives_the_smaller_tree(tmp_path):
    trace = record(tmp_path / "t", 600, "without-replacement", [3, 2], sampled("without-replacement"))
    mean, error = mean_efficiency(trace, "rrs", topology=[2, 1])
    assert abs(mean - exact_efficiency("without-replacement", verifiers.make("rrs"), [2, 1])) < Z * error


class NoKernel:
    def __init__(self, verifier):
        self.verifier = verifier

    def __getattr__(self, name):
        return getattr(self.verifier, name)

    def kernel(self, p, draft, tokens, state=None):
        raise NotImplementedError


def test_random_walks_agree_with_the_recursion(tmp_path):
    trace = record(tmp_path / "t", 20, "with-replacement", [2, 2, 1], sampled("with-replacement"))
    error = variance = 0.0
    for rows in trace.steps():
        exact, by_recursion = block_efficiency(trace, rows, "rrs")
        walked, by_walks = block_efficiency(trace, rows, NoKernel(verifiers.make("rrs")), rng=np.random.default_rng(1))
        assert (by_recursion, by_walks) == (True, False)
        error += walked - exact
        variance += 4 / WALKS  # tokens lie in 1..4: variance at most 9/4
    assert abs(error) < Z * np.sqrt(variance)


def test_repeated_siblings_are_one_node_and_keep_their_multiplicity(tmp_path):
    trace = record(tmp_path / "t", 1, "with-replacement", [3], lambda q, n, rng: [1, 1, 2])
    [rows] = trace.steps()
    assert len(rows) == 3
    draft = drafts.make("with-replacement", DRAFT[V], n=3)
    law = verifiers.make("rrs").kernel(TARGET[V], draft, [1, 1, 2])
    assert block_efficiency(trace, rows, "rrs")[0] == pytest.approx(1 + law[1] + law[2], rel=1e-6)


@pytest.mark.parametrize(
    ("sampler", "verifier", "topology", "message"),
    [
        ("greedy", "kseq", None, r"kseq.*greedy|greedy.*kseq"),
        ("greedy", "greedy", [1], r"greedy drafts cannot be cut"),
        ("with-replacement", "rrs", [3], r"topology wants 3 drafts at depth 0; 2 were recorded"),
    ],
)
def test_what_cannot_be_judged_is_refused(tmp_path, sampler, verifier, topology, message):
    trace = record(tmp_path / "t", 1, sampler, [2], sampled(sampler))
    [rows] = trace.steps()
    with pytest.raises(ValueError, match=message):
        block_efficiency(trace, rows, verifier, topology)

"""Block efficiency of recorded draft trees: expected tokens emitted per target pass.

A step walks from the root: the verifier emits a token given the node's drafts; while it is a child's, the walk goes on
there; at a leaf the target adds one token. With k(c) the verifier's probability to emit the token of child c,

    E(node) = 1 + Σ_c k(c) E(c),    E(leaf) = 1,

so a chain of g drafts with constant acceptance a has E = (1 − a^(g+1)) / (1 − a) (Leviathan et al. 2023, equation 1).
The expectation is over the verifier, given the recorded drafts; the mean over steps is over the drafts as well.
"""

from collections.abc import Sequence

import numpy as np

from mdsd_theory import verifiers
from simulation.sources import distributions, make_draft, split_sampler
from simulation.traces import Trace

WALKS = 256  # per step, for verifiers that cannot tell their kernel
PREFIX_SAMPLERS = ("with-replacement", "without-replacement")  # the first m of n draws are what m draws would be


def block_efficiency(
    trace: Trace,
    rows: range,
    verifier: "str | verifiers.Verifier",
    topology: Sequence[int] | None = None,
    rng: np.random.Generator | None = None,
) -> tuple[float, bool]:
    """Expected tokens per target pass on one recorded step, and whether it is exact.

    trace: a tree trace; rows: one of its `steps()`. topology: number of drafts by depth, to judge a smaller tree than
    the recorded one ((2, 2, 1): binary for two levels, then a chain of one); None means as recorded. Exact by recursion
    where the verifier tells its kernel, else the mean of WALKS random walks with `rng`. ValueError when the verifier
    cannot serve the recorded sampler, or the topology asks for more than was recorded or splits drafts that belong
    together.
    """
    if isinstance(verifier, str):
        verifier = verifiers.make(verifier)
    nodes = [_Node(trace, row, topology) for row in rows]
    children: list[dict[int, int]] = [{} for _ in rows]
    for index, row in enumerate(rows):
        if (parent := int(trace.column("parent")[row])) >= 0:
            children[parent][int(trace.column("token")[row])] = index
    try:
        return _recursion(nodes, children, verifier), True
    except NotImplementedError:
        rng = rng or np.random.default_rng(0)
        return float(np.mean([_walk(nodes, children, verifier, rng) for _ in range(WALKS)])), False


class _Node:
    """One node's recorded drafts; p and the draft sampler are built only when a verifier needs them."""

    def __init__(self, trace: Trace, row: int, topology: Sequence[int] | None) -> None:
        self.trace, self.row = trace, row
        drawn = trace.column("drafts")[row]
        self.tokens = drawn[drawn >= 0].astype(np.int64)
        if topology is None:
            return
        depth = int(trace.column("depth")[row])
        wanted = topology[depth] if depth < len(topology) else 0
        if wanted > len(self.tokens):
            raise ValueError(f"topology wants {wanted} drafts at depth {depth}; {len(self.tokens)} were recorded")
        if 0 < wanted < len(self.tokens) and trace.tree["sampler"] not in PREFIX_SAMPLERS:
            raise ValueError(f"topology: {trace.tree['sampler']} drafts cannot be cut to fewer than were recorded")
        self.tokens = self.tokens[:wanted]

    def pair(self) -> tuple:
        settings = self.trace.tree
        filters = settings["temperature"], settings.get("top_p"), settings.get("top_k")
        p, q = distributions(self.trace, self.row, *filters)
        return p, make_draft(sampler_of(self.trace), q, len(self.tokens))


def sampler_of(trace: Trace) -> str:
    """The sampler that drew a tree trace, named as in a study ("top-then-sample:2")."""
    name, options = split_sampler(trace.tree["sampler"])
    top = trace.tree.get("top") or options.get("top")
    return name if top is None else f"{name}:{top}"


def _recursion(nodes: list[_Node], children: list[dict[int, int]], verifier: object) -> float:
    expected = np.ones(len(nodes))
    for index in reversed(range(len(nodes))):  # children come after their parents
        if len(tokens := nodes[index].tokens):
            p, draft = nodes[index].pair()
            verifier.check(p, draft)
            law = verifier.kernel(p, draft, tokens)
            expected[index] += sum(
                float(law[token]) * expected[children[index][token]] for token in set(tokens.tolist())
            )
    return float(expected[0])


def _walk(nodes: list[_Node], children: list[dict[int, int]], verifier: object, rng: np.random.Generator) -> int:
    index, emitted = 0, 1
    while len(tokens := nodes[index].tokens):
        p, draft = nodes[index].pair()
        verifier.check(p, draft)
        token = int(verifier.verify(p, draft, tokens, rng))
        if token not in tokens:
            break
        index, emitted = children[index][token], emitted + 1
    return emitted

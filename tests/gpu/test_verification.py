"""The torch verifiers have the laws of `mdsd_theory.verifiers`: the same kernel for the same drafts."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu import trees, verification
from gpu.samplers import SAMPLERS, Drafts, Sampler
from mdsd_theory import optimal_acceptance, verifiers
from tests.gpu.strategies import pair, row

# float64: differences are rounding, magnified at most by renormalising a residual of mass 1e-3 or so.
# float32: probabilities carry relative errors of 1e-7; a residual r is p - q renormalised, so its error is 1e-7 over
# the residual's mass; the law weighs it by the chance of getting there, which is of that mass's order.
BOUND = {torch.float64: 1e-9, torch.float32: 1e-4}

HOST = [
    ("canonical", Sampler("with-replacement")),
    ("transport", Sampler("without-replacement")),
    ("transport", Sampler("top-then-sample", 1)),
    ("transport", Sampler("deterministic")),
    ("transport", Sampler("spechub")),
]

PAIRS = [
    ("naive", Sampler("with-replacement")),
    ("naive", Sampler("without-replacement")),
    ("naive", Sampler("greedy")),
    ("naive", Sampler("spechub")),
    ("rrs", Sampler("with-replacement")),
    ("rrs", Sampler("without-replacement")),
    ("kseq", Sampler("with-replacement")),
    ("greedy", Sampler("greedy")),
    ("greedy", Sampler("deterministic")),
    ("greedy", Sampler("spechub")),
    ("spechub", Sampler("spechub")),
]
NAMES = [f"{verifier}-{sampler.name}" for verifier, sampler in PAIRS]


def tree_of(n):
    return trees.kary(n, 1)


@pytest.mark.parametrize("dtype", BOUND)
@pytest.mark.parametrize(("verifier", "sampler"), PAIRS, ids=NAMES)
@settings(max_examples=60, deadline=None)
@given(pq=pair(), n=st.integers(1, 5), seed=st.integers(0, 2**31))
def test_law_is_the_theorys_kernel(verifier, sampler, dtype, pq, n, seed):
    p, q = pq
    n = 2 if sampler.name == "spechub" else n
    law = verification.make(verifier, sampler, tree_of(n))
    p, q = (row(x, dtype)[0].double().numpy() for x in (p, q))  # the very numbers that ours is given
    p, q = p / p.sum(), q / q.sum()
    theory, draft = verifiers.make(verifier), sampler.theory(q, n)
    u = torch.rand(1, n, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    drafts = sampler(row(q, dtype), n, u)
    before = [tensor.clone() for tensor in (*drafts, row(p, dtype))]
    ours = law(row(p, dtype), drafts, torch.tensor([0.5]))[0].double().numpy()
    theirs = theory.kernel(p, draft, drafts.tokens[0, : drafts.count[0]].numpy())
    assert np.abs(ours - theirs).max() < BOUND[dtype]
    assert all(torch.equal(a, b) for a, b in zip(before, (*drafts, row(p, dtype)), strict=True))


@pytest.mark.parametrize(("verifier", "sampler"), HOST, ids=[f"{v}-{s.name}" for v, s in HOST])
def test_verifiers_without_a_torch_form_are_asked_on_the_host(verifier, sampler):
    """Rows with all, fewer and no drafts, p and q in float32."""
    rng = np.random.default_rng(2)
    p, q = (torch.from_numpy(rng.dirichlet(np.ones(4), 3)).float() for _ in range(2))
    q[1, 1:] = 0
    q[1, 0] = 1
    drafts = sampler(q, 2, torch.rand(3, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(3)))
    drafts = drafts._replace(count=drafts.count * torch.tensor([1, 1, 0]))
    ours = verification.make(verifier, sampler, tree_of(2))(p, drafts, torch.rand(3)).double().numpy()
    for k in range(2):
        a, b = (x[k].double().numpy() / x[k].double().sum().item() for x in (p, q))
        draft, tokens = sampler.theory(b, 2), drafts.tokens[k, : drafts.count[k]].numpy()
        assert np.abs(ours[k] - verifiers.make(verifier).kernel(a, draft, tokens)).max() < 1e-6
    assert np.abs(ours[2] - p[2].double().numpy()).max() < 1e-6


@pytest.mark.parametrize(("verifier", "sampler"), PAIRS, ids=NAMES)
def test_nodes_with_different_numbers_of_drafts_share_a_batch(verifier, sampler):
    """A node's law does not depend on its batch; a node without drafts has the law p."""
    rng = np.random.default_rng(5)
    n = 2 if sampler.name == "spechub" else 3
    p, q = (torch.from_numpy(rng.dirichlet(np.ones(6), 4)) for _ in range(2))
    drafts = sampler(q, n, torch.rand(4, n, dtype=torch.float64, generator=torch.Generator().manual_seed(1)))
    fewer = drafts._replace(count=torch.tensor([n, 0, n, 0]), leading=drafts.leading * torch.tensor([1, 0, 1, 0]))
    fewer = fewer._replace(tokens=fewer.tokens.where(fewer.drawn, 0))
    law = verification.make(verifier, sampler, tree_of(n))
    together = law(p, fewer, torch.rand(4))
    for k in range(4):
        if fewer.count[k] == 0:
            assert (together[k] - p[k]).abs().max() < 1e-12
        else:
            alone = law(p[k : k + 1], Drafts(*(part[k : k + 1] for part in drafts)), torch.rand(1))
            assert (together[k] - alone[0]).abs().max() < 1e-12


@pytest.mark.parametrize(
    ("verifier", "sampler", "n", "rate"),
    [
        ("rrs", "with-replacement", 2, 0.82), ("rrs", "with-replacement", 3, 0.848),
        ("kseq", "with-replacement", 2, 0.84), ("kseq", "with-replacement", 3, 0.875),
        ("rrs", "without-replacement", 2, 0.875), ("rrs", "without-replacement", 3, 1.0),
        ("greedy", "greedy", 2, 0.95), ("greedy", "greedy", 3, 1.0), ("single-draft", "with-replacement", 1, 0.7),
        ("spechub", "spechub", 2, 0.95),
    ],
)  # fmt: skip
def test_reference_pair_by_enumeration(verifier, sampler, n, rate):
    """p = [.3, .4, .3], q = [.6, .3, .1]: known acceptance rates, and exactly p comes out."""
    p, q = np.array([0.3, 0.4, 0.3]), np.array([0.6, 0.3, 0.1])
    output, accepted = marginal(verifier, Sampler(sampler), p, q, n)
    assert output == pytest.approx(p, abs=1e-12)
    assert accepted == pytest.approx(rate, abs=1e-12)


def marginal(verifier, sampler, p, q, n):
    """Law of the emitted token and acceptance rate, summed over all drafts."""
    tokens, probability = sampler.theory(q, n).joint()
    size, width = tokens.shape
    leading = sampler(row(q), n, torch.zeros(1, n, dtype=torch.float64)).leading.expand(size)
    drafts = Drafts(row(q).expand(size, -1), torch.from_numpy(tokens), torch.full((size,), width), leading)
    law = verification.make(verifier, sampler, tree_of(n))(row(p).expand(size, -1), drafts, torch.rand(size)).numpy()
    accepted = np.array([x[np.unique(t)].sum() for x, t in zip(law, tokens, strict=True)])
    return probability @ law, probability @ accepted


FAULTS = [
    ("deterministic top-k", "greedy", "deterministic", [0.6, 0.2, 0.1, 0.1], [0.4, 0.3, 0.2, 0.1], 2, 0.8),
    ("p equals q", "rrs", "with-replacement", [0.5, 0.5], [0.5, 0.5], 2, 1.0),
    ("p equals q", "kseq", "with-replacement", [0.25] * 4, [0.25] * 4, 3, 1.0),
    ("ties in q", "greedy", "greedy", [0.1, 0.8, 0.1], [0.4, 0.4, 0.2], 2, 13 / 15),
    ("small support", "rrs", "without-replacement", [0.4, 0.3, 0.2, 0.1], [0.7, 0.3, 0.0, 0.0], 3, 0.7),
    ("disjoint supports", "rrs", "with-replacement", [1.0, 0.0, 0.0], [0.0, 0.5, 0.5], 2, 0.0),
    ("disjoint supports", "kseq", "with-replacement", [1.0, 0.0, 0.0], [0.0, 0.5, 0.5], 2, 0.0),
    ("one-hot target", "rrs", "with-replacement", [0.0, 1.0, 0.0], [0.6, 0.3, 0.1], 2, 0.51),
    ("one-hot target", "rrs", "without-replacement", [0.0, 1.0, 0.0], [0.6, 0.3, 0.1], 2, 47 / 60),
    ("one-hot target", "greedy", "greedy", [0.0, 1.0, 0.0], [0.6, 0.3, 0.1], 2, 0.75),
    ("one-hot draft", "rrs", "with-replacement", [0.3, 0.4, 0.3], [1.0, 0.0, 0.0], 1, 0.3),
]


@pytest.mark.parametrize(("kind", "verifier", "sampler", "p", "q", "n", "rate"), FAULTS)
def test_kinds_of_input_others_got_wrong(kind, verifier, sampler, p, q, n, rate):
    output, accepted = marginal(verifier, Sampler(sampler), np.array(p), np.array(q), n)
    assert output == pytest.approx(p, abs=1e-12)
    assert accepted == pytest.approx(rate, abs=1e-12)


def test_nearly_equal_distributions_stay_finite():
    q = np.full(50_000, 1 / 50_000)
    p = q * (1 - 1e-16)
    for verifier in ("rrs", "kseq"):
        law = verification.make(verifier, Sampler("with-replacement"), tree_of(3))
        drafts = Sampler("with-replacement")(row(q, torch.float32), 3, torch.rand(1, 3, dtype=torch.float64))
        out = law(row(p, torch.float32), drafts, torch.rand(1))
        assert out.isfinite().all()
        assert out.gather(1, drafts.tokens).sum() > 0.999


@pytest.mark.parametrize(
    ("verifier", "sampler", "n"),
    [
        ("rrs", "greedy", 2), ("kseq", "without-replacement", 2), ("single-draft", "with-replacement", 2),
        ("greedy", "with-replacement", 2), ("spechub", "with-replacement", 2), ("spechub", "greedy", 3),
    ],
)  # fmt: skip
def test_wrong_pairs_are_refused_with_both_names(verifier, sampler, n):
    with pytest.raises(ValueError, match=f"{verifier}.*{sampler}"):
        verification.make(verifier, Sampler(sampler), tree_of(n))


def test_unknown_verifier_lists_the_known_ones():
    with pytest.raises(ValueError, match="known: naive, single-draft, rrs"):
        verification.make("magic", Sampler("greedy"), tree_of(2))


def test_every_verifier_of_the_theory_is_known():
    assert set(verifiers.NAMES) <= set(verification.known())


def test_optimal_verifiers_reach_the_optimum():
    rng = np.random.default_rng(0)
    for _ in range(20):
        p, q = rng.dirichlet(np.ones(5), 2)
        _, accepted = marginal("greedy", Sampler("greedy"), p, q, 3)
        assert accepted == pytest.approx(optimal_acceptance(p, Sampler("greedy").theory(q, 3)).rate, abs=1e-12)


CONVEX_MINORANT = [
    Sampler("with-replacement"), Sampler("top-then-sample", 1), Sampler("top-then-sample", 2), Sampler("greedy"),
    Sampler("deterministic"), Sampler("spechub"),
]  # fmt: skip


def integrated(law, p, drafts, cells=64, halvings=44):
    """The law averaged over s, exactly: it is piecewise constant in s, and bisection finds where it jumps.

    Jumps that come in pairs inside one starting cell, back to the same law, would be missed; there are none, since a
    draft that joined the highest draft's block never leaves it.
    """

    def at(s):
        rows = len(s)
        many = Drafts(*(part.expand(rows, *part.shape[1:]) for part in drafts))
        return law(p.expand(rows, -1), many, s)

    edges = torch.linspace(0, 1, cells + 1, dtype=torch.float64)
    laws = at(edges)
    for _ in range(halvings):
        jumps = (laws[1:] - laws[:-1]).abs().amax(1) > 1e-13
        wide = jumps & (edges.diff() > 1e-12)
        if not wide.any():
            break
        middles = ((edges[1:] + edges[:-1]) / 2)[wide]
        edges, order = torch.cat([edges, middles]).sort()
        laws = torch.cat([laws, at(middles)])[order]
    return ((laws[1:] + laws[:-1]) / 2 * edges.diff()[:, None]).sum(0)


@pytest.mark.parametrize("sampler", CONVEX_MINORANT, ids=lambda sampler: f"{sampler.name}:{sampler.top}")
@settings(max_examples=40, deadline=None)
@given(pq=pair(), n=st.integers(1, 4), seed=st.integers(0, 2**31))
def test_convex_minorant_averages_to_the_theorys_kernel(sampler, pq, n, seed):
    p, q = pq
    n = 2 if sampler.name == "spechub" else n
    law = verification.make("convex-minorant", sampler, tree_of(n))
    drafts = sampler(row(q), n, torch.rand(1, n, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)))
    ours = integrated(law, row(p), drafts).numpy()
    tokens = drafts.tokens[0, : drafts.count[0]].numpy()
    theirs = verifiers.make("convex-minorant").kernel(p, sampler.theory(q, n), tokens)
    assert np.abs(ours - theirs).max() < 1e-7


@pytest.mark.parametrize("sampler", CONVEX_MINORANT, ids=lambda sampler: f"{sampler.name}:{sampler.top}")
@settings(max_examples=40, deadline=None)
@given(pq=pair(), n=st.integers(1, 4), s=st.floats(0, 1, exclude_max=True), seed=st.integers(0, 2**31))
def test_convex_minorant_in_float32_is_its_float64_self(sampler, pq, n, s, seed):
    """Given s; next to a jump in s the two may take different sides of it."""
    n = 2 if sampler.name == "spechub" else n
    p, q = (row(x, torch.float32) for x in pq)
    law = verification.make("convex-minorant", sampler, tree_of(n))
    drafts = sampler(q, n, torch.rand(1, n, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)))
    wide = drafts._replace(q=q.double())
    around = torch.cat([law(p.double(), wide, torch.tensor([v])) for v in (max(s - 1e-4, 0), s, min(s + 1e-4, 1))])
    narrow = law(p, drafts, torch.tensor([s], dtype=torch.float64))
    assert (around - narrow.double()).abs().amax(1).min() < 1e-4


def cell(verifier, sampler):
    """What the README's table of pairs has to say, from what is accepted."""

    def able(sampler):
        found = []
        for n in range(1, 7):
            try:
                verification.make(verifier, Sampler.parse(sampler), trees.kary(n, 1))
            except ValueError:
                continue
            found.append(n)
        return tuple(found)

    words = {(1, 2, 3, 4, 5, 6): "any", (1,): "1", (2,): "2", (): "–"}
    if not sampler.endswith(":K"):
        return words[able(sampler)]
    by_top = [able(sampler.replace("K", str(top))) for top in (1, 2, 3)]
    if by_top == [(1, 2), (1, 2, 3), (1, 2, 3, 4)]:
        return "up to K + 1"
    return "2, K = 1" if by_top == [(2,), (), ()] else words[by_top[0]] if len(set(by_top)) == 1 else by_top


def test_the_readmes_table_of_pairs_is_what_is_accepted():
    page = (Path(verification.__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    lines = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| ")]
    start = next(k for k, line in enumerate(lines) if line[0] == "verifier")
    heads, rows = lines[start][1:], {line[0]: line[1:] for line in lines[start + 1 : start + 10]}
    assert set(rows) == {*verification.VERIFIERS, "canonical", "transport"}
    assert {head.removesuffix(":K") for head in heads} == set(SAMPLERS)
    assert rows == {verifier: [cell(verifier, sampler) for sampler in heads] for verifier in rows}

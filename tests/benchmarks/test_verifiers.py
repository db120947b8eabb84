"""Speed of the verifiers at full vocabulary, beside one `optimal_acceptance` call on the same input."""

import time

import numpy as np
import pytest

from mdsd_theory import drafts, optimal_acceptance, verifiers
from tests.benchmarks.timing import fastest, softmax_pair

V = 152_064


@pytest.mark.parametrize("n", [2, 4, 8, 32])
def test_convex_minorant_beside_the_optimum_and_the_others(benchmark, n):
    """One verification, preparation included: at most 4 times one optimal_acceptance call."""
    p, q = softmax_pair(V)
    draft = drafts.WithReplacement(q, n)
    rng = np.random.default_rng(0)
    tokens = draft.sample(rng, 1)[0]
    made = {name: verifiers.make(name) for name in ("convex-minorant", "rrs", "kseq")}
    calls = {name: lambda v=v: v.verify(p, draft, tokens, rng) for name, v in made.items()}
    seconds = fastest({"optimum": lambda: optimal_acceptance(p, draft), **calls})
    ratio = seconds["convex-minorant"] / seconds["optimum"]
    benchmark.extra_info["times optimal_acceptance"] = ratio
    benchmark(calls["convex-minorant"])
    print(
        f"\nn = {n}: " + ", ".join(f"{name} {s * 1e3:.2f} ms" for name, s in seconds.items()) + f"; ratio {ratio:.1f}"
    )
    assert ratio <= 4


@pytest.mark.parametrize("n", [2, 4, 8, 32])
def test_a_thousand_draws_at_one_position(n):
    """The preparation is shared: 1,000 draws cost less than a third of 1,000 preparations."""
    p, q = softmax_pair(V)
    draft, verifier, rng = drafts.WithReplacement(q, n), verifiers.make("convex-minorant"), np.random.default_rng(0)
    prepare = fastest({"prepare": lambda: verifier.prepare(p, draft).search})["prepare"]
    drawn = draft.sample(rng, 1000)
    verifier.verify(p, draft, drawn[0], rng)
    state = verifier.prepare(p, draft)
    start = time.perf_counter()
    for tokens in drawn:
        verifier.verify(p, draft, tokens, rng, state)
    seconds = time.perf_counter() - start
    print(f"\nn = {n}: 1,000 draws {seconds:.2f} s, one preparation {prepare * 1e3:.2f} ms")
    assert seconds < 1000 * prepare / 3

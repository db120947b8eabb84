"""Speed of alpha*, as ratios in one run: `OMP_NUM_THREADS=1 pytest tests/benchmarks -s`."""

import tracemalloc
from functools import partial

import numpy as np
import pytest

from mdsd_theory import drafts, optimal_acceptance
from tests.benchmarks.timing import fastest, numpy_reference, softmax_pair

VOCABULARIES = {"Qwen": 152_064, "OPT": 50_272, "LLaMA": 32_000}
N = 4


@pytest.mark.parametrize("sampler", ["with-replacement", "greedy"])
@pytest.mark.parametrize("model", VOCABULARIES)
def test_no_sort(benchmark, model, sampler):
    """At least 15 times faster than the NumPy reference, at most 5 times one pass of np.divide(p, p + q)."""
    p, q = softmax_pair(VOCABULARIES[model])
    draft = drafts.make(sampler, q, n=N)
    assert optimal_acceptance(p, drafts.WithReplacement(q, N)).rate == pytest.approx(
        numpy_reference(p, q, N), abs=1e-11
    )
    seconds = fastest(
        {
            "ours": lambda: optimal_acceptance(p, draft),
            "reference": lambda: numpy_reference(p, q, N),
            "floor": lambda: np.divide(p, p + q),
        },
        repeat=5,
    )
    benchmark(optimal_acceptance, p, draft)
    faster, passes = seconds["reference"] / seconds["ours"], seconds["ours"] / seconds["floor"]
    benchmark.extra_info.update({"times faster than NumPy": faster, "times np.divide(p, p + q)": passes})
    speed = 16 * p.size / seconds["ours"] / 1e9
    print(
        f"\n{model} {sampler}: {seconds['ours'] * 1e3:.3f} ms, {faster:.1f}x faster than NumPy, "
        f"{passes:.1f}x one division pass, {speed:.1f} GB/s of p and q"
    )
    assert seconds["ours"] * 15 <= seconds["reference"]
    assert seconds["ours"] <= 5 * seconds["floor"]


@pytest.mark.parametrize("n", range(2, 9))
def test_without_replacement(benchmark, n):
    """Up to eight drafts: no slower than the NumPy reference for with replacement."""
    p, q = softmax_pair(VOCABULARIES["Qwen"])
    seconds = fastest(
        {
            "ours": lambda: optimal_acceptance(p, drafts.WithoutReplacement(q, n)),
            "reference": lambda: numpy_reference(p, q, n),
        }
    )
    benchmark.extra_info["times faster than NumPy"] = seconds["reference"] / seconds["ours"]
    benchmark(lambda: optimal_acceptance(p, drafts.WithoutReplacement(q, n)))
    print(
        f"\nwithout replacement, n = {n}: {seconds['ours'] * 1e3:.2f} ms, reference {seconds['reference'] * 1e3:.2f} ms"
    )
    assert seconds["ours"] <= seconds["reference"]


@pytest.mark.parametrize("sampler", ["with-replacement", "without-replacement", "greedy"])
def test_memory_is_a_small_multiple_of_the_vocabulary(sampler):
    """NumPy-visible allocations of one call stay below eight vectors of 64-bit numbers."""
    p, q = softmax_pair(152_064)
    optimal_acceptance(p, drafts.make(sampler, q, n=N))
    tracemalloc.start()
    optimal_acceptance(p, drafts.make(sampler, q, n=N))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 * p.nbytes


def test_the_linear_programme(benchmark):
    """cvxpy's LP beside ours, up to the largest vocabulary that it solves in a minute (n = 2), and where its memory
    ends.
    """
    pytest.importorskip("cvxpy")
    from mdsd_theory import transport

    largest = None
    for vocab_size in (8, 16, 32, 48, 64):
        p, q = softmax_pair(vocab_size)
        draft = drafts.WithReplacement(q, 2)
        calls = {"lp": partial(transport.primal, p, draft), "ours": partial(optimal_acceptance, p, draft)}
        try:
            seconds = fastest(calls, rounds=1)
        except ValueError as refused:
            print(f"\nV = {vocab_size}: {refused}")
            break
        assert calls["lp"]().value == pytest.approx(calls["ours"]().rate, abs=1e-6)
        largest = vocab_size, seconds
        ratio = seconds["lp"] / seconds["ours"]
        print(f"\nV = {vocab_size}: LP {seconds['lp']:.2f} s, ours {seconds['ours'] * 1e6:.0f} us, {ratio:,.0f}x")
        if seconds["lp"] > 20:
            break
    vocab_size, seconds = largest
    p, q = softmax_pair(vocab_size)
    draft = drafts.WithReplacement(q, 2)
    benchmark.extra_info["V"] = vocab_size
    benchmark.extra_info["LP over ours"] = seconds["lp"] / seconds["ours"]
    benchmark(optimal_acceptance, p, draft)
    # One variable per (pair of drafts, token): 24 GiB of doubles are reached at V^3 * 8 bytes.
    print(f"dense LP variables alone fill 24 GiB at V = {int((24 * 2**30 / 8) ** (1 / 3))}")

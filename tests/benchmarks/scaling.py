"""Cost of alpha* against V and n: `python -m tests.benchmarks.scaling FILE.png` times it and draws the picture."""

import sys

import matplotlib

matplotlib.use("Agg")
import numpy as np
from matplotlib import pyplot as plt

from mdsd_theory import drafts, optimal_acceptance
from tests.benchmarks.timing import fastest, numpy_reference, softmax_pair

SAMPLERS = ("with-replacement", "greedy", "without-replacement")


def milliseconds(sampler: str, vocab_size: int, n: int) -> float:
    p, q = softmax_pair(vocab_size)
    draft = drafts.make(sampler, q, n=n)
    return 1e3 * fastest({"ours": lambda: optimal_acceptance(p, draft)}, 5)["ours"]


def draw(file: str) -> None:
    sizes = np.geomspace(1e3, 1e6, 7).astype(int)
    counts = [1, 2, 4, 8, 16, 32, 64]
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained", sharey=True)
    for sampler, marker in zip(SAMPLERS, "os^", strict=True):
        left.loglog(sizes, [milliseconds(sampler, v, 4) for v in sizes], marker=marker, label=sampler)
        right.loglog(counts, [milliseconds(sampler, 152_064, n) for n in counts], marker=marker, label=sampler)
    pairs = [softmax_pair(v) for v in sizes]
    reference = [1e3 * fastest({"r": lambda x=x: numpy_reference(*x, 4)}, 5)["r"] for x in pairs]
    left.loglog(sizes, reference, "k--", label="NumPy sort")
    left.set(xlabel="vocabulary size V, n = 4", ylabel="milliseconds, one thread")
    right.set(xlabel="number of drafts n, V = 152,064")
    left.legend()
    figure.savefig(file, dpi=110)


if __name__ == "__main__":
    draw(sys.argv[1])

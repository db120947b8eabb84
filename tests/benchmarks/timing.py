"""Two things timed side by side: what is compared runs alternately, so that a busy machine slows both."""

import time
from collections.abc import Callable

import numpy as np


def fastest(calls: dict[str, Callable], rounds: int = 15, repeat: int = 1) -> dict[str, float]:
    """Seconds of the fastest of `rounds` alternating runs of each call.

    With `repeat` above 1 a run is that many calls in a row, each timed, so that every call finds its own arrays in the
    caches and not what the call before it left there.
    """
    best = dict.fromkeys(calls, np.inf)
    for call in calls.values():
        call()
    for _ in range(rounds):
        for name, call in calls.items():
            for _ in range(repeat):
                start = time.perf_counter()
                call()
                best[name] = min(best[name], time.perf_counter() - start)
    return best


def softmax_pair(vocab_size: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """A target and a draft with the entropy of real next-token distributions (3 to 5 nats) and correlated logits."""
    rng = np.random.default_rng(seed)
    shared = rng.normal(size=vocab_size) * 3
    logits = shared + rng.normal(size=(2, vocab_size))
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    p, q = weights / weights.sum(axis=1, keepdims=True)
    return p, q


def numpy_reference(p: np.ndarray, q: np.ndarray, n: int) -> float:
    """alpha* with replacement as one would write it in NumPy: divide, argsort, two gathers, two cumsums, min."""
    order = np.argsort(p / q)
    return 1.0 + min(0.0, (np.cumsum(p[order]) - np.cumsum(q[order]) ** n).min())

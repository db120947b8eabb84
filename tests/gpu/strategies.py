"""Distributions to try verifiers on: zeros, ties, peaks and tiny masses among ordinary ones."""

import numpy as np
from hypothesis import strategies as st

from tests.gpu.tiny_models import torch

KINDS = ("plain", "zeros", "ties", "peak", "tiny")


@st.composite
def distribution(draw, vocab_size):
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    kind = draw(st.sampled_from(KINDS))
    weights = rng.exponential(size=vocab_size)
    if kind == "zeros":
        weights[rng.permutation(vocab_size)[: rng.integers(0, vocab_size)]] = 0
    elif kind == "ties":
        weights = rng.integers(1, 3, vocab_size).astype(float)
    elif kind == "peak":
        weights[rng.integers(vocab_size)] *= 1e6
    elif kind == "tiny":
        weights *= 10.0 ** -rng.integers(0, 12, vocab_size)
    if not weights.sum():
        weights[0] = 1.0
    return weights / weights.sum()


@st.composite
def pair(draw, low=2, high=12):
    """(p, q) over one vocabulary; now and then equal, or with p a small change of q."""
    vocab_size = draw(st.integers(low, high))
    p, q = draw(distribution(vocab_size)), draw(distribution(vocab_size))
    if draw(st.integers(0, 9)) == 0:
        p = q.copy()
    return p, q


def row(x, dtype=torch.float64):
    return torch.from_numpy(x)[None].to(dtype)

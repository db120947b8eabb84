"""Probability vectors: checking them at the door, and making them from logits."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mdsd_theory.kernels import sum_and_sign

# How far a sum may be from 1. A 64- or 32-bit softmax over 150,000 tokens is off by about 1e-6; a 16-bit one by up to
# one unit in the last place of every entry (2**-8 for bfloat16) plus the tail that underflows.
SUM_TOLERANCE = 1e-5
SUM_TOLERANCE_16_BIT = 1e-2
# Sums closer to 1 than this are rounding of a normalised vector and are left as they are.
_ROUNDING = 1e-12


def as_array(x: ArrayLike, name: str) -> tuple[NDArray, bool]:
    """`x` as a float64 array (or an object array of Fractions), and whether it came in 16 bits.

    Accepts anything numpy reads, CPU or GPU torch tensors and bfloat16 arrays.

    Raises:
        ValueError: the entries are not real numbers; the message names `name`.
    """
    if hasattr(x, "detach"):  # a torch tensor, without importing torch
        narrow = x.element_size() == 2
        x = x.detach().cpu()
        x = (x.float() if narrow else x).numpy()
    else:
        try:
            x = np.asarray(x)
        except (ValueError, TypeError) as error:
            raise ValueError(f"{name}: not an array of numbers ({error})") from None
        narrow = x.dtype.itemsize == 2 and x.dtype.kind in "fV"
    if x.dtype.kind == "O":
        return _as_fractions(x, name), False
    if x.dtype.kind not in "fiuV" or x.dtype.names:
        raise ValueError(f"{name}: entries of type {x.dtype}; allowed are real numbers or Fractions")
    try:
        return np.asarray(x, dtype=np.float64, order="C"), narrow
    except (ValueError, TypeError):
        raise ValueError(f"{name}: entries of type {x.dtype}; allowed are real numbers or Fractions") from None


def _as_fractions(x: NDArray, name: str) -> NDArray:
    flat = x.ravel()
    for i, entry in enumerate(flat):
        if not isinstance(entry, (Fraction, int)) or isinstance(entry, bool):
            raise ValueError(
                f"{name}: entry {i} is {entry!r}; an object array is read exactly: only Fractions and integers"
            )
    exact = np.empty(x.size, dtype=object)
    exact[:] = [Fraction(entry) for entry in flat]
    return exact.reshape(x.shape)


def distribution(x: ArrayLike, name: str, vocab_size: int | None = None) -> NDArray:
    """`x` checked to be a probability vector.

    Args:
        x: shape (V,), V >= 1. Floating point of any width, or Fractions (then everything downstream is exact).
        name: what to call it in an error.
        vocab_size: the length its partner has, when there is one.

    Returns:
        float64 (V,), or an object array of Fractions. The sum is 1: a sum off by no more than `SUM_TOLERANCE` (32 and
        64 bits) or `SUM_TOLERANCE_16_BIT` (16 bits) is divided out once, here, so that the array that draws is the
        array that verifies. Never the caller's memory changed.

    Raises:
        ValueError: not one-dimensional, empty, of another length than its partner, NaN, infinite or negative entries,
            or a sum that is not 1 within the tolerance (exactly 1 for Fractions).
    """
    x, narrow = as_array(x, name)
    if x.ndim != 1 or x.size == 0:
        raise ValueError(f"{name}: shape {x.shape}; a distribution is one-dimensional with at least one entry")
    if vocab_size is not None and x.size != vocab_size:
        raise ValueError(
            f"{name}: {x.size} entries where its partner has {vocab_size}; both must be over one vocabulary "
            "(pad the shorter with zeros if they differ only in padding)"
        )
    if x.dtype.kind == "O":
        total = x.sum()
        if min(x) < 0 or total != 1:
            raise ValueError(f"{name}: exact entries must be >= 0 and sum to 1; found minimum {min(x)}, sum {total}")
        return x
    total, negative = sum_and_sign(x)
    if negative or not math.isfinite(total):
        i = int(np.flatnonzero(~(x >= 0.0) | np.isinf(x))[0])
        raise ValueError(f"{name}: entry {i} is {x[i]}; every entry must be a finite number >= 0")
    tolerance = SUM_TOLERANCE_16_BIT if narrow else SUM_TOLERANCE
    if abs(total - 1.0) > tolerance:
        raise ValueError(f"{name}: sums to {total:.9g}; a distribution sums to 1 (tolerance {tolerance:g})")
    return x if abs(total - 1.0) <= _ROUNDING else x / total


def probabilities(
    logits: ArrayLike, temperature: float = 1.0, top_k: int | None = None, top_p: float | None = None
) -> NDArray[np.float64]:
    """Next-token distributions from logits: temperature, then top-k, then top-p, each renormalised once at the end.

    Args:
        logits: shape (..., V); -inf entries get probability 0.
        temperature: >= 0; 0 is the one-hot limit at the largest logit (ties: the lowest token).
        top_k: keep the k most probable tokens (ties: lower tokens first); None or k >= V keeps all.
        top_p: keep the smallest set of most probable tokens whose mass reaches top_p, in (0, 1]; None keeps all.

    Returns:
        float64 (..., V), each row summing to 1.

    Raises:
        ValueError: a NaN or +inf logit, a row of -inf only, or a parameter out of range.
    """
    check_filters(temperature, top_k, top_p)
    logits, _ = as_array(logits, "logits")
    if logits.ndim == 0 or logits.size == 0 or logits.dtype == object:
        raise ValueError(
            f"logits: shape {logits.shape} of {logits.dtype}; needed are real numbers of shape (..., V), V >= 1"
        )
    highest = logits.max(axis=-1, keepdims=True)
    if not np.isfinite(highest).all():
        where = tuple(int(i) for i in np.argwhere(~np.isfinite(highest[..., 0]))[0])
        raise ValueError(
            f"logits: row {where} has a maximum of {highest[where].item()}; a row needs a finite largest logit"
        )
    if temperature == 0.0:
        one_hot = np.zeros_like(logits)
        np.put_along_axis(one_hot, logits.argmax(axis=-1, keepdims=True), 1.0, axis=-1)
        return one_hot
    # A tiny temperature sends differences to -inf (probability 0), which is its meaning and not an accident.
    with np.errstate(over="ignore"):
        weights = np.exp((logits - highest) / temperature)
    if (top_k is not None and top_k < logits.shape[-1]) or (top_p is not None and top_p < 1.0):
        # by the logits: a large temperature rounds different weights to equal ones, and changes no order
        order = np.argsort(-logits, axis=-1, kind="stable")
        ranked = np.take_along_axis(weights, order, axis=-1)
        if top_k is not None:
            ranked[..., top_k:] = 0.0
        if top_p is not None:
            before = np.cumsum(ranked, axis=-1) - ranked
            ranked[before >= top_p * ranked.sum(axis=-1, keepdims=True)] = 0.0
        np.put_along_axis(weights, order, ranked, axis=-1)
    return weights / weights.sum(axis=-1, keepdims=True)


def check_filters(temperature: float, top_k: int | None = None, top_p: float | None = None) -> None:
    """Raises ValueError unless temperature >= 0, top_k >= 1 and 0 < top_p <= 1 (None: not applied)."""
    if not 0.0 <= temperature < np.inf:
        raise ValueError(f"temperature: {temperature}; allowed are finite numbers >= 0")
    if top_k is not None and top_k < 1:
        raise ValueError(f"top_k: {top_k}; allowed are integers >= 1")
    if top_p is not None and not 0.0 < top_p <= 1.0:
        raise ValueError(f"top_p: {top_p}; allowed are numbers in (0, 1]")


def pad_vocabulary(x: ArrayLike, vocab_size: int, name: str) -> NDArray:
    """`x` with zero probability appended up to `vocab_size` entries (the last axis), for vocabularies that differ in
    padding.

    Raises:
        ValueError: `x` is already longer.
    """
    x, _ = as_array(x, name)
    missing = vocab_size - x.shape[-1]
    if missing < 0:
        raise ValueError(f"{name}: {x.shape[-1]} entries cannot be padded to {vocab_size}")
    return np.concatenate([x, np.zeros((*x.shape[:-1], missing), dtype=x.dtype)], axis=-1)

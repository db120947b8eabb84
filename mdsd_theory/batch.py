"""alpha* of many positions at once: compiled, parallel over rows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit, prange
from numpy.typing import ArrayLike, NDArray

from mdsd_theory.distributions import SUM_TOLERANCE, SUM_TOLERANCE_16_BIT, as_array
from mdsd_theory.drafts.base import check_count
from mdsd_theory.kernels import BUCKETS, iid_minimum, largest_tokens, sum_and_sign
from mdsd_theory.race import make_race, race_minimum

_SAMPLERS = ("with-replacement", "without-replacement", "greedy", "top-then-sample", "spechub")
_ROUNDING = 1e-12


class BatchAcceptance(NamedTuple):
    """One entry or row per position; see `OptimalAcceptance`."""

    rate: NDArray[np.float64]
    subset: NDArray[np.bool_]
    target_mass: NDArray[np.float64]
    draft_mass: NDArray[np.float64]


def optimal_acceptance_batch(
    p: ArrayLike, q: ArrayLike, n: int = 2, sampler: str = "with-replacement", top: int | None = None
) -> BatchAcceptance:
    """`optimal_acceptance` of B positions, in parallel over positions (Numba threads).

    Args:
        p, q: target and draft distributions, shape (B, V), float64 or float32; 16-bit input is converted.
        n: number of drafts, the same at all positions (spechub: 2).
        sampler: with-replacement, without-replacement, greedy, top-then-sample (needs `top`) or spechub.
        top: number of certain tokens for top-then-sample.

    Returns:
        rate (B,), subset (B, V), target_mass (B,), draft_mass (B,): what `optimal_acceptance` gives for every row.

    Raises:
        ValueError: shapes differ, a row is no distribution (its number is named), unknown sampler, n or top out of
            range.
    """
    if sampler not in _SAMPLERS:
        raise ValueError(f"sampler: {sampler!r} has no batched form; known are {', '.join(_SAMPLERS)}")
    n = check_count(n, "n")
    if sampler == "spechub" and n != 2:
        raise ValueError(f"n: {n}; spechub has n = 2")
    if (top is not None) != (sampler == "top-then-sample"):
        raise ValueError(f"top: {top!r}; it is given for top-then-sample and for no other sampler (found {sampler})")
    certain = {"greedy": n - 1, "spechub": 1}.get(sampler, 0) if top is None else check_count(top, "top", 0, n)
    rows = {}
    for name, x in (("p", p), ("q", q)):
        dtype = getattr(x, "dtype", None)
        array, narrow = as_array(x, name)
        if array.ndim != 2 or array.shape[1] == 0 or array.dtype == object:
            raise ValueError(f"{name}: shape {array.shape} of {array.dtype}; needed are floats of shape (B, V), V >= 1")
        # Single precision is read as it is: widening it first would only move more bytes.
        rows[name] = (np.ascontiguousarray(x) if dtype == np.float32 else array), narrow
    (p, p_narrow), (q, q_narrow) = rows["p"], rows["q"]
    if p.shape != q.shape:
        raise ValueError(f"p, q: shapes {p.shape} and {q.shape}; both must be over one vocabulary, row for row")
    if p.dtype != q.dtype:
        p, q = p.astype(np.float64), q.astype(np.float64)
    p_scale, q_scale = _row_scales(p, "p", p_narrow), _row_scales(q, "q", q_narrow)
    out = BatchAcceptance(np.empty(len(p)), np.empty(p.shape, dtype=bool), np.empty(len(p)), np.empty(len(p)))
    if sampler == "without-replacement":
        _race_rows(p, q, p_scale, q_scale, n, *out)
    else:
        _iid_rows(p, q, p_scale, q_scale, n, certain, *out)
    return out


def _row_scales(x: NDArray, name: str, narrow: bool) -> NDArray[np.float64]:
    """What each row is multiplied by to sum to 1, after the checks that `distribution` makes of a vector."""
    totals, negative = _row_sums(x)
    bad = np.flatnonzero(negative | ~np.isfinite(totals))
    if bad.size:
        raise ValueError(
            f"{name}: row {bad[0]} has a NaN, infinite or negative entry; every entry must be a finite number >= 0"
        )
    tolerance = SUM_TOLERANCE_16_BIT if narrow else SUM_TOLERANCE
    bad = np.flatnonzero(np.abs(totals - 1.0) > tolerance)
    if bad.size:
        raise ValueError(
            f"{name}: row {bad[0]} sums to {totals[bad[0]]:.9g}; a distribution sums to 1 (tolerance {tolerance:g})"
        )
    return np.where(np.abs(totals - 1.0) <= _ROUNDING, 1.0, 1.0 / totals)


@njit(cache=True, parallel=True)
def _row_sums(x):
    totals, negative = np.empty(len(x)), np.empty(len(x), np.bool_)
    for row in prange(len(x)):
        totals[row], negative[row] = sum_and_sign(x[row])
    return totals, negative


@njit(cache=True, parallel=True)
def _iid_rows(p, q, p_scale, q_scale, n, top, rate, subset, target_mass, draft_mass):
    for row in prange(len(p)):
        certain = largest_tokens(q[row], top)
        count = 0
        while count < certain.size and q[row, certain[count]] > 0.0:
            count += 1
        certain = np.sort(certain[:count])
        p_top = 0.0
        for i in certain:
            p_top += p[row, i] * p_scale[row]
        rest, used = 0.0, 0
        for i in range(q.shape[1]):
            if used < certain.size and certain[used] == i:
                used += 1
            else:
                rest += q[row, i]
        if rest <= 0.0 or n == top:
            subset[row] = False
            for i in certain:
                subset[row, i] = True
            target_mass[row], draft_mass[row] = p_top, 1.0
        else:
            ids = np.empty(q.shape[1], np.uint16)
            sums = np.empty((2, BUCKETS + 1))
            if rest > 1e-300:
                target_mass[row], mass, _ = iid_minimum(
                    p[row], q[row], p_scale[row], 1.0 / rest, certain, n - top, ids, sums[0], sums[1], subset[row]
                )
            else:  # 1 / rest may overflow
                scaled = np.minimum(q[row] / rest, 1.0)
                target_mass[row], mass, _ = iid_minimum(
                    p[row], scaled, p_scale[row], 1.0, certain, n - top, ids, sums[0], sums[1], subset[row]
                )
            target_mass[row] += p_top
            draft_mass[row] = mass ** (n - top)
        rate[row] = min(max(1.0 + target_mass[row] - draft_mass[row], 0.0), 1.0)


@njit(cache=True, parallel=True)
def _race_rows(p, q, p_scale, q_scale, n, rate, subset, target_mass, draft_mass):
    for row in prange(len(p)):
        ids = np.empty(q.shape[1], np.uint16)
        target, draft = p[row] * p_scale[row], q[row] * q_scale[row]
        width = 0
        for mass in draft:
            width += mass > 0.0
        width = min(n, width)
        if width == 1:
            nothing, sums = np.empty(0, np.int64), np.empty((2, BUCKETS + 1))
            target_mass[row], draft_mass[row], _ = iid_minimum(
                target, draft, 1.0, 1.0, nothing, 1, ids, sums[0], sums[1], subset[row]
            )
        else:
            target_mass[row], draft_mass[row] = race_minimum(target, draft, ids, subset[row], make_race(draft, width))
        rate[row] = min(max(1.0 + target_mass[row] - draft_mass[row], 0.0), 1.0)

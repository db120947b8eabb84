"""The geometry behind the convex-minorant verifier: the clipped target, and the blocks of E_s, whole or one at a time.

Tokens in the order of p'/q', X and T the prefix sums of q' and t. E_s is the lower convex envelope of the points
(X_j, T_j - s X_j^m); its vertices cut the order into blocks, which only merge as s grows. Mathematics in
`mdsd_theory/verifiers/README.md`.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import NamedTuple

import numpy as np
from numba import njit
from numba.extending import register_jitable
from numpy.typing import NDArray

from mdsd_theory.kernels import BUCKETS, bucket_ratios, by_ratio

# `register_jitable` functions are compiled inside compiled callers and stay plain Python elsewhere, where Fractions go
# through.

# Lower bounds of T - s X^m within this of the edge line cannot move a block by more than rounding.
_SLACK = 1e-15
# tau where nothing is clipped from above: large, and finite so that tau * 0 is 0.
_UNCLIPPED = 1e308


@register_jitable
def chord_bend(a, b, c, m):
    """h_(m-2)(a, b, c): ([b, c] x^m - [a, b] x^m) / (c - a) for divided differences, without cancellation."""
    pair, triple = 1 + 0 * a, 1 + 0 * a
    power = 1 + 0 * a
    for _ in range(m - 2):
        power = power * a
        pair = power + b * pair
        triple = pair + c * triple
    return triple


@njit(cache=True, nogil=True, error_model="numpy")
def merge_times(t, q, edges, m, deaths):
    """For each boundary between neighbouring tokens: the s at which it stops being a vertex of E_s.

    Args:
        t, q: (N,), masses in the order of t/q increasing, q > 0; edges: (N + 1,), prefix sums X of q.
        m: number of i.i.d. draws, >= 2.
        deaths: (N - 1,), written: entry j is that of the boundary after token j, in [0, 1].
    """
    count = t.size
    # Blocks as a doubly linked list over their first tokens; a boundary is named by the block that starts there.
    mass_t, mass_q = t.copy(), q.copy()
    before, after = np.arange(count) - 1, np.arange(count) + 1
    alive = np.ones(count, np.bool_)
    version = np.zeros(count, np.int64)
    heap = [(0 * t[0], np.int64(0), np.int64(0))]
    heap.pop()
    for j in range(1, count):
        heap.append((_death(mass_t, mass_q, edges, j - 1, j, j + 1, m), np.int64(j), np.int64(0)))
    heapify(heap)
    now = 0 * t[0]
    while len(heap) > 0:
        time, j, stamp = heappop(heap)
        if not alive[j] or stamp != version[j]:
            continue
        now = max(now, min(time, 1 + 0 * time))
        deaths[j - 1] = now
        alive[j] = False
        left, right = before[j], after[j]
        mass_t[left] = mass_t[left] + mass_t[j]
        mass_q[left] = mass_q[left] + mass_q[j]
        after[left] = right
        if right < count:
            before[right] = left
        for start in (left, right):
            if 0 < start < count:
                version[start] += 1
                time = _death(mass_t, mass_q, edges, before[start], start, after[start], m)
                heappush(heap, (time, np.int64(start), version[start]))


@register_jitable
def _death(mass_t, mass_q, edges, left, start, end, m):
    """When the blocks [left, start) and [start, end) merge: their slopes T - s x^m meet."""
    bend = (edges[end] - edges[left]) * chord_bend(edges[left], edges[start], edges[end], m)
    difference = mass_t[start] / mass_q[start] - mass_t[left] / mass_q[left]
    if difference <= 0:
        return 0 * bend
    return difference / bend if bend > 0 else 1 + 0 * bend


class Blocks(NamedTuple):
    """The order of p'/q' in buckets, sorted within one only when it is looked at.

    Bucket j = 0..BUCKETS runs along the order; point g is the boundary before the g-th token.

    Attributes:
        m: number of i.i.d. draws.
        kappa, tau: the clipping levels of t = min(max(p', kappa q'), tau q').
        x, t, power: float64 (BUCKETS + 2,), X, T and X^m at the bucket edges.
        tokens: int32 (N,), grouped by bucket; starts: int64 (BUCKETS + 2,), where each begins.
        inner_x, inner_t: float64 (N,), X and T after each token of a sorted bucket.
        ready: bool (BUCKETS + 1,), which buckets are sorted.
    """

    m: int
    kappa: float
    tau: float
    x: NDArray[np.float64]
    t: NDArray[np.float64]
    power: NDArray[np.float64]
    tokens: NDArray[np.int32]
    starts: NDArray[np.int64]
    inner_x: NDArray[np.float64]
    inner_t: NDArray[np.float64]
    ready: NDArray[np.bool_]


@njit(cache=True, nogil=True)
def _beside(starts, edge):
    """The buckets around an edge, up to the nearest ones on both sides that hold tokens."""
    low = max(edge - 1, 0)
    while low > 0 and starts[low] == starts[low + 1]:
        low -= 1
    high = min(edge, BUCKETS)
    while high < BUCKETS and starts[high] == starts[high + 1]:
        high += 1
    return low, high


@njit(cache=True, nogil=True, error_model="numpy")
def clipping_levels(p, q, q_scale, tokens, starts, x, mass, beyond, subset, last, spare, slope):
    """kappa and tau, each the extremum of a quasi-convex sequence over points: at the best edge or in a bucket beside
    it.

    Args:
        x, mass, beyond: X, P and 1 - X at the bucket edges; subset: bool (V,), the minimising prefix; last: the bucket
            it ends in (-1: it is empty); spare: D = X^m - P there; slope: (1 - X^m) / (1 - X) there, below
            which only rounding would put tau, where next to nothing lies beyond.
    """
    kappa = 0.0
    if last >= 0:
        kappa, edge = np.inf, last
        for j in range(1, last + 1):
            if x[j] > 0.0 and (mass[j] + spare) / x[j] < kappa:
                kappa, edge = (mass[j] + spare) / x[j], j
        for _ in range(2):
            # Second round: the bucket of the minimiser, whose last point is no edge.
            low, high = _beside(starts, edge)
            for j in range(low, min(high, last) + 1):
                inside, head = x[j], mass[j]
                for i in by_ratio(p, q, tokens[starts[j] : starts[j + 1]]):
                    if not subset[i]:
                        break
                    inside += q[i] * q_scale
                    head += p[i]
                    if inside > 0.0:
                        kappa = min(kappa, (head + spare) / inside)
            edge = last
    tau, edge = -1.0, last + 1
    for j in range(last + 1, BUCKETS + 2):
        if beyond[j] > 0.0 and max(slope, (1.0 - spare - mass[j]) / beyond[j]) > tau:
            tau, edge = max(slope, (1.0 - spare - mass[j]) / beyond[j]), j
    for _ in range(2):
        low, high = _beside(starts, edge)
        for j in range(max(low, last), high + 1):
            order = by_ratio(p, q, tokens[starts[j] : starts[j + 1]])
            head, after = mass[j + 1], beyond[j + 1]
            for k in range(order.size - 1, -1, -1):
                if after > 0.0:
                    tau = max(tau, slope, (1.0 - spare - head) / after)
                if subset[order[k]]:
                    break
                head -= p[order[k]]
                after += q[order[k]] * q_scale
        edge = last + 1
    # No mass beyond the minimiser: nothing to clip there.
    return kappa, (max(tau, kappa) if tau >= 0.0 else _UNCLIPPED)


@njit(cache=True, nogil=True, error_model="numpy")
def make_blocks(p, q, q_scale, ids, p_sums, q_sums, subset, p_best, x_best, best_bucket, m):
    """Clipping levels and bucketed order, from the result of `iid_minimum`.

    Args:
        p, q: float64 (V,), used as q * q_scale; ids, p_sums, q_sums: their buckets.
        subset, p_best, x_best, best_bucket: the minimising prefix, its p' and q', and the bucket it ends in.
        m: number of i.i.d. draws, >= 1.
    """
    starts = np.zeros(BUCKETS + 2, np.int64)
    for i in range(ids.size):
        if ids[i] <= BUCKETS:
            starts[BUCKETS - ids[i] + 1] += 1
    for j in range(BUCKETS + 1):
        starts[j + 1] += starts[j]
    place = starts[: BUCKETS + 1].copy()
    tokens = np.empty(starts[BUCKETS + 1], np.int32)
    for i in range(ids.size):
        if ids[i] <= BUCKETS:
            j = BUCKETS - ids[i]
            tokens[place[j]] = i
            place[j] += 1
    x, mass, beyond = np.zeros(BUCKETS + 2), np.zeros(BUCKETS + 2), np.zeros(BUCKETS + 2)
    for j in range(BUCKETS + 1):
        x[j + 1] = x[j] + q_sums[BUCKETS - j]
        mass[j + 1] = mass[j] + p_sums[BUCKETS - j]
    for j in range(BUCKETS, -1, -1):
        beyond[j] = beyond[j + 1] + q_sums[BUCKETS - j]
    slope = 0.0
    for k in range(m):
        slope += x_best**k
    spare = x_best**m - p_best
    kappa, tau = clipping_levels(
        p, q, q_scale, tokens, starts, x, mass, beyond, subset, BUCKETS - best_bucket, spare, slope
    )
    t = np.zeros(BUCKETS + 2)
    for j in range(BUCKETS + 1):
        # t is p', kappa q' or tau q' throughout a bucket, but for the two in which a level lies.
        low, high = bucket_ratios(BUCKETS - j)
        low, high = low * (1.0 - 1e-12), high * (1.0 + 1e-12)
        if low < kappa < high or low < tau < high:
            inside = 0.0
            for i in tokens[starts[j] : starts[j + 1]]:
                inside += clipped(p[i], q[i] * q_scale, kappa, tau)
        else:
            inside = clipped(p_sums[BUCKETS - j], q_sums[BUCKETS - j], kappa, tau)
        t[j + 1] = t[j] + inside
        x[j + 1] = min(x[j + 1], 1.0)
    inner_x, inner_t, ready = np.empty(tokens.size), np.empty(tokens.size), np.zeros(BUCKETS + 1, np.bool_)
    return Blocks(m, kappa, tau, x, t, x**m, tokens, starts, inner_x, inner_t, ready)


@njit(cache=True, nogil=True)
def clipped(p, q, kappa, tau):
    """t = min(max(p', kappa q'), tau q'), 0 where q' = 0."""
    return min(max(p, kappa * q), tau * q) if q > 0.0 else 0.0


@njit(cache=True, nogil=True)
def sort_bucket(blocks, j, p, q, q_scale):
    """Sort bucket j and fill its points, once."""
    if blocks.ready[j]:
        return
    first, last = blocks.starts[j], blocks.starts[j + 1]
    blocks.tokens[first:last] = by_ratio(p, q, blocks.tokens[first:last])
    x, t = blocks.x[j], blocks.t[j]
    for g in range(first, last):
        i = blocks.tokens[g]
        x = min(x + q[i] * q_scale, 1.0)
        t += clipped(p[i], q[i] * q_scale, blocks.kappa, blocks.tau)
        blocks.inner_x[g], blocks.inner_t[g] = x, t
    blocks.ready[j] = True


@njit(cache=True, nogil=True, error_model="numpy")
def _may_dip(blocks, j, s, x0, y0, slope):
    """Whether a point inside bucket j may lie below the line of this slope through (x0, y0)."""
    width = blocks.x[j + 1] - blocks.x[j]
    if width <= 0.0 or blocks.starts[j + 1] - blocks.starts[j] < 2:
        return False
    low, high = bucket_ratios(BUCKETS - j)
    low = min(max(low, blocks.kappa), blocks.tau)
    high = min(max(high, blocks.kappa), blocks.tau)
    if high <= low:
        return False
    cross = min(max((blocks.t[j] - blocks.t[j + 1] + high * width) / (high - low), 0.0), width)
    power = blocks.power[j] + (blocks.power[j + 1] - blocks.power[j]) / width * cross
    bound = blocks.t[j] + low * cross - s * power
    return bound < y0 + slope * (blocks.x[j] + cross - x0) - _SLACK


@njit(cache=True, nogil=True, error_model="numpy")
def _best_point(blocks, s, first, last, x0, y0, p, q, q_scale):
    """Among the points first..last, all on one side of x0: the one of extreme slope to (x0, y0), the lowest line beyond
    x0.

    Returns the point, its X, its height and the slope; point -1 where none is apart from x0.
    """
    best, best_x, best_y, best_slope = -1, 0.0, 0.0, 0.0
    # Buckets that have a point in range, edges first: they are known without sorting.
    low = np.searchsorted(blocks.starts, first, side="left")
    for j in range(low, BUCKETS + 2):
        if blocks.starts[j] > last:
            break
        x = blocks.x[j]
        if x != x0:
            y = blocks.t[j] - s * blocks.power[j]
            slope = (y - y0) / (x - x0)
            if best < 0 or (slope > best_slope if x < x0 else slope < best_slope):
                best, best_x, best_y, best_slope = blocks.starts[j], x, y, slope
    for j in range(max(low - 1, 0), BUCKETS + 1):
        if blocks.starts[j] >= last:
            break
        partly = blocks.starts[j] < first or blocks.starts[j + 1] > last
        if not partly and best >= 0 and not _may_dip(blocks, j, s, x0, y0, best_slope):
            continue
        sort_bucket(blocks, j, p, q, q_scale)
        for g in range(max(blocks.starts[j] + 1, first), min(blocks.starts[j + 1] - 1, last) + 1):
            x = blocks.inner_x[g - 1]
            if x != x0:
                y = blocks.inner_t[g - 1] - s * x**blocks.m
                slope = (y - y0) / (x - x0)
                if best < 0 or (slope > best_slope if x < x0 else slope < best_slope):
                    best, best_x, best_y, best_slope = g, x, y, slope
    return best, best_x, best_y, best_slope


@njit(cache=True, nogil=True)
def places(blocks, ids, drafts, p, q, q_scale):
    """The places of draft tokens in the order, int64; sorts their buckets."""
    found = np.empty(drafts.size, np.int64)
    for d in range(drafts.size):
        j = BUCKETS - np.int64(ids[drafts[d]])
        sort_bucket(blocks, j, p, q, q_scale)
        for g in range(blocks.starts[j], blocks.starts[j + 1]):
            if blocks.tokens[g] == drafts[d]:
                found[d] = g
    return found


@njit(cache=True, nogil=True, error_model="numpy")
def block_start(blocks, s, place, p, q, q_scale):
    """The first place of the block of E_s that holds the token at `place`: one edge of the envelope, by bridging.

    The edge is the line below all points that is highest over that token: alternately the best left end for the right
        end and the
    best right end for the left one, each step lowering the line.
    """
    j = np.searchsorted(blocks.starts, place, side="right") - 1
    count = blocks.tokens.size
    x_right, y_right = blocks.inner_x[place], blocks.inner_t[place] - s * blocks.inner_x[place] ** blocks.m
    if place == blocks.starts[j + 1] - 1:
        x_right, y_right = blocks.x[j + 1], blocks.t[j + 1] - s * blocks.power[j + 1]
    left, right = place, place + 1
    for _ in range(200):
        found, x_left, y_left, _ = _best_point(blocks, s, 0, place, x_right, y_right, p, q, q_scale)
        if found < 0:
            return left
        left = found
        found, x, y, _ = _best_point(blocks, s, place + 1, count, x_left, y_left, p, q, q_scale)
        if found < 0 or found == right:
            return left
        right, x_right, y_right = found, x, y
    return left


@njit(cache=True, nogil=True)
def select(blocks, ids, drafts, s, pick, p, q, q_scale):
    """The draft selected at s: one of those in the block of the highest one, the `pick`-th part of the way through
    them.
    """
    if drafts.size == 1:
        return drafts[0]
    where = places(blocks, ids, drafts, p, q, q_scale)
    inside = drafts[where >= block_start(blocks, s, where.max(), p, q, q_scale)]
    return inside[int(pick * inside.size)]

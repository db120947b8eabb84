"""The Numba inner loops: private functions of arrays, each behind a checked public function elsewhere.

Compiled on first use and cached on disk (`cache=True`): the first call in a fresh installation takes seconds, later
ones and later processes do not.
"""

from __future__ import annotations

import numpy as np
from numba import njit

# Buckets of z = q/(p+q): their sums stay in the first-level cache.
BUCKETS = 1024
_BLOCK = 64
_TINY = 5e-324
# p/q times this never overflows. What it flushes to 0 is p below 1e-290, whose place in the order costs nothing.
RATIO_SCALE = 2.0**-60
# A bucket whose lower bound is above the best edge by less than this cannot change the answer at float64's resolution.
_SLACK = 2e-15


@njit(cache=True, nogil=True)
def largest_tokens(q, k):
    """The k tokens of largest q, largest first, ties by lower token: int64 (min(k, V),). One pass; meant for small
    k.
    """
    k = min(k, q.size)
    tokens = np.empty(k, np.int64)
    masses = np.empty(k)
    found = 0
    for i in range(q.size):
        mass = q[i]
        if found == k and (k == 0 or mass <= masses[k - 1]):
            continue
        j = found if found < k else k - 1
        # Strictly larger moves ahead, so that equal masses stay in order of their ids.
        while j > 0 and masses[j - 1] < mass:
            masses[j], tokens[j] = masses[j - 1], tokens[j - 1]
            j -= 1
        masses[j], tokens[j] = mass, i
        found = min(found + 1, k)
    return tokens


@njit(cache=True, nogil=True, error_model="numpy")
def fill_buckets(p, q, p_scale, q_scale, skip, ids, p_sums, q_sums):
    """Sums of p and q per bucket of z = q/(p+q), the order of p/q reversed; tokens in `skip` (sorted) are left out.

    Two plain passes: the first is divisions only and vectorises, the second is additions into a table in the
        first-level
    cache (unsigned ids spare the check for negative indices).

    Args:
        p, q: (V,); used as p * p_scale and q * q_scale.
        ids: uint16 (V,), written: the bucket of each token. Skipped tokens get BUCKETS + 1.
        p_sums, q_sums: (BUCKETS + 1,), written.
    """
    sums = np.zeros((BUCKETS + 2, 2))
    for i in range(p.size):
        a = np.float64(p[i]) * p_scale
        b = np.float64(q[i]) * q_scale
        # The bound only matters for p = q = 0, which lands at z = 0 with the tokens of q = 0: no minimiser needs them.
        ids[i] = np.uint16(np.int32(b / max(a + b, _TINY) * BUCKETS))
    for i in skip:
        ids[i] = BUCKETS + 1
    for i in range(p.size):
        k = ids[i]
        sums[k, 0] += p[i]
        sums[k, 1] += q[i]
    for k in range(BUCKETS + 1):
        p_sums[k] = sums[k, 0] * p_scale
        q_sums[k] = sums[k, 1] * q_scale


@njit(cache=True, nogil=True)
def bucket_ratios(k):
    """The smallest and the largest p/q of tokens in bucket k."""
    return max(BUCKETS - k - 1.0, 0.0) / (k + 1.0), (BUCKETS - k) / np.float64(k) if k > 0 else np.inf


@njit(cache=True, nogil=True, error_model="numpy")
def bucket_bound(k, width, p0, p1, q0, q1):
    """A lower bound of P(H) - Q(H) over prefixes that end inside bucket k.

    P is convex along the order with slopes between the ratios at the bucket's ends, so it lies above both end tangents;
    Q is convex in q(H) (q-convexity), so it lies below its chord. The bound is piecewise linear: its minimum is at an
    end (the edges themselves, known exactly) or where the tangents cross.

    Args:
        width: q of the bucket (not a difference of edges: Q may rise over masses of 1e-300).
        p0, p1: P(H) at the two edges; q0, q1: Q(H).
    """
    if width <= 0.0:
        return np.inf
    low, high = bucket_ratios(k)
    if high <= low:
        return np.inf
    if high == np.inf:
        cross = width  # no upper slope: only the tangent from the left
    else:
        cross = min(max((p0 - p1 + high * width) / (high - low), 0.0), width)
    return p0 + low * cross - (q0 + (q1 - q0) * (cross / width))


@njit(cache=True, nogil=True)
def bucket_tokens(ids, bucket):
    """Tokens of a bucket, in order of their ids.

    Blocks of constant size are counted in 16 bits, 32 ids at a time; only those with a hit are gone through.
    """
    k = np.uint16(bucket)
    blocks = ids.size // _BLOCK
    counts = np.empty(blocks + 1, np.int64)
    for block in range(blocks):
        hits, chunk = np.uint16(0), ids[block * _BLOCK : (block + 1) * _BLOCK]
        for i in range(_BLOCK):
            hits = np.uint16(hits + np.uint16(chunk[i] == k))
        counts[block] = hits
    counts[blocks] = 0
    for i in range(blocks * _BLOCK, ids.size):
        counts[blocks] += ids[i] == k
    tokens = np.empty(counts.sum(), np.int64)
    found = 0
    for block in range(blocks + 1):
        if counts[block]:
            for i in range(block * _BLOCK, min((block + 1) * _BLOCK, ids.size)):
                if ids[i] == k:
                    tokens[found] = i
                    found += 1
    return tokens


@njit(cache=True, nogil=True)
def by_ratio(p, q, tokens):
    """`tokens` by p/q increasing (q = 0 last), ties in the order given."""
    ratio = np.empty(tokens.size)
    for j in range(tokens.size):
        i = tokens[j]
        ratio[j] = RATIO_SCALE * p[i] / q[i] if q[i] > 0.0 else np.inf
    return tokens[np.argsort(ratio, kind="mergesort")]


@njit(cache=True, nogil=True, error_model="numpy")
def iid_minimum(p, q, p_scale, q_scale, skip, m, ids, p_sums, q_sums, subset):
    """min over H of P(H) - q(H without Top)^m for top-then-sample drafts, in linear time.

    Args:
        p, q: (V,); used as p * p_scale, and q * q_scale off Top (so q_scale makes q' sum to 1).
        skip: int64, Top's tokens sorted.
        m: number of i.i.d. draws, >= 1.
        ids, p_sums, q_sums: as in `fill_buckets`, written.
        subset: bool (V,), written: the minimising H, which holds Top.

    Returns:
        P(H without Top), q'(H without Top), and the last bucket that H reaches (BUCKETS + 1 where H is Top alone).
    """
    fill_buckets(p, q, p_scale, q_scale, skip, ids, p_sums, q_sums)
    best, best_p, best_x = 0.0, 0.0, 0.0
    best_bucket, best_count = BUCKETS + 1, 0
    edge_p, edge_x = np.zeros(BUCKETS + 2), np.zeros(BUCKETS + 2)
    power = np.zeros(BUCKETS + 2)
    for k in range(BUCKETS, -1, -1):
        edge_p[k] = edge_p[k + 1] + p_sums[k]
        edge_x[k] = edge_x[k + 1] + q_sums[k]
        power[k] = min(edge_x[k], 1.0) ** m
        if edge_p[k] - power[k] < best:
            best, best_p, best_x, best_bucket = edge_p[k] - power[k], edge_p[k], edge_x[k], k
    order = np.empty(0, np.int64)
    for k in range(BUCKETS, -1, -1):
        # The cheap bound first: inside the bucket P is at least what it was and Q at most what it becomes.
        if edge_p[k + 1] - power[k] >= best - _SLACK:
            continue
        bound = bucket_bound(k, q_sums[k], edge_p[k + 1], edge_p[k], power[k + 1], power[k])
        if bound >= best - _SLACK:
            continue
        tokens = by_ratio(p, q, bucket_tokens(ids, k))
        x, mass = edge_x[k + 1], edge_p[k + 1]
        for j in range(tokens.size):
            x += q[tokens[j]] * q_scale
            mass += p[tokens[j]] * p_scale
            value = mass - min(x, 1.0) ** m
            if value < best:
                best, best_p, best_x, best_bucket, best_count = value, mass, x, k, j + 1
                order = tokens
    # Whole buckets before the best one; of the best one all (edge) or the first best_count tokens.
    threshold = best_bucket + (1 if best_count else 0)
    for i in range(ids.size):
        subset[i] = ids[i] >= threshold
    for j in range(best_count):
        subset[order[j]] = True
    return best_p, min(best_x, 1.0), best_bucket


@njit(cache=True, nogil=True, fastmath={"reassoc", "nsz"})
def scaled_overlap(p, q, gamma):
    """sum min(gamma q, p) in one pass; the sum may be reordered to run in vector registers."""
    total = 0.0
    for i in range(p.size):
        a = gamma * q[i]
        total += a if a < p[i] else p[i]
    return total

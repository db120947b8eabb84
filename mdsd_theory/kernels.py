"""The Numba inner loops: private functions of arrays, each behind a checked public function elsewhere.

Compiled on first use and cached on disk (`cache=True`): the first call in a fresh installation takes seconds, later
ones and later processes do not.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core.errors import TypingError
from numba.extending import intrinsic

# Buckets of z = q/(p+q): their sums stay in the first-level cache.
BUCKETS = 1024
_BLOCK = 128
_STRIP = 32
_TINY = 5e-324
# p/q times this never overflows. What it flushes to 0 is p below 1e-290, whose place in the order costs nothing.
RATIO_SCALE = 2.0**-60
# A bucket whose lower bound is above the best edge by less than this cannot change the answer at float64's resolution.
_SLACK = 2e-15


@njit(cache=True, nogil=True, fastmath={"reassoc", "nsz"})
def sum_and_sign(x):
    """The sum (in vector registers, so in another order than left to right) and whether an entry is negative, in one
    pass. NaN and +inf show in the sum.
    """
    total, negative = 0.0, False
    for i in range(x.size):
        total += x[i]
        negative |= x[i] < 0.0
    return total, negative


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


@intrinsic
def _add_two(typing_context, table, row, next_row, p, q, i):
    """table[row] += (p[i], q[i]) and table[next_row] += (p[i + 1], q[i + 1]); the indices are not checked.

    One vector load of p and of q, one vector addition and store a row; written out one number at a time, loads and
    stores take twice as long.
    """

    if any(array.layout != "C" for array in (table, p, q)):
        raise TypingError(f"contiguous arrays only: {table}, {p}, {q}")

    def build(context, builder, signature, arguments):
        def data(k):
            return context.make_array(signature.args[k])(context, builder, arguments[k]).data

        def two(k):
            entry = ir.VectorType(data(k).type.pointee, 2)
            place = builder.bitcast(builder.gep(data(k), [arguments[5]]), entry.as_pointer())
            loaded = builder.load(place, align=signature.args[k].dtype.bitwidth // 8)
            return loaded if signature.args[k].dtype == types.float64 else builder.fpext(loaded, pair)

        pair = ir.VectorType(ir.DoubleType(), 2)
        rows, first, second = builder.bitcast(data(0), pair.as_pointer()), two(3), two(4)
        for lane in (0, 1):
            lanes = ir.Constant(ir.VectorType(ir.IntType(32), 2), [lane, 2 + lane])
            index = context.cast(builder, arguments[1 + lane], signature.args[1 + lane], types.uintp)
            place = builder.gep(rows, [index])
            total = builder.fadd(builder.load(place, align=8), builder.shuffle_vector(first, second, lanes))
            builder.store(total, place, align=8)
        return context.get_dummy_value()

    return types.void(table, row, next_row, p, q, types.intp), build


@njit(cache=True, nogil=True, error_model="numpy")
def _bucket(p, q, p_scale, q_scale):
    a = np.float64(p) * p_scale
    b = np.float64(q) * q_scale
    # The bound only matters for p = q = 0, which lands at z = 0 with the tokens of q = 0: no minimiser needs them.
    return np.uint16(np.int32(b / max(a + b, _TINY) * BUCKETS))


@njit(cache=True, nogil=True, error_model="numpy")
def _fill(p, q, p_scale, q_scale, ids, sums):
    """`fill_buckets` for a stretch without skipped tokens.

    The additions run one strip behind the divisions: they never wait for a quotient, and fill the processor while the
    next ones are computed. Strips are short enough for both to fit its window of instructions, and of constant length,
    so that the divisions vectorise.
    """
    strips = p.size // _STRIP
    if strips > 0:
        for i in range(_STRIP):
            ids[i] = _bucket(p[i], q[i], p_scale, q_scale)
    for strip in range(1, strips):
        start = strip * _STRIP
        for i in range(_STRIP):
            ids[start + i] = _bucket(p[start + i], q[start + i], p_scale, q_scale)
        for i in range(start - _STRIP, start, 2):
            _add_two(sums, ids[i], ids[i + 1], p, q, i)
    if strips > 0:
        for i in range((strips - 1) * _STRIP, strips * _STRIP, 2):
            _add_two(sums, ids[i], ids[i + 1], p, q, i)
    for i in range(strips * _STRIP, p.size):
        ids[i] = _bucket(p[i], q[i], p_scale, q_scale)
        sums[ids[i], 0] += p[i]
        sums[ids[i], 1] += q[i]


@njit(cache=True, nogil=True)
def fill_buckets(p, q, p_scale, q_scale, skip, ids, p_sums, q_sums):
    """Sums of p and q per bucket of z = q/(p+q), the order of p/q reversed; tokens in `skip` (sorted) are left out.

    Args:
        p, q: (V,); used as p * p_scale and q * q_scale.
        ids: uint16 (V,), written: the bucket of each token. Skipped tokens get BUCKETS + 1.
        p_sums, q_sums: (BUCKETS + 1,), written.
    """
    sums = np.zeros((BUCKETS + 1, 2))
    start = 0
    for stop in skip:
        _fill(p[start:stop], q[start:stop], p_scale, q_scale, ids[start:stop], sums)
        ids[stop] = BUCKETS + 1
        start = stop + 1
    _fill(p[start:], q[start:], p_scale, q_scale, ids[start:], sums)
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

    Blocks of constant size are counted in 16 bits, 32 ids at a time; only those with a hit are gone through. Both loops
    write a place before they know whether it is a hit, which spares the branch; unsigned counters spare the check for
    negative indices.
    """
    k = np.uint16(bucket)
    blocks = ids.size // _BLOCK
    with_hits = np.empty(blocks + 1, np.uint32)
    size, listed = 0, np.uint64(0)
    for block in range(blocks):
        hits = np.uint16(0)
        for i in range(_BLOCK):
            hits = np.uint16(hits + np.uint16(ids[block * _BLOCK + i] == k))
        with_hits[listed] = block
        listed += np.uint64(hits > 0)
        size += hits
    tokens = np.empty(size + _BLOCK, np.int64)
    found = np.uint64(0)
    for j in range(listed):
        start = np.uint64(with_hits[j]) * np.uint64(_BLOCK)
        for i in range(start, start + np.uint64(_BLOCK)):
            tokens[found] = i
            found += np.uint64(ids[i] == k)
    for i in range(blocks * _BLOCK, ids.size):
        tokens[found] = i
        found += np.uint64(ids[i] == k)
    return tokens[:found]


@njit(cache=True, nogil=True)
def by_ratio(p, q, tokens):
    """`tokens` by p/q increasing (q = 0 last), ties in the order given."""
    ratio = np.empty(tokens.size)
    for j in range(tokens.size):
        i = tokens[j]
        ratio[j] = RATIO_SCALE * p[i] / q[i] if q[i] > 0.0 else np.inf
    return tokens[np.argsort(ratio, kind="mergesort")]


@njit(cache=True, nogil=True)
def _powers(masses, m, out):
    """min(masses, 1)**m for m >= 1 into `out`, by squaring, a vector register of entries at a time."""
    square = np.empty(masses.size)
    for i in range(masses.size):
        square[i], out[i] = min(masses[i], 1.0), 1.0
    while True:
        if m & 1:
            for i in range(masses.size):
                out[i] *= square[i]
        m >>= 1
        if m == 0:
            return
        for i in range(masses.size):
            square[i] *= square[i]


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
    edge_p, edge_x, power = np.zeros(BUCKETS + 2), np.zeros(BUCKETS + 2), np.empty(BUCKETS + 2)
    for k in range(BUCKETS, -1, -1):
        edge_p[k] = edge_p[k + 1] + p_sums[k]
        edge_x[k] = edge_x[k + 1] + q_sums[k]
    _powers(edge_x, m, power)
    for k in range(BUCKETS, -1, -1):
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
    threshold = np.uint16(best_bucket + (1 if best_count else 0))
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

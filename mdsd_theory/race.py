"""Q(H) for drafts without replacement, as an exponential race.

Sampling without replacement is a race: token i arrives at T_i ~ Exp(q_i) and the drafts are the first n arrivals. With
c = 1 - q(H) and N_H(t) the number of arrivals in H up to t,

    1 - Q(H) = c * integral over t of exp(-c t) * F(t),   F(t) = Pr(N_H(t) < n)

(theory of order statistics of exponentials; the product form of [1] Hu et al. 2025, section 4.3, follows by integrating
the arrival times out). With t = exp(u) the integrand is analytic in |Im u| < pi/2, so the trapezoid rule converges
geometrically.

F(t) is the start of the polynomial prod over i in H of (exp(-q_i t) + (1 - exp(-q_i t)) y). Large tokens ("head") are
multiplied in one by one; the logarithm of the product over the others is a short power series in t whose coefficients
are the power sums of their q (`tail`), so a token of the tail costs a few additions whatever the number of nodes.
"""

from __future__ import annotations

from math import ceil, comb, exp, factorial, lgamma, log, sqrt
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from mdsd_theory.kernels import BUCKETS, bucket_bound, bucket_tokens, by_ratio, fill_buckets, largest_tokens

# Powers of q t kept for tail tokens, and the largest q t a tail token has at the last node. Where the integrand has
# weight q t is several times smaller, so the first dropped term is below 1e-15.
_POWERS = 8
_TAIL_LIMIT = 0.02
# exp(-_DIGITS) is what the quadrature may drop.
_DIGITS = 38.0
_LEFT_TERMS = 10
_SCALE = 2.0**120


class Race(NamedTuple):
    """The quadrature for one (q, n), shared by all token sets.

    Attributes:
        n: number of drafts, >= 2.
        scale: power of two; every q is multiplied and every t divided by it, so that t stays finite where all but n - 1
            tokens have masses near the smallest floats. 1 otherwise.
        times: float64 (T,), the nodes t / scale.
        step: their distance in log t.
        left: float64 (terms,), coefficients of the closed form of all nodes before the first, where F = 1.
        head_limit: tokens of larger q * scale are head tokens.
    """

    n: int
    scale: float
    times: NDArray[np.float64]
    step: float
    left: NDArray[np.float64]
    head_limit: float


@njit(cache=True, nogil=True)
def make_race(q, n):
    """The quadrature (`Race`) that is right for every token set under q, float64 (V,), and n >= 2 drafts."""
    rest = q.copy()
    rest[largest_tokens(q, n - 1)] = 0.0
    scale = _SCALE if rest.sum() < 1 / _SCALE else 1.0
    rest_mass = rest.sum() * scale
    # exp(-c t) F(t) is at most a polynomial of degree n - 1 times exp(-rest t), whatever H.
    x = _DIGITS + n
    for _ in range(60):
        x = _DIGITS + (n - 1) * log(x) - lgamma(n)
    last = x / rest_mass
    # F(t) > 1 - t^n / n! before the first node; the closed form there wants c t < 0.02.
    first = min(exp((lgamma(n + 1) - _DIGITS) / n), 0.02) / scale
    # Error exp(-2 pi v / h) * (1 / cos v)^n for any v < pi/2: the first bound holds for few drafts, the second for
    # many.
    step = min(0.2, 0.7 / sqrt(n))
    count = ceil((log(last) - log(first)) / step) + 1
    times = np.exp(log(first) + step * np.arange(count))
    # sum over nodes j < 0 of step * c t_j exp(-c t_j), expanded in powers of c t_0.
    left = np.empty(_LEFT_TERMS)
    sign_over_factorial = 1.0
    for k in range(_LEFT_TERMS):
        left[k] = sign_over_factorial * step / np.expm1((k + 1) * step) * (first * scale) ** (k + 1)
        sign_over_factorial /= -(k + 1.0)
    return Race(n, scale, times, step, left, _TAIL_LIMIT / last)


def _log_series() -> NDArray[np.float64]:
    """Entry (k, j): k times the coefficient of y^k sum_i a_i^j in sum_i log(1 + (exp(a_i) - 1) y).

    (exp(a) - 1)^k = sum_j k! S(j, k) / j! a^j, with S Stirling's numbers of the second kind.
    """
    series = np.zeros((_POWERS + 1, _POWERS + 1))
    for k in range(1, _POWERS + 1):
        for j in range(k, _POWERS + 1):
            surjections = sum((-1) ** (k - i) * comb(k, i) * i**j for i in range(k + 1))
            series[k, j] = (-1.0) ** (k + 1) * surjections / factorial(j)
    return series


_SERIES = _log_series()


@njit(cache=True, nogil=True)
def multiply(head, race, mass):
    """Multiply a head token of the given q into the polynomials `head` (T, n), in place."""
    for j in range(race.times.size):
        arrived = -np.expm1(-mass * race.scale * race.times[j])
        for m in range(race.n - 1, 0, -1):
            head[j, m] = (1.0 - arrived) * head[j, m] + arrived * head[j, m - 1]
        head[j, 0] *= 1.0 - arrived


@njit(cache=True, nogil=True)
def missed(c, head, tail, race):
    """1 - Q(H), from c = 1 - q(H), H's head polynomials (T, n) and its tail's power sums (K,)."""
    if c <= 0.0:
        return 0.0
    n, step = race.n, race.step
    total = 0.0
    for k in range(_LEFT_TERMS - 1, -1, -1):
        total = total * c + race.left[k]
    total *= c
    c *= race.scale
    orders = min(n - 1, _POWERS)
    slope = np.zeros(orders + 1)
    term = np.empty(n)
    for j in range(race.times.size):
        t = race.times[j]
        decay = c * t
        if tail[0] > 0.0:
            decay += tail[0] * t
        if decay > 745.0:
            break
        if tail[0] > 0.0:
            for k in range(1, orders + 1):
                value = 0.0
                for i in range(_POWERS, k - 1, -1):
                    value = (value + _SERIES[k, i] * tail[i - 1]) * t
                for _ in range(k - 1):
                    value *= t
                slope[k] = value
            # exp of the power series: m E_m = sum_k k L_k E_(m-k); F needs the sums E_0 + ... + E_m.
            term[0] = 1.0
            inside = head[j, n - 1]
            running = 1.0
            for m in range(1, n):
                value = 0.0
                for k in range(1, min(m, orders) + 1):
                    value += slope[k] * term[m - k]
                term[m] = value / m
                running += term[m]
                inside += head[j, n - 1 - m] * running
        else:
            inside = 0.0
            for m in range(n):
                inside += head[j, m]
        total += step * c * t * np.exp(-decay) * inside
    return min(total, 1.0)


@njit(cache=True, nogil=True)
def sweep(masses, outside, head, tail, race):
    """1 - Q after each of `masses` joins H in turn; `head` and `tail` hold H before and are updated in place.

    Args:
        masses: float64 (L,), q of the tokens in order.
        outside: float64 (L,), q off H after each (the caller sums it from the far end, for small remainders).
    """
    values = np.empty(masses.size)
    for i in range(masses.size):
        join(masses[i], head, tail, race)
        values[i] = missed(outside[i], head, tail, race)
    return values


@njit(cache=True, nogil=True)
def join(mass, head, tail, race):
    """One more token in H."""
    if mass * race.scale > race.head_limit:
        multiply(head, race, mass)
    else:
        power = mass * race.scale
        for k in range(tail.size):
            tail[k] += power
            power *= mass * race.scale


@njit(cache=True, nogil=True)
def join_all(masses, head, tail, race):
    """All of `masses`, float64 (L,), in H."""
    for i in range(masses.size):
        join(masses[i], head, tail, race)


@njit(cache=True, nogil=True)
def empty_state(race):
    """Head polynomials (T, n) and tail power sums (K,) of the empty set."""
    head = np.zeros((race.times.size, race.n))
    head[:, 0] = 1.0
    return head, np.zeros(_POWERS)


@njit(cache=True, nogil=True)
def suffix_sums(masses, beyond):
    """`beyond` plus what follows each entry, summed from the end."""
    outside = np.empty(masses.size)
    total = beyond
    for i in range(masses.size - 1, -1, -1):
        outside[i] = total
        total += masses[i]
    return outside


@njit(cache=True, nogil=True, error_model="numpy")
def race_minimum(p, q, ids, subset, race):
    """min over H of P(H) - Q(H) for n drafts without replacement: buckets of p/q, Q at every edge, few buckets sorted.

    Args:
        p, q: float64 (V,).
        ids: uint16 (V,), scratch; subset: bool (V,), written.

    Returns:
        P(H), Q(H).
    """
    p_sums = np.zeros(BUCKETS + 1)
    q_sums = np.zeros(BUCKETS + 1)
    fill_buckets(p, q, 1.0, 1.0, np.empty(0, np.int64), ids, p_sums, q_sums)
    tails = np.zeros((BUCKETS + 1, _POWERS))
    heads = 0
    for i in range(q.size):
        mass = q[i] * race.scale
        if mass > race.head_limit:
            heads += 1
        else:
            power = mass
            for k in range(_POWERS):
                tails[ids[i], k] += power
                power *= mass
    # Head tokens by bucket, largest bucket first, as the order of p/q runs.
    head_tokens = np.empty(heads, np.int64)
    found = 0
    for i in range(q.size):
        if q[i] * race.scale > race.head_limit:
            head_tokens[found] = i
            found += 1
    head_bucket = np.empty(heads, np.int64)
    for j in range(heads):
        head_bucket[j] = -np.int64(ids[head_tokens[j]])
    head_tokens = head_tokens[np.argsort(head_bucket, kind="mergesort")]

    outside = suffix_sums(q_sums[::-1], 0.0)[::-1]
    edge_q = np.zeros(BUCKETS + 2)
    edge_p = np.zeros(BUCKETS + 2)
    edge_x = np.zeros(BUCKETS + 2)
    head, tail = empty_state(race)
    best, best_bucket, best_count = 0.0, BUCKETS + 1, 0
    best_p, best_q = 0.0, 0.0
    used = 0
    for k in range(BUCKETS, -1, -1):
        while used < heads and ids[head_tokens[used]] == k:
            multiply(head, race, q[head_tokens[used]])
            used += 1
        for j in range(_POWERS):
            tail[j] += tails[k, j]
        edge_p[k] = edge_p[k + 1] + p_sums[k]
        edge_x[k] = edge_x[k + 1] + q_sums[k]
        # Q is never above with replacement's: every draft leaves less of H behind. Where that bound already loses, it
        # stands in for Q, and keeps the bucket bounds below lower bounds.
        at_most = min(edge_x[k], 1.0) ** race.n
        if edge_p[k] - at_most >= best:
            edge_q[k] = at_most
        elif q_sums[k] == 0.0:
            edge_q[k] = edge_q[k + 1]
        else:
            edge_q[k] = 1.0 - missed(outside[k], head, tail, race)
        if edge_p[k] - edge_q[k] < best:
            best, best_bucket, best_count = edge_p[k] - edge_q[k], k, 0
            best_p, best_q = edge_p[k], edge_q[k]
    order = np.empty(0, np.int64)
    head, tail = empty_state(race)
    used = 0
    for k in range(BUCKETS, -1, -1):
        bound = bucket_bound(k, q_sums[k], edge_p[k + 1], edge_p[k], edge_q[k + 1], edge_q[k])
        if bound < best - 2e-14:
            tokens = by_ratio(p, q, bucket_tokens(ids, k))
            inner_head, inner_tail = head.copy(), tail.copy()
            beyond = suffix_sums(q[tokens], outside[k])
            lost = sweep(q[tokens], beyond, inner_head, inner_tail, race)
            mass = edge_p[k + 1]
            for j in range(tokens.size):
                mass += p[tokens[j]]
                if mass - (1.0 - lost[j]) < best:
                    best, best_bucket, best_count = mass - (1.0 - lost[j]), k, j + 1
                    best_p, best_q = mass, 1.0 - lost[j]
                    order = tokens
        while used < heads and ids[head_tokens[used]] == k:
            multiply(head, race, q[head_tokens[used]])
            used += 1
        for j in range(_POWERS):
            tail[j] += tails[k, j]
    threshold = np.uint16(best_bucket + (1 if best_count else 0))
    for i in range(ids.size):
        subset[i] = ids[i] >= threshold
    for j in range(best_count):
        subset[order[j]] = True
    return best_p, best_q

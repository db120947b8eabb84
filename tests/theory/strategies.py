"""Distributions and drafts for property tests: the one place where their awkward shapes are listed.

Zeros, ties, equal p and q, point masses, disjoint supports, masses like 1e-300 beside 0.999, one token only, more
drafts than tokens. Every strategy shrinks towards few tokens of equal mass.
"""

from fractions import Fraction

import numpy as np
from hypothesis import strategies as st

from mdsd_theory import drafts

# Enumerations in tests stay at this many draft tuples or below.
MAX_TUPLES = 1300

SAMPLERS = drafts.NAMES

_PLAIN = st.sampled_from([1.0, 2.0, 3.0, 0.0])
_ANY = st.floats(0.001, 1.0)
_TINY = st.sampled_from([1e-300, 1e-150, 1e-40, 1e-17, 1e-12, 1e-9, 1e-4])
# Small whole numbers make ties, zeros and equal ratios; the others make generic and very uneven vectors.
_WEIGHT_KINDS = st.sampled_from([_PLAIN, _ANY, _PLAIN | _ANY, _PLAIN | _TINY, _ANY | _TINY])


def sizes(min_size=1, max_size=6):
    """Vocabulary sizes V."""
    return st.integers(min_size, max_size)


@st.composite
def _of_size(draw, size, support=None):
    """A distribution over `size` tokens, with mass only where `support` (bool, at least one True) allows it."""
    support = np.ones(size, dtype=bool) if support is None else support
    held = np.flatnonzero(support)
    p = np.zeros(size)
    if draw(st.integers(0, 9)) == 9:
        p[draw(st.sampled_from(held.tolist()))] = 1.0
        return p
    kind = draw(_WEIGHT_KINDS)
    weights = np.array(draw(st.lists(kind, min_size=held.size, max_size=held.size)))
    if not weights.any():
        weights[draw(st.integers(0, held.size - 1))] = 1.0
    # Largest weight to 1 first: a vector of 1e-300s alone would divide by a denormal sum.
    weights = weights / weights.max()
    p[held] = weights / weights.sum()
    return p


def distributions(min_size=1, max_size=6):
    """float64 (V,), sums to 1."""
    return sizes(min_size, max_size).flatmap(_of_size)


@st.composite
def _pair_of_size(draw, size):
    q = draw(_of_size(size))
    relation = draw(st.sampled_from(["any", "any", "any", "equal", "nearly equal", "permuted", "disjoint"]))
    if relation == "equal":
        return q.copy(), q
    if relation == "nearly equal":
        p = q * (
            1.0 + np.array(draw(st.lists(st.sampled_from([0.0, 1e-16, -1e-13, 1e-9]), min_size=size, max_size=size)))
        )
        return p / p.sum(), q
    if relation == "permuted":
        return q[np.array(draw(st.permutations(range(size))), dtype=int)], q
    if relation == "disjoint" and (q == 0).any():
        return draw(_of_size(size, support=q == 0)), q
    return draw(_of_size(size)), q


def pairs(min_size=1, max_size=6):
    """(p, q): two float64 (V,) over one vocabulary."""
    return sizes(min_size, max_size).flatmap(_pair_of_size)


@st.composite
def exact_distributions(draw, size):
    """Fractions (V,), object dtype, sums to 1."""
    weights = draw(st.lists(st.integers(0, 12) | st.sampled_from([10**6, 10**18]), min_size=size, max_size=size))
    if not any(weights):
        weights[draw(st.integers(0, size - 1))] = 1
    p = np.empty(size, dtype=object)
    p[:] = [Fraction(w, sum(weights)) for w in weights]
    return p


@st.composite
def drafts_of(draw, q, samplers=SAMPLERS, max_n=4):
    """A draft of one of the samplers from the drafter's distribution q.

    Samplers that take more than q (independent, joint) draw the rest. n is at most `max_n`, less where there would be
    more than `MAX_TUPLES` draft tuples; it may exceed V.

    Args:
        q: float64 (V,), or Fractions.
    """
    q = np.asarray(q)
    size = q.size
    most = max(n for n in range(1, max_n + 1) if n == 1 or size**n <= MAX_TUPLES)
    name = draw(st.sampled_from(list(samplers)))
    if name == "spechub":
        return drafts.SpecHub(q)
    n = draw(st.integers(1, most))
    one_more = exact_distributions if q.dtype == object else _of_size
    if name == "independent":
        return drafts.Independent([q] + [draw(one_more(size)) for _ in range(n - 1)])
    if name == "joint":
        cells = draw(st.lists(st.tuples(*[st.integers(0, size - 1)] * n), min_size=1, max_size=12, unique=True))
        table = np.full((size,) * n, 0 * q[0], dtype=q.dtype)
        for cell, mass in zip(cells, draw(one_more(len(cells))), strict=True):
            table[cell] = mass
        return drafts.Joint(table)
    if name == "top-then-sample":
        return drafts.TopThenSample(q, n, draw(st.integers(0, n)))
    return drafts.make(name, q, n=n)


@st.composite
def drafted(draw, samplers=SAMPLERS, min_size=1, max_size=6, max_n=4):
    """(p, draft): a target float64 (V,) and a draft over the same vocabulary."""
    p, q = draw(pairs(min_size, max_size))
    return p, draw(drafts_of(q, samplers, max_n))


@st.composite
def exact_drafted(draw, samplers=SAMPLERS, min_size=1, max_size=4, max_n=3):
    """(p, draft) in Fractions."""
    size = draw(sizes(min_size, max_size))
    p, q = draw(exact_distributions(size)), draw(exact_distributions(size))
    return p, draw(drafts_of(q, samplers, max_n))

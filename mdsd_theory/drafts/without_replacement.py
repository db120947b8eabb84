"""n distinct draft tokens, drawn one after another from q renormalised on what is left."""

from __future__ import annotations

from functools import cache, cached_property
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mdsd_theory.drafts.base import Draft, all_tuples, draw_tokens
from mdsd_theory.kernels import BUCKETS
from mdsd_theory.race import Race, empty_state, join_all, make_race, missed, race_minimum, suffix_sums, sweep
from mdsd_theory.subsets import Minimum

# Exponential races are run on at most this many numbers at a time.
_CHUNK = 4_000_000


class WithoutReplacement(Draft):
    """x_k ~ q without x_1..x_(k-1), renormalised ([5] Yang et al. 2024, Jeon et al. 2024, Chen et al. 2024; [1],
    section 4).

    Q(H) is the sum over ordered distinct tuples inside H of prod_k q(x_k) / (1 - q(x_1) - ... - q(x_(k-1))), computed
    as an exponential race (`mdsd_theory.race`) to about 1e-14. A support smaller than n is proposed whole (`width`
    tokens).

    Args:
        q: drafter's distribution, shape (V,).
        n: number of draft tokens, >= 1.

    Raises:
        ValueError: q is no distribution or n < 1.
    """

    name = "without-replacement"
    q_convex = True

    def __init__(self, q: ArrayLike, n: int) -> None:
        self._read(q, n)

    @cached_property
    def width(self) -> int:
        return min(self.n, int(np.count_nonzero(self.q)))

    @cached_property
    def _race(self) -> Race:
        return make_race(self.q, self.width)

    def sample(self, rng: np.random.Generator, size: int) -> NDArray[np.int64]:
        # The distinct tokens of an i.i.d. stream, in order, are a draw without replacement.
        n = self.width
        stream = draw_tokens(self._cdf, rng, (size, 2 * n + 6))
        tokens = np.full((size, n), -1, dtype=np.int64)
        count = np.zeros(size, dtype=np.int64)
        for column in stream.T:
            open_rows = np.flatnonzero((count < n) & ~(tokens == column[:, None]).any(axis=1))
            tokens[open_rows, count[open_rows]] = column[open_rows]
            count[open_rows] += 1
        rows = np.flatnonzero(count < n)
        for chunk in np.array_split(rows, max(1, rows.size * self.vocab_size // _CHUNK)):
            self._finish(rng, tokens, count, chunk)
        return tokens

    def _finish(self, rng: np.random.Generator, tokens: NDArray, count: NDArray, rows: NDArray) -> None:
        """Draw what rows with repeats still lack, by a race of the tokens they do not hold."""
        if rows.size == 0:
            return
        with np.errstate(divide="ignore", over="ignore"):
            # Logarithms of the arrival times, since q may be 1e-300.
            arrival = np.log(rng.standard_exponential((rows.size, self.vocab_size))) - np.log(self.q.astype(np.float64))
        for row, times in zip(rows, arrival, strict=True):
            times[tokens[row, : count[row]]] = np.inf
            lacking = self.width - count[row]
            first = np.argpartition(times, lacking - 1)[:lacking]
            tokens[row, count[row] :] = first[np.argsort(times[first])]

    def subset_mass(self, subset: ArrayLike) -> float:
        mask = self._mask(subset)
        if self.exact:
            return self._exact_mass(frozenset(np.flatnonzero(mask & (self.q > 0)).tolist()))
        inside = self.q[mask & (self.q > 0)]
        if self.width == 1:
            return min(float(inside.sum()), 1.0)
        if inside.size < self.width:
            return 0.0
        head, tail = empty_state(self._race)
        join_all(inside, head, tail, self._race)
        return 1.0 - missed(float(self.q[~mask].sum()), head, tail, self._race)

    def prefix_masses(self, order: ArrayLike) -> NDArray:
        order = np.asarray(order, dtype=np.int64)
        masses = np.zeros(order.size + 1, dtype=self.q.dtype)
        if self.exact:
            for j in range(1, order.size + 1):
                masses[j] = self.subset_mass(order[:j])
            return masses
        inside = self.q[order]
        if self.width == 1:
            masses[1:] = np.minimum(np.cumsum(inside), 1.0)
            return masses
        off = np.ones(self.vocab_size, dtype=bool)
        off[order] = False
        outside = suffix_sums(inside, float(self.q[off].sum()))
        head, tail = empty_state(self._race)
        masses[1:] = 1.0 - sweep(inside, outside, head, tail, self._race)
        # Fewer tokens than draws cannot hold them all, whatever rounding says.
        masses[1:][np.cumsum(inside > 0) < self.width] = 0.0
        return masses

    def minimum(self, p: NDArray) -> Minimum:
        if self.exact or self.width == 1 or self.vocab_size <= BUCKETS:
            return super().minimum(p)
        subset = np.empty(self.vocab_size, dtype=bool)
        ids = np.empty(self.vocab_size, dtype=np.uint16)
        return Minimum(subset, *race_minimum(p, self.q, ids, subset, self._race))

    def _exact_mass(self, inside: frozenset[int]) -> object:
        """Q in Fractions: the mass of every set of `width` tokens as the set drawn, summed over those inside."""
        q = self.q

        @cache
        def drawn(held: frozenset[int]) -> object:
            if not held:
                return 1 + 0 * q[0]
            return sum(drawn(held - {x}) * q[x] / (1 - sum(q[y] for y in held if y != x)) for x in held)

        return sum((drawn(frozenset(s)) for s in combinations(sorted(inside), self.width)), 0 * q[0])

    def joint(self) -> tuple[NDArray[np.int64], NDArray]:
        support = np.flatnonzero(self.q > 0)
        tokens = all_tuples(support, self.width, distinct=True)
        probability = np.ones(len(tokens), dtype=self.q.dtype)
        for k in range(self.width):
            left = np.zeros(len(tokens), dtype=self.q.dtype)
            # Sum what is left, token by token, instead of subtracting what is gone from 1: exact for peaked q.
            for token in support:
                left = left + np.where((tokens[:, :k] == token).any(axis=1), 0 * self.q[0], self.q[token])
            # The quotient first: masses near the smallest floats would vanish in the product.
            probability = probability * (self.q[tokens[:, k]] / left)
        return tokens, probability

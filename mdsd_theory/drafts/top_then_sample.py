"""The largest tokens for certain, the others i.i.d.: one family from i.i.d. drafts (top = 0) to deterministic ones (top
= n).

[1] Hu et al. 2025, section 5 (greedy, top = n - 1); [6] Sun et al. 2024 (SpecHub, whose pairs are greedy's as a set);
[9] Li et al. 2024 (EAGLE's deterministic trees, top = n).
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mdsd_theory.drafts.base import Draft, all_tuples, check_count, draw_tokens
from mdsd_theory.kernels import BUCKETS, iid_minimum, largest_tokens
from mdsd_theory.subsets import Minimum, prefix_minimum, ratio_order


class TopThenSample(Draft):
    """Top = the `top` tokens of largest q (ties: lower ids first), then m = n - top i.i.d. from q' = q renormalised off
    Top.

    Q(H) = 0 unless Top is inside H, else q'(H without Top)^m. Tokens of q = 0 are never drafted: where the support has
    no more than `top` tokens, Top is the support and nothing is sampled.

    Args:
        q: drafter's distribution, shape (V,).
        n: number of draft tokens, >= 1.
        top: how many of them are deterministic, 0 to n.

    Raises:
        ValueError: q is no distribution, n or top out of range.
    """

    name = "top-then-sample"

    def __init__(self, q: ArrayLike, n: int, top: int) -> None:
        self._read(q, n)
        self.top = check_count(top, "top", 0, self.n)

    @cached_property
    def top_tokens(self) -> NDArray[np.int64]:
        """Top, largest q first, int64 (k,) with k = min(top, size of the support)."""
        if self.exact or self.top > 256:
            order = np.argsort(-self.q, kind="stable")[: self.top]
        else:
            order = largest_tokens(self.q, self.top)
        return order[self.q[order] > 0].astype(np.int64)

    @cached_property
    def _sorted_top(self) -> NDArray[np.int64]:
        return np.sort(self.top_tokens)

    @cached_property
    def rest_mass(self) -> float:
        """q off Top (summed there, not 1 minus Top's mass, which would lose small tails)."""
        if self.top_tokens.size == 0:
            return self.q.sum()
        rest = self.q.copy()
        rest[self.top_tokens] = 0 * self.q[0]
        return rest.sum()

    @cached_property
    def sampled(self) -> int:
        """m, the number of i.i.d. draws: n - top, or 0 when nothing is left off Top."""
        return self.n - self.top if self.rest_mass > 0 else 0

    @property
    def width(self) -> int:
        return self.top_tokens.size + self.sampled

    @cached_property
    def rest(self) -> NDArray:
        """q', shape (V,): q renormalised off Top, 0 on Top (all 0 when nothing is left)."""
        if self.top_tokens.size == 0:
            return self.q
        rest = self.q.copy()
        rest[self.top_tokens] = 0 * self.q[0]
        return rest / self.rest_mass if self.rest_mass > 0 else rest

    @cached_property
    def _cdf(self) -> NDArray[np.float64]:
        return np.cumsum(self.rest.astype(np.float64))

    @cached_property
    def scaled_rest(self) -> tuple[NDArray, float]:
        """An array and a factor whose product is q' off Top: q itself, not copied, unless 1 / rest_mass overflows."""
        return (self.q, 1.0 / self.rest_mass) if self.rest_mass > 1e-300 else (self.rest, 1.0)

    def sample(self, rng: np.random.Generator, size: int) -> NDArray[np.int64]:
        tokens = np.empty((size, self.width), dtype=np.int64)
        tokens[:, : self.top_tokens.size] = self.top_tokens
        if self.sampled:
            tokens[:, self.top_tokens.size :] = draw_tokens(self._cdf, rng, (size, self.sampled))
        return tokens

    def subset_mass(self, subset: ArrayLike) -> float:
        mask = self._mask(subset)
        if not mask[self.top_tokens].all():
            return 0 * self.rest_mass
        return _capped(self.rest[mask].sum(initial=0 * self.rest_mass)) ** self.sampled

    def prefix_masses(self, order: ArrayLike) -> NDArray:
        order = np.asarray(order, dtype=np.int64)
        inside = np.zeros(order.size + 1, dtype=self.q.dtype)
        inside[1:] = np.cumsum(self.rest[order])
        complete = np.zeros(order.size + 1, dtype=np.int64)
        complete[1:] = np.cumsum(np.isin(order, self.top_tokens))
        masses = _capped(inside) ** self.sampled
        masses[complete < self.top_tokens.size] = 0
        return masses

    def inclusion(self) -> NDArray:
        inclusion = 1 - (1 - self.rest) ** self.sampled
        inclusion[self.top_tokens] = 1
        return inclusion

    def minimum(self, p: NDArray) -> Minimum:
        if self.exact:
            # Q is convex in q' behind Top: Top and a prefix of the others, or nothing.
            others = np.setdiff1d(ratio_order(p, self.rest), self.top_tokens, assume_unique=True)
            return prefix_minimum(p, self, np.concatenate([self.top_tokens, others]))
        subset = np.empty(self.vocab_size, dtype=bool)
        if self.sampled == 0:
            subset[:] = False
            subset[self.top_tokens] = True
            return Minimum(subset, float(p[self.top_tokens].sum()), 1.0)
        target, draft, *_ = self.bucketed_minimum(p, subset)
        return Minimum(subset, sum(p[self.top_tokens].tolist()) + target, draft**self.sampled)

    def bucketed_minimum(self, p: NDArray, subset: NDArray) -> tuple[float, float, int, NDArray, NDArray, NDArray]:
        """P and q' of H* without Top, the last bucket it reaches, and the buckets (ids, sums of p and q').

        Only for drafts that sample (`sampled` >= 1).

        Args:
            p: float64 (V,), checked.
            subset: bool (V,), written: H*.
        """
        ids = np.empty(self.vocab_size, dtype=np.uint16)
        sums = np.empty((2, BUCKETS + 1))
        q, scale = self.scaled_rest
        masses = iid_minimum(p, q, 1.0, scale, self._sorted_top, self.sampled, ids, *sums, subset)
        return *masses, ids, *sums

    def joint(self) -> tuple[NDArray[np.int64], NDArray]:
        drawn = all_tuples(np.flatnonzero(self.rest > 0), self.sampled, distinct=False)
        tokens = np.empty((len(drawn), self.width), dtype=np.int64)
        tokens[:, : self.top_tokens.size] = self.top_tokens
        tokens[:, self.top_tokens.size :] = drawn
        return tokens, self.rest[drawn].prod(axis=1) if self.sampled else np.ones(1, dtype=self.q.dtype)


def _capped(mass: NDArray) -> NDArray:
    """Rounding may carry a sum of masses past 1; the power would magnify it."""
    return np.minimum(mass, 1)


class Greedy(TopThenSample):
    """The n - 1 tokens of largest q, then one draw from the rest: TopThenSample with top = n - 1 ([1], section 5)."""

    name = "greedy"

    def __init__(self, q: ArrayLike, n: int) -> None:
        super().__init__(q, n, check_count(n, "n") - 1)

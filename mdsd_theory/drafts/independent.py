"""One draft from each of several different drafters."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import product

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mdsd_theory.distributions import distribution
from mdsd_theory.drafts.base import JOINT_LIMIT, Draft, draw_tokens


class Independent(Draft):
    """x_k ~ q_k, independent, so Q(H) = prod_k q_k(H) ([7] Khisti et al. 2024). Not q-convex: the prefix rule does not
    hold.

    Args:
        qs: the drafters' distributions over one vocabulary, at least one.

    Raises:
        ValueError: none given, or one is no distribution (`qs[k]`) or of another length than the first.
    """

    name = "independent"

    def __init__(self, qs: Sequence[ArrayLike]) -> None:
        qs = list(qs)
        if not qs:
            raise ValueError("qs: no drafters; needed is at least one distribution")
        first = distribution(qs[0], "qs[0]")
        self.qs = np.array([first] + [distribution(q, f"qs[{k}]", first.size) for k, q in enumerate(qs[1:], 1)])
        self.n, self.vocab_size = self.qs.shape

    @property
    def q(self) -> NDArray:
        """The first drafter's distribution."""
        return self.qs[0]

    @cached_property
    def _cdfs(self) -> NDArray[np.float64]:
        return np.cumsum(self.qs.astype(np.float64), axis=1)

    def sample(self, rng: np.random.Generator, size: int) -> NDArray[np.int64]:
        return np.stack([draw_tokens(cdf, rng, (size,)) for cdf in self._cdfs], axis=1)

    def subset_mass(self, subset: ArrayLike) -> float:
        return np.minimum((self.qs * self._mask(subset)).sum(axis=1), 1).prod()

    def prefix_masses(self, order: ArrayLike) -> NDArray:
        order = np.asarray(order, dtype=np.int64)
        masses = np.zeros(order.size + 1, dtype=self.qs.dtype)
        masses[1:] = np.minimum(np.cumsum(self.qs[:, order], axis=1), 1).prod(axis=0)
        return masses

    def inclusion(self) -> NDArray:
        return 1 - (1 - self.qs).prod(axis=0)

    def all_subset_masses(self) -> NDArray:
        masses = np.zeros((self.n, 2**self.vocab_size), dtype=self.qs.dtype)
        for i in range(self.vocab_size):
            masses[:, 2**i : 2 ** (i + 1)] = masses[:, : 2**i] + self.qs[:, i, None]
        return np.minimum(masses, 1).prod(axis=0)

    def joint(self) -> tuple[NDArray[np.int64], NDArray]:
        supports = [np.flatnonzero(q > 0) for q in self.qs]
        count = int(np.prod([float(s.size) for s in supports]))
        if count * self.n > JOINT_LIMIT:
            raise ValueError(f"joint: {count:,} tuples of {self.n} tokens; enumeration is for small vocabularies")
        tokens = np.array(list(product(*supports)), dtype=np.int64).reshape(count, self.n)
        return tokens, self.qs[np.arange(self.n), tokens].prod(axis=1)

"""Any law of the draft tuple, given as a table."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mdsd_theory.distributions import as_array, distribution
from mdsd_theory.drafts.base import JOINT_LIMIT, Draft, draw_tokens


class Joint(Draft):
    """Drafts with the joint probability table[x_1, ..., x_n]; Q by enumeration. In general not q-convex.

    Args:
        table: shape (V,) * n, entries >= 0 that sum to 1.

    Raises:
        ValueError: the axes differ in length, or the table is no distribution.
    """

    name = "joint"

    def __init__(self, table: ArrayLike) -> None:
        array, _ = as_array(table, "table")
        if array.ndim == 0 or array.size == 0 or len(set(array.shape)) != 1:
            raise ValueError(f"table: shape {array.shape}; needed is (V,) * n with V, n >= 1")
        if array.size * array.ndim > JOINT_LIMIT:
            raise ValueError(f"table: {array.size:,} entries; enumeration is for small vocabularies")
        # Flattened through numpy or torch alike, so that 16-bit input keeps its tolerance.
        flat = table.reshape(-1) if hasattr(table, "reshape") else np.asarray(table).reshape(-1)
        self.table = distribution(flat, "table").reshape(array.shape)
        self.n, self.vocab_size = array.ndim, array.shape[0]
        self._tokens = np.argwhere(self.table > 0).astype(np.int64)
        self._probability = self.table[tuple(self._tokens.T)]

    @property
    def q(self) -> NDArray:
        """The law of the first draft."""
        return self.table.reshape(self.vocab_size, -1).sum(axis=1)

    @property
    def exact(self) -> bool:
        return self.table.dtype == object

    def sample(self, rng: np.random.Generator, size: int) -> NDArray[np.int64]:
        return self._tokens[draw_tokens(np.cumsum(self._probability.astype(np.float64)), rng, (size,))]

    def subset_mass(self, subset: ArrayLike) -> float:
        inside = self._mask(subset)[self._tokens].all(axis=1)
        return self._probability[inside].sum() if inside.any() else 0 * self._probability[0]

    def prefix_masses(self, order: ArrayLike) -> NDArray:
        order = np.asarray(order, dtype=np.int64)
        rank = np.full(self.vocab_size, order.size)
        rank[order] = np.arange(order.size)
        # A tuple is inside the prefix of length j when its latest token has rank below j.
        masses = np.zeros(order.size + 2, dtype=self.table.dtype)
        np.add.at(masses, rank[self._tokens].max(axis=1) + 1, self._probability)
        return np.cumsum(masses[:-1])

    def joint(self) -> tuple[NDArray[np.int64], NDArray]:
        return self._tokens, self._probability

"""SpecHub's pairs: every pair holds the hub, the token of largest q."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mdsd_theory.drafts.top_then_sample import TopThenSample


class SpecHub(TopThenSample):
    """Two drafts around the hub a = argmax q ([6] Sun et al. 2024): x ~ q; the pair is (x, a) if x != a, else (a, y), y
    ~ q without a.

    As a set the pair is {a, y} with y ~ q off a, exactly greedy's for n = 2, hence the same Q; which of the two came
    first is what SpecHub's own plan reads.
    """

    name = "spechub"

    def __init__(self, q: ArrayLike) -> None:
        super().__init__(q, 2, 1)

    @property
    def hub(self) -> int:
        return int(self.top_tokens[0])

    def sample(self, rng: np.random.Generator, size: int) -> NDArray[np.int64]:
        pairs = super().sample(rng, size)
        if pairs.shape[1] == 2:
            hub_second = rng.random(size) >= float(self.q[self.hub])
            pairs[hub_second] = pairs[hub_second, ::-1]
        return pairs

    def joint(self) -> tuple[NDArray[np.int64], NDArray]:
        pairs, probability = super().joint()
        if pairs.shape[1] == 1:
            return pairs, probability
        first = self.q[self.hub]
        return np.concatenate([pairs, pairs[:, ::-1]]), np.concatenate([probability * first, self.q[pairs[:, 1]]])

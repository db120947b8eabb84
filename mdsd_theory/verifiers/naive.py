"""Draw y ~ p and call it accepted when it is among the drafts: the baseline of many engines."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mdsd_theory.drafts.base import Draft
from mdsd_theory.verifiers.base import Law, Verifier


class State(NamedTuple):
    p: NDArray
    draft: Draft


class Naive(Verifier):
    """Emit y ~ p whatever the drafts ([4] Miao et al. 2023, its baseline). Serves every sampler.

    Acceptance rate: sum_i p(i) Pr(i among the drafts). Optimal for deterministic drafts.
    """

    name = "naive"

    def refusal(self, draft: Draft) -> None:
        return None

    def _prepare(self, p: NDArray, draft: Draft) -> State:
        return State(p, draft)

    def _law(self, state: State, tokens: NDArray[np.int64]) -> Law:
        return Law(np.zeros(tokens.size, dtype=state.p.dtype), 1 + 0 * state.p[0], state.p)

    def _rate(self, state: State) -> float | None:
        inclusion = state.draft.inclusion()
        return None if inclusion is None else (state.p * inclusion).sum()

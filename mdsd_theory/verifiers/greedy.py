"""The optimal verifier of greedy drafts: certain tokens are accepted whenever the residual lands on them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mdsd_theory.drafts.base import Draft
from mdsd_theory.verifiers.base import Law, Verifier, acceptance_ratio, is_top_then_sample, positive_part


class State(NamedTuple):
    """Attributes: p, q' (V,), Top as a mask (V,), the residual (V,) and the acceptance rate."""

    p: NDArray
    rest: NDArray
    top: NDArray[np.bool_]
    residual: NDArray
    rate: float


class Greedy(Verifier):
    """Drafts Top and one x ~ q'. Accept x with probability min(1, p(x)/q'(x)), else sample p on Top, (p - q')_+ off
    Top.

    Landing on Top counts as accepted: it is a draft. Acceptance rate: P(Top) + sum off Top of min(p, q') = alpha*
    ([1] Hu et al. 2025, section 5.2). The kernel reads the drafts as a set.
    """

    name = "greedy"

    def refusal(self, draft: Draft) -> str | None:
        if is_top_then_sample(draft) and draft.sampled <= 1:
            return None
        return "it needs top-then-sample drafts with at most one sampled token (top = n - 1, or deterministic)"

    def _prepare(self, p: NDArray, draft: Draft) -> State:
        top = np.zeros(p.size, dtype=bool)
        top[draft.top_tokens] = True
        residual, rejected = positive_part(p - draft.rest, p)
        if not draft.sampled:
            return State(p, draft.rest, top, p, p[top].sum())
        return State(p, draft.rest, top, residual, 1 - rejected + p[top].sum())

    def _law(self, state: State, tokens: NDArray[np.int64]) -> Law:
        # q' is 0 on Top, so certain tokens have no test to pass.
        accepted = acceptance_ratio(state.p[tokens], state.rest[tokens])
        return Law(accepted, 1 - accepted.sum(), state.residual)

    def _rate(self, state: State) -> float:
        return state.rate

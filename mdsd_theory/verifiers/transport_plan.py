"""The verifier read off an optimal coupling: optimal for every sampler, for vocabularies small enough to enumerate."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mdsd_theory.drafts.base import Draft
from mdsd_theory.flow import draft_sets, maximum_flow
from mdsd_theory.verifiers.base import Law, Verifier, acceptance_ratio, positive_part


class State(NamedTuple):
    """Attributes:
    accept: for every set of draft tokens (sorted), the probability that each of them is emitted as a draft.
    residual: (V,), what all other mass is sampled from.
    rate: the acceptance rate.
    """

    accept: dict[tuple[int, ...], NDArray]
    residual: NDArray
    rate: float


class TransportPlan(Verifier):
    """Emit i given the drafts x with probability pi(x, i) / p_draft(x), pi an optimal coupling of the transport LP ([1]
    Hu et al. 2025, section 3; [2] Sun et al. 2023).

    Which draft came first does not matter to an optimum, so the LP runs over sets of draft tokens. Serves every sampler
    whose tuples `draft.joint()` can list; acceptance rate alpha*. Whatever the LP's rounding, the output is p: mass it
    leaves unserved is rejected and sampled from what p still lacks.
    """

    name = "transport"

    def refusal(self, draft: Draft) -> str | None:
        return "its linear program is solved in floating point, not in Fractions" if draft.exact else None

    def _prepare(self, p: NDArray, draft: Draft) -> State:
        keys, sets, tokens, supply = draft_sets(*draft.joint())
        flow = maximum_flow(sets, tokens, supply, p)
        lacking = p - np.bincount(tokens, flow, p.size)
        residual, _ = positive_part(lacking, p)
        accepted = acceptance_ratio(flow, supply[sets])
        rejected = np.maximum(supply - np.bincount(sets, flow, supply.size), 0.0)
        rate = flow.sum() + (rejected[sets] * residual[tokens]).sum()
        starts = np.searchsorted(sets, np.arange(len(keys)))
        return State(dict(zip(keys, np.split(accepted, starts[1:]), strict=True)), residual, float(rate))

    def _law(self, state: State, tokens: NDArray[np.int64]) -> Law:
        members, first = np.unique(tokens, return_index=True)
        accepted = np.zeros(tokens.size)
        accepted[first] = state.accept[tuple(members.tolist())]
        return Law(accepted, max(1.0 - accepted.sum(), 0.0), state.residual)

    def _rate(self, state: State) -> float:
        return state.rate

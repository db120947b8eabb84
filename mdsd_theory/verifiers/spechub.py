"""SpecHub's own sparse transport plan for pairs that hold the hub."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mdsd_theory.drafts.base import Draft
from mdsd_theory.drafts.spechub import SpecHub as SpecHubDraft
from mdsd_theory.verifiers.base import Law, Verifier, acceptance_ratio, is_hub_pair, positive_part


class State(NamedTuple):
    """Masses of the two kinds of pair and what each sends to the token beside the hub.

    Attributes:
        p: (V,); hub: the token a.
        accept_first: (V,), probability that (x, a) emits x; accept_second: (V,), that (a, x) emits x.
        residual: (V,), what all other mass is sampled from (a included).
        rate: the acceptance rate.
    """

    p: NDArray
    hub: int
    accept_first: NDArray
    accept_second: NDArray
    residual: NDArray
    rate: float


class SpecHub(Verifier):
    """Pairs (x, a) and (a, x) around the hub a ([6] Sun et al. 2024, section 4).

    Plan, in order: pairs (x, a) send min(p(x), q(x)) to x; pairs (a, x), of mass q(a) q(x) / (1 - q(a)), send to x what
        p(x) still lacks;
    all mass left goes to a until p(a) is served, the rest to the tokens still lacking. Acceptance rate: p(a) + sum over
    x != a of min(p(x), q(x)/(1 - q(a))), greedy's for n = 2, hence alpha*. Unlike greedy's, its law depends on which of
    the two tokens was drawn first.
    """

    name = "spechub"

    def refusal(self, draft: Draft) -> str | None:
        return (
            None
            if is_hub_pair(draft)
            else "it needs pairs that hold the token of largest q (spechub, or n = 2 with top = 1)"
        )

    def _prepare(self, p: NDArray, draft: Draft) -> State:
        hub = int(draft.top_tokens[0])
        rest = draft.rest if draft.sampled else 0 * draft.rest
        off_hub = p.copy()
        off_hub[hub] = 0
        # The mass of (x, a): q(x) for SpecHub's sampler; a sampler that always puts the certain token first has none.
        first = rest * draft.rest_mass if isinstance(draft, SpecHubDraft) else 0 * rest
        second = rest - first
        served = np.minimum(off_hub, first)
        lacking = off_hub - served
        residual, rejected = positive_part(p - rest, p)
        rate = 1 - rejected + p[hub] if draft.sampled else p[hub]
        return State(
            p,
            hub,
            acceptance_ratio(off_hub, first),
            acceptance_ratio(lacking, second),
            residual if draft.sampled else p,
            rate,
        )

    def _law(self, state: State, tokens: NDArray[np.int64]) -> Law:
        accepted = np.zeros(tokens.size, dtype=state.p.dtype)
        if tokens.size == 2:
            hub_first = tokens[0] == state.hub
            other = int(tokens[1] if hub_first else tokens[0])
            accepted[int(hub_first)] = (state.accept_second if hub_first else state.accept_first)[other]
        return Law(accepted, 1 - accepted.sum(), state.residual)

    def _rate(self, state: State) -> float:
        return state.rate

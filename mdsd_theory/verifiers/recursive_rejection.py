"""Recursive rejection sampling (RRS): try the drafts one after another, each against what is left of the target."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mdsd_theory.drafts.base import Draft
from mdsd_theory.drafts.independent import Independent
from mdsd_theory.drafts.without_replacement import WithoutReplacement
from mdsd_theory.verifiers.base import Law, Verifier, acceptance_ratio, is_iid, positive_part


class Fixed(NamedTuple):
    """Step k's draft distribution does not depend on the drafts before it.

    Attributes:
        p: (V,).
        qs: (n, V), step k's draft distribution (one row broadcast where they are equal).
        left: (n,), the total of (r_k - q_k)_+, which is the probability that step k rejects.
        residual: (V,), r_(n+1).
    """

    p: NDArray
    qs: NDArray
    left: NDArray
    residual: NDArray


class Changing(NamedTuple):
    """Drafts without replacement: step k's distribution is q without the drafts before it."""

    p: NDArray
    q: NDArray


class RecursiveRejection(Verifier):
    """r_1 = p; accept x_k with probability min(1, r_k(x_k) / q_k(x_k)), else r_(k+1) = (r_k - q_k)_+ normalised.

    With replacement q_k = q ([4] Miao et al. 2023, SpecInfer) and the acceptance rate is 1 - prod_k (1 - sum min(r_k,
    q)); without replacement q_k = q without x_1..x_(k-1), renormalised, in the test and in the residual ([5] Yang et
    al. 2024, Jeon et al. 2024, Chen et al. 2024), and the rate is known by enumeration or sampling only; independent
    drafters: each step its own q_k.
    """

    name = "rrs"

    def refusal(self, draft: Draft) -> str | None:
        if is_iid(draft) or isinstance(draft, (WithoutReplacement, Independent)):
            return None
        return "its steps need drafts sampled one by one, with or without replacement or from independent drafters"

    def _prepare(self, p: NDArray, draft: Draft) -> Fixed | Changing:
        if isinstance(draft, WithoutReplacement) and draft.n > 1:  # one draft has nothing before it
            return Changing(p, draft.q)
        qs = draft.qs if isinstance(draft, Independent) else np.broadcast_to(draft.q, (draft.n, draft.vocab_size))
        r, left = p, np.zeros(len(qs), dtype=p.dtype)
        for k, q in enumerate(qs):
            r, left[k] = positive_part(r - q, p)
        return Fixed(p, qs, left, r)

    def _law(self, state: Fixed | Changing, tokens: NDArray[np.int64]) -> Law:
        if isinstance(state, Changing):
            return _changing_law(state.p, state.q, tokens)
        # r_k at the drafts alone: (r_k - q_k)_+ is scaled by a number that `prepare` knows.
        accepted = np.zeros(tokens.size, dtype=state.p.dtype)
        reach, r = 1 + 0 * state.p[0], state.p[tokens]
        for k, x in enumerate(tokens):
            q = state.qs[k]
            accept = acceptance_ratio(r[k : k + 1], q[x : x + 1])[0]
            accepted[k], reach = reach * accept, reach * (1 - accept)
            r = np.maximum(r - q[tokens], 0) / state.left[k] if state.left[k] > 0 else state.p[tokens]
        return Law(accepted, reach, state.residual)

    def _rate(self, state: Fixed | Changing) -> float | None:
        # sum min(r_k, q_k) = 1 - sum (r_k - q_k)_+ for a normalised r_k.
        return None if isinstance(state, Changing) else 1 - state.left.prod()


def _changing_law(p: NDArray, q: NDArray, tokens: NDArray[np.int64]) -> Law:
    accepted = np.zeros(tokens.size, dtype=p.dtype)
    reach, r, q = 1 + 0 * p[0], p, q.copy()
    for k, x in enumerate(tokens):
        step = q / q.sum()
        accept = acceptance_ratio(r[x : x + 1], step[x : x + 1])[0]
        accepted[k], reach = reach * accept, reach * (1 - accept)
        r, _ = positive_part(r - step, p)
        q[x] = 0
    return Law(accepted, reach, r)

"""K-SEQ: every draft is tested against one scaled-down target."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from mdsd_theory.drafts.base import Draft
from mdsd_theory.kernels import scaled_overlap
from mdsd_theory.verifiers.base import Law, Verifier, acceptance_ratio, is_iid, positive_part


class State(NamedTuple):
    """gamma, p / gamma and q for the tests, the overlap sum min(gamma q, p) and the residual."""

    p: NDArray
    q: NDArray
    gamma: float
    rate: float
    residual: NDArray


class KSeq(Verifier):
    """Accept each x_k in turn with probability min(1, p(x_k) / (gamma q(x_k))), else sample the residual ([2] Sun et
    al. 2023).

    With b(gamma) = sum min(q, p/gamma), gamma* is the smallest gamma in [1, n] with 1 - (1 - b)^n <= gamma b; there the
    residual is (p - gamma q)_+. Acceptance rate: sum min(gamma* q, p) >= (1 - (1 - 1/n)^n) alpha* ([2], Theorem 2).
    """

    name = "kseq"

    def refusal(self, draft: Draft) -> str | None:
        if draft.exact:
            return "gamma is irrational, so there are no Fractions to compute with"
        return None if is_iid(draft) else "its test needs i.i.d. drafts (with replacement)"

    def _prepare(self, p: NDArray, draft: Draft) -> State:
        q, n = draft.q, draft.n
        gamma = smallest_gamma(p, q, n)
        overlap = scaled_overlap(p, q, gamma)
        # 1 - (1 - b)^n for any b, without cancellation for small b.
        some = -np.expm1(n * np.log1p(-min(overlap / gamma, 1.0))) if overlap < gamma else 1.0
        # The share of min(gamma q, p) that acceptance serves: 1 at gamma*, up to the rounding of gamma.
        served = min(some / overlap, 1.0) if overlap > 0 else 0.0
        residual, _ = positive_part(p - served * np.minimum(gamma * q, p), p)
        return State(p, q, gamma, min(some, 1.0), residual)

    def _law(self, state: State, tokens: NDArray[np.int64]) -> Law:
        accept = acceptance_ratio(state.p[tokens], state.gamma * state.q[tokens])
        reach = np.cumprod(np.concatenate([[1.0], 1.0 - accept]))
        return Law(reach[:-1] * accept, reach[-1], state.residual)

    def _rate(self, state: State) -> float:
        return state.rate


def smallest_gamma(p: NDArray[np.float64], q: NDArray[np.float64], n: int) -> float:
    """The smallest gamma in [1, n] with 1 - (1 - b(gamma))^n <= gamma b(gamma); the difference is decreasing in
    gamma.
    """

    def excess(gamma: float) -> float:
        overlap = scaled_overlap(p, q, gamma)
        b = min(overlap / gamma, 1.0)
        return (-np.expm1(n * np.log1p(-b)) if b < 1.0 else 1.0) - overlap

    if n == 1 or excess(1.0) <= 1e-15:
        return 1.0
    if excess(float(n)) >= 0.0:
        return float(n)
    return brentq(excess, 1.0, float(n), xtol=1e-15, rtol=8.9e-16)

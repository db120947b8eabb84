"""Two drafts: select one so that its law comes close to p, then the single-draft test ([7] Khisti et al. 2024)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mdsd_theory.drafts.base import Draft, check_count
from mdsd_theory.drafts.independent import Independent
from mdsd_theory.flow import maximum_flow
from mdsd_theory.verifiers.base import Law, Verifier, acceptance_ratio, is_iid, positive_part


class State(NamedTuple):
    """Attributes:
    p: (V,).
    place: int64 (V,), each token's place in the order of p/q.
    member: int64 (V,), each token's number in the alphabet, -1 outside.
    share: (A, A), entry (a, b): the probability that member a is selected from the drafts {a, b}.
    t: (V,), the law of the selected draft.
    residual: (V,), what is sampled when it is rejected.
    rate: the acceptance rate.
    """

    p: NDArray
    place: NDArray[np.int64]
    member: NDArray[np.int64]
    share: NDArray
    t: NDArray
    residual: NDArray
    rate: float


class Canonical(Verifier):
    """Two drafts, i.i.d. or from two independent drafters: select one, accept it with probability min(1, p/t), else
    sample (p - t)_+; t is the exact law of the selected draft.

    Pairs inside a small alphabet (the tokens that carry most of |p - q|) are selected from by a linear program that
    maximises sum min(t, p); from every other pair the draft with the larger p/q is taken ([7], sections 3 and 4; two
    drafters: p / (q_1 + q_2), one order for both, as the optimal sets have). On the whole alphabet it reaches alpha*.

    Acceptance rate: sum min(t, p), the selected draft accepted, plus the probability that the draft not selected is
    sampled after a rejection: it too is a draft. The second part is 0 at the optimum. O(V log V) beside the LP.

    Args:
        alphabet: how many tokens the LP looks at, >= 0. Its cost grows with the square.

    Raises:
        ValueError: alphabet is no whole number >= 0.
    """

    name = "canonical"

    def __init__(self, alphabet: int = 32) -> None:
        self.alphabet = check_count(alphabet, "alphabet", 0)

    def refusal(self, draft: Draft) -> str | None:
        if draft.exact:
            return "its linear program is solved in floating point, not in Fractions"
        if draft.n == 2 and (is_iid(draft) or isinstance(draft, Independent)):
            return None
        return "it is for two drafts, i.i.d. or from two independent drafters"

    def _prepare(self, p: NDArray, draft: Draft) -> State:
        q1, q2 = draft.qs if isinstance(draft, Independent) else (draft.q, draft.q)
        order = _by_ratio(p, q1, q2)
        place = np.empty(p.size, dtype=np.int64)
        place[order] = np.arange(p.size)

        # Members in the order of p/q, so that of two members the later one is the rule's choice.
        difference = np.where(q1 + q2 > 0, np.abs(p - q1) + np.abs(p - q2), 0.0)
        members = np.argsort(-difference, kind="stable")[: self.alphabet]
        members = members[np.argsort(place[members])]
        member = np.full(p.size, -1)
        member[members] = np.arange(members.size)

        beyond = _Pairs(q1, q2, order, member >= 0)
        t = q1 * q2 + beyond.selected()
        share = _optimal_shares(q1[members], q2[members], (p - t)[members])
        drawn = np.outer(q1[members], q2[members])
        drawn += drawn.T
        np.fill_diagonal(drawn, 0.0)
        t[members] += (share * drawn).sum(axis=1)

        residual, _ = positive_part(p - t, p)
        rejected = 1.0 - acceptance_ratio(p, t)
        other = (beyond.selected(residual) * rejected).sum()
        other += rejected[members] @ (share * drawn) @ residual[members]
        return State(p, place, member, share, t, residual, float(np.minimum(t, p).sum() + other))

    def _law(self, state: State, tokens: NDArray[np.int64]) -> Law:
        a, b = state.member[tokens]
        if tokens[0] == tokens[1]:
            first = 1.0
        elif a >= 0 and b >= 0:
            first = state.share[a, b]
        else:
            first = float(state.place[tokens[0]] > state.place[tokens[1]])
        accepted = np.array([first, 1.0 - first]) * acceptance_ratio(state.p[tokens], state.t[tokens])
        return Law(accepted, 1.0 - accepted.sum(), state.residual)

    def _rate(self, state: State) -> float:
        return state.rate

    def __repr__(self) -> str:
        return f"Canonical(alphabet={self.alphabet})"


class _Pairs(NamedTuple):
    """The pairs of different tokens that are not both in the alphabet: the later one in `order` is selected."""

    q1: NDArray
    q2: NDArray
    order: NDArray[np.int64]
    inside: NDArray[np.bool_]

    def selected(self, weight: NDArray | float = 1.0) -> NDArray:
        """sum over j of weight(j) * the mass of pairs {i, j} from which i is selected, for every i, (V,)."""
        mass = np.zeros(self.q1.size)
        for mine, other in ((self.q1, self.q2), (self.q2, self.q1)):
            other = weight * other
            mass += mine * np.where(self.inside, self._before(np.where(self.inside, 0.0, other)), self._before(other))
        return mass

    def _before(self, values: NDArray) -> NDArray:
        """The sum of the values of all earlier tokens in the order."""
        sums = np.empty(values.size)
        sums[self.order] = np.concatenate([[0.0], np.cumsum(values[self.order[:-1]])])
        return sums


def _by_ratio(p: NDArray, q1: NDArray, q2: NDArray) -> NDArray[np.int64]:
    """All tokens by p / (q1 + q2) increasing; the never drafted ones last."""
    q = q1 + q2
    ratio = np.full(p.size, np.inf)
    with np.errstate(over="ignore"):
        np.divide(p, q, out=ratio, where=q > 0)
    return np.argsort(ratio, kind="stable")


def _optimal_shares(q1: NDArray, q2: NDArray, lacking: NDArray) -> NDArray:
    """Share (a, b) of the drafts {a, b} that selects a, (A, A), so that sum min(t, p) is largest; members are in order.

    Args:
        q1, q2: (A,); lacking: (A,), p less the part of t that other pairs and repeated tokens already make.
    """
    later, earlier = np.tril_indices(q1.size, -1)
    mass = q1[later] * q2[earlier] + q1[earlier] * q2[later]
    pairs = np.flatnonzero(mass > 0)
    flow = maximum_flow(
        np.tile(np.arange(pairs.size), 2),
        np.concatenate([later[pairs], earlier[pairs]]),
        mass[pairs],
        np.maximum(lacking, 0.0),
    )
    # What the LP leaves over is selected by the rule.
    to_earlier = np.zeros(mass.size)
    to_earlier[pairs] = acceptance_ratio(flow[pairs.size :], mass[pairs])
    share = np.zeros((q1.size, q1.size))
    share[later, earlier] = 1.0 - to_earlier
    share[earlier, later] = to_earlier
    return share

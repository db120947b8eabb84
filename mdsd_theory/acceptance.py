"""The optimal acceptance rate alpha* = 1 + min over H of P(H) - Q(H)  ([1] Hu et al. 2025, section 3)."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mdsd_theory.distributions import as_array, distribution
from mdsd_theory.drafts.base import Draft


@dataclass(frozen=True, eq=False)
class OptimalAcceptance:
    """alpha* and its certificate.

    Attributes:
        rate: alpha*, the largest acceptance rate of any lossless verifier (a Fraction in exact mode).
        subset: bool (V,), the minimising set H*; it proves that no verifier does better than `rate`.
        target_mass: P(H*).
        draft_mass: Q(H*), the probability that all drafts lie in H*.
        gap: alpha* lies in [rate - gap, rate]. 0 for every q-convex sampler and for enumeration; positive only where a
            submodular minimiser had to stop early.
    """

    rate: float
    subset: NDArray[np.bool_]
    target_mass: float
    draft_mass: float
    gap: float = 0.0

    def __repr__(self) -> str:
        gap = f", gap={self.gap:.3g}" if self.gap else ""
        return (
            f"OptimalAcceptance(rate={self.rate!r}, |H*|={np.count_nonzero(self.subset)}, "
            f"target_mass={self.target_mass!r}, draft_mass={self.draft_mass!r}{gap})"
        )


def optimal_acceptance(p: ArrayLike, draft: Draft) -> OptimalAcceptance:
    """The largest probability that the emitted token is one of the drafts, over all verifiers that output exactly p.

    With and without replacement (q-convex), greedy, top-then-sample and SpecHub drafts are solved exactly at any
    vocabulary size. Independent drafters and joint tables are enumerated up to 18 tokens and beyond that handed to a
    submodular minimiser whose certified gap is in the result. Fractions give Fractions.

    Args:
        p: target distribution, shape (V,).
        draft: how the draft tokens are drawn, over the same V tokens.

    Raises:
        ValueError: p is no distribution or of another length; or only one of p and q is exact.
    """
    p = target(p, draft)
    subset, target_mass, draft_mass, gap = draft.minimum(p)
    if draft.exact:
        target_mass, draft_mass = Fraction(target_mass), Fraction(draft_mass)
    rate = 1 + target_mass - draft_mass
    if not 0 <= rate <= 1:  # by rounding
        rate = type(rate)(rate > 1)
    return OptimalAcceptance(rate, subset, target_mass, draft_mass, gap)


def target(p: ArrayLike, draft: Draft) -> NDArray:
    """p checked against `draft`: a distribution over its vocabulary, in its arithmetic (Fractions beside Fractions)."""
    if draft.exact and not hasattr(p, "detach") and np.asarray(p).dtype.kind in "iu":
        p = np.asarray(p).astype(object)
    p = distribution(p, "p", draft.vocab_size)
    if (p.dtype.kind == "O") != draft.exact:
        which, other = ("p", "q") if p.dtype.kind == "O" else ("q", "p")
        raise ValueError(f"p: {which} holds Fractions but {other} is floating point; exact mode needs both exact")
    return p


class Certificate(NamedTuple):
    """What a coupling and a set prove together: lower <= alpha* <= upper.

    Attributes:
        lower: acceptance of the coupling.
        upper: 1 + P(H) - Q(H).
        optimal: whether the two meet (exactly for Fractions, to 1e-9 for floats), which proves both optimal.
    """

    lower: float
    upper: float
    optimal: bool


def certificate(p: ArrayLike, draft: Draft, coupling: ArrayLike, subset: ArrayLike) -> Certificate:
    """Check a claimed optimum: any coupling bounds alpha* from below, any set from above (weak duality, [1], section
    3).

    Args:
        p: target distribution, shape (V,).
        draft: the draft sampler, small enough for `draft.joint()`.
        coupling: shape (N, V), aligned with `tokens, probability = draft.joint()`: entry (k, i) is the probability that
            the drafts are tokens[k] and token i is emitted.
        subset: H, a boolean mask (V,) or token ids.

    Raises:
        ValueError: the coupling has a negative entry or marginals other than `probability` and p.
    """
    p = target(p, draft)
    tokens, probability = draft.joint()
    coupling, _ = as_array(coupling, "coupling")
    if coupling.shape != (len(tokens), p.size):
        raise ValueError(f"coupling: shape {coupling.shape}; needed is {(len(tokens), p.size)}")
    slack = 0 if draft.exact else 1e-9
    if coupling.min() < -slack:
        raise ValueError(f"coupling: entries as low as {coupling.min()}; a coupling is >= 0")
    for marginal, law, name in ((coupling.sum(axis=1), probability, "the drafts' law"), (coupling.sum(axis=0), p, "p")):
        off = abs(marginal - law).max()
        if off > slack:
            raise ValueError(f"coupling: a marginal differs from {name} by {off}")
    accepted = [row[np.unique(drafts)].sum() for row, drafts in zip(coupling, tokens, strict=True)]
    lower = sum(accepted)
    mask = draft._mask(subset)
    upper = 1 + (p[mask].sum() if mask.any() else 0) - draft.subset_mass(mask)
    return Certificate(lower, upper, abs(upper - lower) <= slack)

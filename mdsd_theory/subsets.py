"""min over token sets H of P(H) - Q(H): the rules that hold for any draft sampler.

alpha* = 1 + that minimum ([1] Hu et al. 2025, section 3). By prefixes of p/q where Q is q-convex (section 4), by
enumeration for small vocabularies, else by a submodular minimiser that says how far off it may be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mdsd_theory.kernels import RATIO_SCALE
from mdsd_theory.submodular import minimum_norm_point

if TYPE_CHECKING:
    from mdsd_theory.drafts.base import Draft

# Enumeration goes through 2**V subsets.
ENUMERATION_LIMIT = 18
EXACT_ENUMERATION_LIMIT = 12


class Minimum(NamedTuple):
    """A set, its two masses, and how far P(H) - Q(H) may be above the minimum (0: it is the minimum)."""

    subset: NDArray[np.bool_]
    target_mass: float
    draft_mass: float
    gap: float = 0.0


def minimum(p: NDArray, draft: Draft) -> Minimum:
    """The minimising set by the best rule that holds for `draft`; p is checked and of the draft's arithmetic."""
    limit = EXACT_ENUMERATION_LIMIT if draft.exact else ENUMERATION_LIMIT
    if draft.q_convex and not (draft.exact and p.size <= limit):
        return prefix_minimum(p, draft)
    if p.size <= limit:
        return enumerated_minimum(p, draft)
    if draft.exact:
        raise ValueError(
            f"{draft.name}: exact answers come from enumeration here, for at most {limit} tokens; found {p.size}"
        )
    return submodular_minimum(p, draft)


def ratio_order(p: NDArray, q: NDArray) -> NDArray[np.int64]:
    """Tokens by p/q increasing, q = 0 last and p = q = 0 left out; ties by token."""
    if p.dtype == object:
        tokens = [i for i in range(p.size) if q[i] > 0]
        order = sorted(tokens, key=lambda i: p[i] / q[i]) + [i for i in range(p.size) if q[i] == 0 and p[i] > 0]
        return np.array(order, dtype=np.int64)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = RATIO_SCALE * p / q
    order = np.argsort(ratio, kind="stable")
    return order[: order.size - np.count_nonzero((p == 0) & (q == 0))]


def prefix_minimum(p: NDArray, draft: Draft, order: NDArray[np.int64] | None = None) -> Minimum:
    """Among the prefixes of an order, by default that of p/q: the minimum, when Q is q-convex ([1], section 4)."""
    order = ratio_order(p, draft.q) if order is None else order
    target = np.zeros(order.size + 1, dtype=p.dtype)
    target[1:] = np.cumsum(p[order])
    masses = draft.prefix_masses(order)
    j = int(np.argmin(target - masses))
    subset = np.zeros(p.size, dtype=bool)
    subset[order[:j]] = True
    return Minimum(subset, target[j], masses[j])


def enumerated_minimum(p: NDArray, draft: Draft) -> Minimum:
    """Among all 2**V subsets."""
    target = np.zeros(2**p.size, dtype=p.dtype)
    for i in range(p.size):
        target[2**i : 2 ** (i + 1)] = target[: 2**i] + p[i]
    masses = draft.all_subset_masses()
    h = int(np.argmin(target - masses))
    return Minimum((h >> np.arange(p.size)) & 1 == 1, target[h], masses[h])


def submodular_minimum(p: NDArray, draft: Draft) -> Minimum:
    """By the minimum-norm point of P - Q, which is submodular for every sampler; the gap is certified by its dual."""
    subset, gap = minimum_norm_point(p, draft.prefix_masses, p + draft.q)
    return Minimum(subset, float(p[subset].sum()), float(draft.subset_mass(subset)), gap)

"""Is a sampler's Q q-convex, so that the prefix rule may be used for it?"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mdsd_theory.distributions import distribution
from mdsd_theory.drafts.base import Draft

# All of 2**V sets times V**2 pairs are looked at up to this many tokens; random orders beyond.
_COMPLETE_UP_TO = 10


class QConvexity(NamedTuple):
    """The verdict of `is_q_convex`.

    Attributes:
        holds: no violation was found.
        complete: every order was covered, so that `holds` is a proof (up to `tolerance`) and not a sample.
        order: int64 (3 or more,), a counterexample: along it the points (q(H_j), Q(H_j)) bend downwards at its end;
            None if none.
        slopes: the two slopes of Q against q over its last two tokens, the first larger than the second; None if none.
    """

    holds: bool
    complete: bool
    order: NDArray[np.int64] | None = None
    slopes: tuple[float, float] | None = None

    def __bool__(self) -> bool:
        return self.holds


def is_q_convex(
    draft: Draft, q: ArrayLike | None = None, tolerance: float = 1e-12, orders: int = 200, seed: int = 0
) -> QConvexity:
    """Whether for every order of the tokens the points (q(H_j), Q(H_j)) of its prefixes lie on a convex curve ([1],
    section 4).

    Args:
        draft: any sampler with `vocab_size` and `prefix_masses`, a user's own included.
        q: the distribution the convexity refers to, (V,); the draft's own by default.
        tolerance: how far Q may lie above the chord of its neighbours before it counts as a violation.
        orders: for more than 10 tokens, how many random orders are tried; fewer tokens are covered completely.
        seed: of those orders.
    """
    q = draft.q if q is None else distribution(q, "q", draft.vocab_size)
    support = np.flatnonzero(q > 0)
    complete = draft.vocab_size <= _COMPLETE_UP_TO
    if complete:
        for h in range(2**support.size):
            held = support[(h >> np.arange(support.size)) & 1 == 1]
            free = np.setdiff1d(support, held)
            for x in free:
                for y in free[free != x]:
                    found = _bend(draft, q, np.concatenate([held, [x, y]]), tolerance)
                    if found:
                        return QConvexity(False, True, *found)
        return QConvexity(True, True)
    rng = np.random.default_rng(seed)
    for _ in range(orders):
        found = _bend(draft, q, rng.permutation(support), tolerance)
        if found:
            return QConvexity(False, False, *found)
    return QConvexity(True, False)


def _bend(draft: Draft, q: NDArray, order: NDArray, tolerance: float) -> tuple[NDArray, tuple[float, float]] | None:
    """The first place along `order` where Q rises above the chord of its neighbours, if any."""
    masses = draft.prefix_masses(order)
    rise, width = np.diff(masses), q[order]
    # Slope k > slope k+1, multiplied out so that tiny widths do not magnify rounding.
    above = rise[:-1] * width[1:] - rise[1:] * width[:-1]
    bad = np.flatnonzero(above > tolerance * (width[1:] + width[:-1]))
    if bad.size == 0:
        return None
    k = int(bad[0])
    return order[: k + 2], (rise[k] / width[k], rise[k + 1] / width[k + 1])

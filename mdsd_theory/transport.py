"""alpha* by linear programming, as its definition says: the oracle for small vocabularies ([1] Hu et al. 2025, section
3).

Everything else in this package computes the same number faster; here the coupling, the dual and the 0/1 problem are
written down as they stand and handed to HiGHS through cvxpy (`pip install mdsd[lp]`). Only the sampler's `joint()` is
used, never its Q.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mdsd_theory.acceptance import target
from mdsd_theory.drafts.base import Draft
from mdsd_theory.flow import draft_sets

# How far potentials (the dual's variables, the primal's reduced costs) may be from obeying their constraints: HiGHS
# accepts no smaller tolerance.
POTENTIAL_TOLERANCE = 1e-10
# It is absolute, so masses are multiplied by `_ENLARGED` on their way in: every marginal holds to TOLERANCE in
# units of probability, and masses below it (1e-300) count as 0.
_ENLARGED = 1e3
TOLERANCE = POTENTIAL_TOLERANCE / _ENLARGED
# Variables of the largest LP that is tried.
LIMIT = 2_000_000


@dataclass(frozen=True, eq=False)
class Primal:
    """max over couplings of the probability that the emitted token is a draft.

    Attributes:
        value: alpha*.
        status: the solver's word ("optimal").
        coupling: (N, V), the probability that the drafts are tuple k of `draft.joint()` and token i is emitted.
    """

    value: float
    status: str
    coupling: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Dual:
    """min sum p_draft a + sum p z with a(x) + z(i) >= 1 where i is in x, a, z >= 0.

    Attributes:
        value: alpha*.
        status: the solver's word ("optimal").
        draft_potential: a, (N,), aligned with `draft.joint()`.
        target_potential: z, (V,), in [0, 1].
    """

    value: float
    status: str
    draft_potential: NDArray[np.float64]
    target_potential: NDArray[np.float64]

    def rounded(self, threshold: float = 0.5) -> NDArray[np.bool_]:
        """{i: z(i) > threshold}, bool (V,): for every threshold in [0, 1) a minimiser of P(H) - Q(H).

        The constraints are totally unimodular: the value is the average of 1 + P(H) - Q(H) over all thresholds, and no
        set lies below it.
        """
        return self.target_potential > threshold


@dataclass(frozen=True, eq=False)
class SubsetMILP:
    """1 + min over sets H of P(H) - Q(H), as a mixed-integer program.

    Attributes:
        value: alpha*.
        status: the solver's word ("optimal").
        subset: H*, bool (V,).
    """

    value: float
    status: str
    subset: NDArray[np.bool_]


def primal(p: ArrayLike, draft: Draft) -> Primal:
    """The optimal coupling: N * V variables, N = the number of draft tuples (V**n with replacement).

    Args:
        p: target distribution, shape (V,).
        draft: a sampler whose tuples `joint()` can list. Fractions are solved in floating point.

    Raises:
        ValueError: p is no distribution over the draft's vocabulary, or the LP is too large.
        ImportError: cvxpy is not installed.
        RuntimeError: the solver failed.
    """
    p, tokens, probability = _problem(p, draft)
    cp = _cvxpy()
    among = np.zeros((len(tokens), p.size))
    np.put_along_axis(among, tokens, 1.0, axis=1)
    coupling = cp.Variable(among.shape, nonneg=True)
    # One marginal follows from all others. Left out for the heaviest token, it takes up what masses near the tolerance,
    # which the solver may round to 0, would make inconsistent.
    others = np.delete(np.arange(p.size), np.argmax(p))
    marginals = [cp.sum(coupling, axis=1) == _ENLARGED * probability]
    if others.size:
        marginals.append(cp.sum(coupling[:, others], axis=0) == _ENLARGED * p[others])
    problem = cp.Problem(cp.Maximize(cp.sum(cp.multiply(among, coupling))), marginals)
    value = _solve(problem)
    return Primal(value / _ENLARGED, problem.status, coupling.value / _ENLARGED)


def dual(p: ArrayLike, draft: Draft) -> Dual:
    """The dual of `primal`: N + V variables. Arguments and errors as there."""
    p, tokens, probability = _problem(p, draft)
    cp = _cvxpy()
    a, z = cp.Variable(len(tokens), nonneg=True), cp.Variable(p.size, nonneg=True)
    covered = [a + z[column] >= 1 for column in tokens.T]
    problem = cp.Problem(cp.Minimize(_ENLARGED * (probability @ a + p @ z)), covered)
    value = _solve(problem)
    return Dual(value / _ENLARGED, problem.status, np.maximum(a.value, 0.0), np.clip(z.value, 0.0, 1.0))


def subset_milp(p: ArrayLike, draft: Draft) -> SubsetMILP:
    """The dual with z in {0, 1}: the subset selection problem itself, a variable for each set of draft tokens and each
    token. Arguments and errors as for `primal`.
    """
    p, tokens, probability = _problem(p, draft)
    cp = _cvxpy()
    keys, sets, members, mass = draft_sets(tokens, probability)
    a, z = cp.Variable(len(keys), nonneg=True), cp.Variable(p.size, boolean=True)
    problem = cp.Problem(cp.Minimize(_ENLARGED * (mass @ a + p @ z)), [a[sets] + z[members] >= 1])
    value = _solve(problem, mip_rel_gap=0.0, mip_abs_gap=0.0, mip_feasibility_tolerance=POTENTIAL_TOLERANCE)
    return SubsetMILP(value / _ENLARGED, problem.status, z.value > 0.5)


def _problem(p: ArrayLike, draft: Draft) -> tuple[NDArray, NDArray, NDArray]:
    p = target(p, draft)
    tokens, probability = draft.joint()
    count = len(tokens) * p.size
    if count > LIMIT:
        raise ValueError(
            f"draft: {len(tokens):,} tuples and {p.size} tokens make {count:,} variables; "
            f"the linear programs are for at most {LIMIT:,} (optimal_acceptance has no such limit)"
        )
    return p.astype(np.float64), tokens, probability.astype(np.float64)


def _solve(problem: Any, **options: float) -> float:
    for side in ("primal", "dual"):
        options[f"{side}_feasibility_tolerance"] = POTENTIAL_TOLERANCE
    problem.solve(solver="HIGHS", **options)
    if problem.value is None or not np.isfinite(problem.value):
        raise RuntimeError(f"HiGHS did not solve the problem: {problem.status}")
    return float(problem.value)


def _cvxpy() -> Any:
    try:
        import cvxpy
    except ImportError as error:
        raise ImportError("mdsd_theory.transport needs cvxpy and highspy: pip install 'mdsd[lp]'") from error
    return cvxpy

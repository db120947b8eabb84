"""The most mass that sets of tokens can send to their own members: the transport LP where only accepted mass is a
variable.

The coupling's rejected part needs no variables: whatever is left over at the sets and at the tokens can be joined
freely. What remains is a maximum flow in a bipartite graph, solved by HiGHS' dual simplex through scipy; its basic
solutions are sums and differences of the masses.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.sparse import csr_array

# HiGHS' smallest feasibility tolerance is absolute; masses enlarged by this factor are met to 1e-14.
_TOLERANCE = 1e-10
_ENLARGED = 1e4


def maximum_flow(
    sets: NDArray[np.int64], tokens: NDArray[np.int64], supply: NDArray[np.float64], demand: NDArray[np.float64]
) -> NDArray[np.float64]:
    """max sum f over f >= 0 with at most supply[s] leaving every set and at most demand[i] reaching every token.

    Args:
        sets, tokens: int (E,), the edges: set sets[e] may send to token tokens[e].
        supply: (S,), mass of each set; demand: (V,), mass each token can take. All >= 0.

    Returns:
        float64 (E,), the flow of each edge. It obeys the bounds to rounding, and falls short of the maximum by the
        solver's tolerance at most (1e-14 for each set and token).

    Raises:
        RuntimeError: the solver failed.
    """
    if sets.size == 0:
        return np.zeros(0)
    edges = np.arange(sets.size)
    rows = np.concatenate([sets, supply.size + tokens])
    incidence = csr_array((np.ones(rows.size), (rows, np.tile(edges, 2))))
    bounds = np.concatenate([supply, demand])[: incidence.shape[0]] * _ENLARGED
    result = linprog(
        -np.ones(edges.size),
        A_ub=incidence,
        b_ub=bounds,
        method="highs-ds",
        options={"primal_feasibility_tolerance": _TOLERANCE, "dual_feasibility_tolerance": _TOLERANCE},
    )
    if result.x is None:
        raise RuntimeError(f"the linear program was not solved: {result.message}")
    flow = np.maximum(result.x / _ENLARGED, 0.0)
    flow *= _shrink(supply, np.bincount(sets, flow, supply.size))[sets]
    return flow * _shrink(demand, np.bincount(tokens, flow, demand.size))[tokens]


def _shrink(allowed: NDArray[np.float64], used: NDArray[np.float64]) -> NDArray[np.float64]:
    """min(1, allowed / used): what takes a sum back to its bound."""
    factor = np.ones(used.size)
    over = used > allowed
    factor[over] = allowed[over] / used[over]
    return factor


def draft_sets(
    drafts: NDArray[np.int64], probability: NDArray[np.float64]
) -> tuple[list[tuple[int, ...]], NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """The sets of draft tokens behind draft tuples.

    Args:
        drafts: int64 (N, n), probability: (N,), as `Draft.joint` lists them.

    Returns:
        The S sets as sorted tuples; the edges set -> member in order of the sets, two int64 (E,); the mass of each set
        (S,).
    """
    ordered = np.sort(drafts, axis=1)
    # Repeats become one more token and move to the end, so that equal sets are equal rows.
    beyond = ordered.max() + 1
    ordered[:, 1:][ordered[:, 1:] == ordered[:, :-1]] = beyond
    ordered.sort(axis=1)
    rows, which = np.unique(ordered, axis=0, return_inverse=True)
    held = rows < beyond
    keys = [tuple(row[inside].tolist()) for row, inside in zip(rows, held, strict=True)]
    return keys, np.nonzero(held)[0], rows[held], np.bincount(which.ravel(), probability, len(rows))

"""Minimising a submodular P(H) - Q(H) over token sets, with a certificate.

Wolfe's minimum-norm-point algorithm (Fujishige 1980; Wolfe 1976) in the norm sum x_i^2 / w_i. Every point x of the base
polytope certifies sum min(x_i, 0) <= min f (Edmonds 1970), every set certifies an upper bound: the difference is the
gap we report.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

# A gap below this is rounding: the answer counts as exact.
EXACT_GAP = 1e-13


def minimum_norm_point(
    p: NDArray[np.float64],
    prefix_masses: Callable[[NDArray], NDArray],
    weight: NDArray[np.float64],
    iterations: int = 300,
) -> tuple[NDArray[np.bool_], float]:
    """A set H of small f(H) = P(H) - Q(H), Q supermodular with Q(empty) = 0, and how far f(H) may be above min f.

    Args:
        p: target, float64 (V,).
        prefix_masses: Q of the growing prefixes of an order of all tokens, (V + 1,).
        weight: float64 (V,), the scale of each token's share of f; 0 is allowed.
        iterations: greedy steps at most, each O(V log V) and one vector of memory.

    Returns:
        The set, bool (V,), and the certified gap, >= 0; 0 where the bounds meet to rounding.
    """
    scale = np.sqrt(weight + weight.max() * 1e-18)
    best_value, best_set = 0.0, np.zeros(p.size, dtype=bool)
    lower = -np.inf

    def vertex(point: NDArray) -> NDArray:
        """The base-polytope vertex least along `point`; its prefixes are candidate sets on the way."""
        nonlocal best_value, best_set
        order = np.argsort(point / scale, kind="stable")
        masses = prefix_masses(order)
        values = np.concatenate([[0.0], np.cumsum(p[order])]) - masses
        j = int(np.argmin(values))
        if values[j] < best_value:
            best_value, best_set = float(values[j]), np.zeros(p.size, dtype=bool)
            best_set[order[:j]] = True
        x = np.empty(p.size)
        x[order] = p[order] - np.diff(masses)
        return x / scale

    start = vertex((p - prefix_masses(np.arange(p.size))[1:]) / scale)
    corral = [vertex(start)]
    coefficients = np.ones(1)
    gram = np.array([[corral[0] @ corral[0]]])
    for _ in range(iterations):
        point = coefficients @ np.array(corral)
        lower = max(lower, float(np.minimum(point * scale, 0.0).sum()))
        if best_value - lower <= EXACT_GAP:
            return best_set, 0.0
        new = vertex(point)
        if point @ point - point @ new <= 1e-15 * max(1.0, point @ point):
            break
        products = np.array([v @ new for v in corral])
        gram = np.block([[gram, products[:, None]], [products[None, :], np.array([[new @ new]])]])
        corral.append(new)
        coefficients = np.append(coefficients, 0.0)
        while True:
            # The affine minimiser of the corral; step towards it until a coefficient reaches 0, drop that vertex.
            size = len(corral)
            system = np.ones((size + 1, size + 1))
            system[0, 0] = 0.0
            system[1:, 1:] = gram
            affine = np.linalg.lstsq(system, np.eye(size + 1)[0], rcond=None)[0][1:]
            if (affine >= -1e-14).all():
                coefficients = np.maximum(affine, 0.0)
                coefficients /= coefficients.sum()
                break
            falling = affine < coefficients
            step = np.min(
                coefficients[falling] / (coefficients[falling] - affine[falling]),
                where=affine[falling] < 0,
                initial=1.0,
            )
            coefficients = (1.0 - step) * coefficients + step * affine
            keep = coefficients > 1e-14
            if keep.all():
                keep[int(np.argmin(coefficients))] = False
            corral = [v for v, kept in zip(corral, keep, strict=True) if kept]
            gram = gram[np.ix_(keep, keep)]
            coefficients = coefficients[keep] / coefficients[keep].sum()
    return best_set, max(best_value - lower, 0.0)

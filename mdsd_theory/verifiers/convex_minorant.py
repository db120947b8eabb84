"""The convex-minorant verifier: optimal for the whole top-then-sample family, every n, without LP, tolerance or
iteration.

Statement, proof, picture and comparison with the known alternatives: `mdsd_theory/verifiers/README.md`.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mdsd_theory.drafts.base import Draft, draw_tokens
from mdsd_theory.drafts.top_then_sample import TopThenSample
from mdsd_theory.minorant import Blocks, clipped, make_blocks, merge_times, select
from mdsd_theory.subsets import ratio_order
from mdsd_theory.verifiers.base import Law, Verifier, acceptance_ratio, is_top_then_sample, positive_part


class Ordered(NamedTuple):
    """The whole order of p'/q', for the exact law.

    Attributes:
        place: int64 (V,), each token's place in the order, -1 for tokens never drawn.
        deaths: (N - 1,), the s at which the boundary after each place stops being a vertex of E_s.
        t: (V,), the intermediate target.
        residual: (V,), what is sampled on rejection.
    """

    place: NDArray[np.int64]
    deaths: NDArray
    t: NDArray
    residual: NDArray


class State:
    """One position: computed when first asked for, and shared by all draws there.

    `search` serves `verify` in linear time (buckets, one edge of the envelope per draw), `ordered` serves the exact law
    (one sort).
    """

    def __init__(self, p: NDArray, draft: TopThenSample) -> None:
        self.p, self.draft, self.m = p, draft, draft.sampled

    @cached_property
    def top(self) -> NDArray[np.bool_]:
        top = np.zeros(self.p.size, dtype=bool)
        top[self.draft.top_tokens] = True
        return top

    @cached_property
    def search(self) -> Search:
        subset = np.empty(self.p.size, dtype=bool)
        p_best, x_best, last, ids, p_sums, q_sums = self.draft.bucketed_minimum(self.p, subset)
        q, scale = self.draft.scaled_rest
        best = subset, p_best, x_best, last
        return Search(make_blocks(self.p, q, scale, ids, p_sums, q_sums, *best, self.m), ids, scale)

    @cached_property
    def residual_cdf(self) -> NDArray[np.float64]:
        """Cumulative masses of what is sampled on rejection, from the clipping levels of `search`."""
        blocks, q = self.search.blocks, self.draft.rest
        t = np.minimum(np.maximum(self.p, blocks.kappa * q), blocks.tau * q)
        return np.cumsum(positive_part(self.p - t, self.p)[0])

    @cached_property
    def ordered(self) -> Ordered:
        p, q = np.where(self.top, 0 * self.p[0], self.p), self.draft.rest
        order = ratio_order(p, q)
        order = order[q[order] > 0]
        t = np.zeros(p.size, dtype=p.dtype)
        t[order] = intermediate_target(p[order], q[order], self.m)
        place = np.full(p.size, -1)
        place[order] = np.arange(order.size)
        deaths = np.zeros(max(order.size - 1, 0), dtype=p.dtype)
        if self.m > 1 and order.size > 1:
            merge = merge_times.py_func if self.draft.exact else merge_times
            edges = np.minimum(_prefix_sums(q[order]), 1)
            merge(t[order], q[order], edges, self.m, deaths)
        residual, _ = positive_part(self.p - t, self.p)
        return Ordered(place, deaths, t, residual)


class Search(NamedTuple):
    """What finds the block of a draft: the bucketed order, each token's bucket, and the scale of q to q'."""

    blocks: Blocks
    ids: NDArray[np.uint16]
    scale: float


class ConvexMinorant(Verifier):
    """Select one of the m sampled drafts so that its law is a target t as close to p as any selection allows, then
    accept or not.

    1. t = min(max(p', kappa q'), tau q'), the clipping of p' whose prefix sums T stay above X^m in the order of p'/q'.
    2. s ~ U(0, 1); the vertices of the lower convex envelope of (X_j, T_j - s X_j^m) cut the order into blocks.
    3. In the highest block that holds a draft, one of the drafts there, uniformly (repeats count), is y; y ~ t.
    4. Accept y with probability min(1, p'(y)/t(y)), else sample (p' - t)_+ off Top, p on Top (which counts as
    accepted).

    Acceptance rate: P(Top) + sum min(p', t) = alpha*, for with replacement (no Top), greedy, SpecHub, deterministic
        drafts and all
    between. The kernel needs one sort of the vocabulary per position; `verify` none.
    """

    name = "convex-minorant"

    def refusal(self, draft: Draft) -> str | None:
        if is_top_then_sample(draft) or (draft.n == 1 and hasattr(draft, "q") and draft.name == "without-replacement"):
            return None
        return "it is known for certain tokens followed by i.i.d. ones (the top-then-sample family) only"

    def _prepare(self, p: NDArray, draft: Draft) -> State:
        return State(p, draft if isinstance(draft, TopThenSample) else TopThenSample(draft.q, 1, 0))

    def _law(self, state: State, tokens: NDArray[np.int64]) -> Law:
        accepted = np.zeros(tokens.size, dtype=state.p.dtype)
        if not state.m:
            return Law(accepted, 1 + 0 * state.p[0], state.p)
        place, deaths, t, residual = state.ordered
        sampled = np.flatnonzero(~state.top[tokens])
        chosen = _selection(place[tokens[sampled]], deaths, 1 + 0 * state.p[0])
        accepted[sampled] = chosen * acceptance_ratio(state.p[tokens[sampled]], t[tokens[sampled]])
        return Law(accepted, 1 - accepted.sum(), residual)

    def verify(
        self, p: ArrayLike, draft: Draft, tokens: ArrayLike, rng: np.random.Generator, state: State | None = None
    ) -> int:
        state, tokens = self._ready(p, draft, tokens, state)
        if not state.m or state.draft.exact:
            return super().verify(p, draft, tokens, rng, state)
        sampled = tokens[~state.top[tokens]]
        blocks, ids, scale = state.search
        q, _ = state.draft.scaled_rest
        arrays = state.p, q, scale
        s, pick, accept = rng.random(3)
        y = int(select(blocks, ids, sampled, s, pick, *arrays))
        target = clipped(state.p[y], q[y] * scale, blocks.kappa, blocks.tau)
        if accept * target < state.p[y]:
            return y
        return int(draw_tokens(state.residual_cdf, rng, ()))

    def _rate(self, state: State) -> float:
        _, target, draft, _ = state.draft.minimum(state.p)
        return 1 + target - draft


def intermediate_target(p: NDArray, q: NDArray, m: int) -> NDArray:
    """t in the order of p/q increasing: max(p, kappa q) on the minimising prefix, min(p, tau q) off it; sums to 1.

    Args:
        p: (N,), may sum to less than 1; q: (N,), > 0, sums to 1.
        m: number of i.i.d. draws.
    """
    if m == 1:
        return q
    x, mass = np.minimum(_prefix_sums(q), 1), _prefix_sums(p)
    j = int(np.argmin(mass - x**m))
    spare = x[j] ** m - mass[j]
    # Both levels act on all tokens: on either side of the prefix one of them changes nothing, but for rounding.
    with np.errstate(over="ignore"):
        kappa = min((mass[1 : j + 1] + spare) / x[1 : j + 1], default=0 * spare)
    t = np.maximum(p, kappa * q)
    if j < p.size:
        # 1 - X summed from the far end.
        beyond = _prefix_sums(q[::-1])[::-1]
        # 1 - h^m as (1 - h) (1 + h + ... ): nothing cancels when a mass of 1e-150 is all that lies beyond h.
        left = beyond[j] * sum(x[j] ** k for k in range(m)) - _prefix_sums(p[j:])[:-1]
        with np.errstate(over="ignore"):
            tau = max(left / beyond[j:-1])
        t = np.minimum(t, max(tau, kappa) * q)
    return t


def _prefix_sums(mass: NDArray) -> NDArray:
    sums = np.zeros(mass.size + 1, dtype=mass.dtype)
    sums[1:] = np.cumsum(mass)
    return sums


def _selection(places: NDArray[np.int64], deaths: NDArray, one: float) -> NDArray:
    """The probability that each draft is selected, over s ~ U(0, 1); `one` is 1 in the arithmetic in use."""
    highest = places.max()
    order = np.argsort(-places, kind="stable")
    # A draft joins the block of the highest one when all boundaries between them are gone, and leaves it no more.
    joins = [max(deaths[place:highest], default=0 * one) for place in places[order]] + [one]
    chosen = np.zeros(places.size, dtype=deaths.dtype)
    for count in range(1, places.size + 1):
        chosen[order[:count]] += (joins[count] - joins[count - 1]) / count
    return chosen

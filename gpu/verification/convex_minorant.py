"""The optimal verifier of the whole "top-k, then i.i.d." family, by reductions and one sort over the vocabulary.

Off the leading drafts, p' is what p leaves and q' is q renormalised; m drafts are i.i.d. from q'. Tokens are ordered by
p'/q', X_j and P_j are prefix sums of q' and p' in that order. All sums are float64.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from gpu.samplers import Drafts
from gpu.verification.residual import accept, normalised, off_leading

BRIDGE_STEPS = 48


class Intermediate(NamedTuple):
    """The law t between q' and p' in the order of p'/q': what the selected draft is distributed as."""

    order: Tensor  # int64 (M, V): token at each place of the order
    t: Tensor  # (M, V), in that order
    x: Tensor  # (M, V + 1): X
    xm: Tensor  # (M, V + 1): X^m, the chance that all m drafts are among the first j tokens


def convex_minorant(p: Tensor, drafts: Drafts, u: Tensor) -> Tensor:
    """Law of the emitted token given the drafts and the uniform s = u (M,).

    The blocks of the lower convex envelope of (X_j, T_j - s X_j^m), T the prefix sums of t, cut the order; one of the
    drafts in the highest block that has any is selected uniformly, so over s it is distributed as t; single-draft
    speculative sampling then takes t to p. Only the block around the highest draft is computed.
    """
    off = off_leading(drafts, torch.float64)
    rest = normalised(drafts.q * off, torch.zeros_like(off))
    p = p.double()
    m = (drafts.count - drafts.leading).clamp(min=1).double()[:, None]
    middle = intermediate(p * off, rest, (p * (1 - off)).sum(-1, keepdim=True), m)
    place = torch.empty_like(middle.order).scatter_(-1, middle.order, _count_up(middle.order))

    number = torch.arange(drafts.tokens.shape[1], device=p.device)
    random = (number >= drafts.leading[:, None]) & (number < drafts.count[:, None])  # (M, n)
    places = place.gather(-1, drafts.tokens)
    highest = places.masked_fill(~random, 0).amax(-1, keepdim=True)
    low, high = bridge(middle, u[:, None].double(), highest)

    in_block = random & (places >= low) & (places < high)
    t = torch.empty_like(p).scatter_(-1, middle.order, middle.t)
    weight = in_block / in_block.sum(-1, keepdim=True).clamp(min=1)
    accepted = weight * accept(p.gather(-1, drafts.tokens), t.gather(-1, drafts.tokens))
    rejected = 1 - accepted.sum(-1, keepdim=True)
    law = (rejected * normalised(p - t, p)).scatter_add_(-1, drafts.tokens, accepted)
    return torch.where(random.any(-1, keepdim=True), law, p)


def intermediate(p: Tensor, q: Tensor, top_mass: Tensor, m: Tensor) -> Intermediate:
    """t for p' (M, V) whose missing mass `top_mass` (M, 1) lies on the leading drafts, q' (M, V) and m (M, 1).

    With j* minimising P_j - X_j^m and h = X_j*: t = max(p', kappa q') on the first j* tokens, with sum h^m, and
    min(p', tau q') on the others, with sum 1 - h^m.
    """
    order = torch.where(q > 0, p / q, torch.inf).sort(dim=-1, stable=True).indices
    ps, qs = p.gather(-1, order), q.gather(-1, order)
    big_p, x = _prefix(ps), _prefix(qs)
    xm = x**m
    best = (big_p - xm).argmin(-1, keepdim=True)
    spare = (xm - big_p).gather(-1, best)  # D = h^m - P_j*
    j = _count_up(x)
    kappa = torch.where((j <= best) & (x > 0), (big_p + spare) / x, torch.inf).amin(-1, keepdim=True)
    # from the far end: 1 - X_i by subtraction has no digits left in the tail
    p_after, x_after = _suffix(ps), _suffix(qs)
    ratio = torch.where((j >= best) & (x_after > 0), (p_after + (top_mass - spare)) / x_after, 0.0)
    tau = ratio.amax(-1, keepdim=True)
    on_h = j[..., 1:] <= best
    # without tokens before j*, kappa is inf and the product may be inf * 0; `where` drops it
    t = torch.where(on_h, torch.maximum(ps, kappa * qs), torch.minimum(ps, tau * qs))
    return Intermediate(order, t, x, xm)


def bridge(middle: Intermediate, s: Tensor, place: Tensor) -> tuple[Tensor, Tensor]:
    """The envelope's edge above one token's place (M, 1): its end points low <= place < high.

    From the chord between two points, go to the point farthest below it, on the side where that lies; each step is one
    pass over the points and ends at the edge (a secant method on the envelope's slope).
    """
    points = _prefix(middle.t) - s * middle.xm
    low, high = torch.zeros_like(place), torch.full_like(place, points.shape[-1] - 1)
    for _ in range(BRIDGE_STEPS):
        run = middle.x.gather(-1, high) - middle.x.gather(-1, low)
        slope = (points.gather(-1, high) - points.gather(-1, low)) / run
        below = points - slope * middle.x
        lowest = below.argmin(-1, keepdim=True)
        better = below.gather(-1, lowest) < torch.minimum(below.gather(-1, low), below.gather(-1, high))
        if points.device.type == "cpu" and not better.any():
            break
        left = lowest <= place
        low = torch.where(better & left, lowest, low)
        high = torch.where(better & ~left, lowest, high)
    return low, high


def _prefix(values: Tensor) -> Tensor:
    """Sums of the first 0, 1, ..., V entries (M, V + 1)."""
    return torch.nn.functional.pad(values, (1, 0)).cumsum(-1)


def _suffix(values: Tensor) -> Tensor:
    """Sums of all but the first 0, 1, ..., V entries (M, V + 1)."""
    return torch.nn.functional.pad(values, (0, 1)).flip(-1).cumsum(-1).flip(-1)


def _count_up(like: Tensor) -> Tensor:
    return torch.arange(like.shape[-1], device=like.device).expand(like.shape)

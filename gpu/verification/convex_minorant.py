"""The optimal verifier of the whole "top-k, then i.i.d." family, by reductions and one sort over the vocabulary.

Off the leading drafts, p' is what p leaves and q' is q renormalised; m drafts are i.i.d. from q'. Tokens are ordered by
p'/q'; X_j, P_j and T_j are prefix sums of q', p' and t in that order. All sums are float64. The statement and its proof
are in `mdsd_theory.verifiers`.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from gpu.samplers import Drafts
from gpu.verification.residual import accept, normalised, without_leading

BRIDGE_STEPS = 48
TAIL = 1e-12
"""Beyond the point where q' has less mass left, 1 - X_j has no digits left: what is clipped there is not looked at."""


class Ordered(NamedTuple):
    """A node's tokens in the order of p'/q'. Shapes (M, V), prefix sums (M, V + 1)."""

    ratio: Tensor
    p: Tensor
    q: Tensor
    x: Tensor
    xm: Tensor  # X^m, the chance that all m drafts are among the first j tokens


def convex_minorant(p: Tensor, drafts: Drafts, u: Tensor) -> Tensor:
    """Law of the emitted token given the drafts and the uniform s = u (M,).

    The blocks of the lower convex envelope of (X_j, T_j - s X_j^m) cut the order; one of the drafts in the highest
    block that has any is selected uniformly, so over s it is distributed as t; single-draft speculative sampling then
    takes t to p. Only the block around the highest draft is computed.
    """
    ratio_type, p = p.dtype, p.double()
    rest, (p_off, top_mass) = without_leading(drafts.q.double(), drafts), _split(p, drafts)
    rest = normalised(rest, rest)
    m = (drafts.count - drafts.leading).clamp(min=1).double()[:, None]
    ratio = torch.where(rest > 0, p_off / rest, torch.inf).to(ratio_type)
    order = in_order(ratio, p_off, rest, m)
    kappa, tau = clipping_levels(order, top_mass)

    number = torch.arange(drafts.tokens.shape[1], device=p.device)
    random = (number >= drafts.leading[:, None]) & (number < drafts.count[:, None])  # (M, n)
    # Equal ratios: envelope vertices never come between them, so the first place stands for all.
    places = torch.searchsorted(order.ratio, ratio.gather(-1, drafts.tokens))
    highest = places.masked_fill(~random, 0).amax(-1, keepdim=True)
    low, high = bridge(order, _clipped(order.p, order.q, kappa, tau), u[:, None].double(), highest)

    in_block = random & (places >= low) & (places < high)
    target, draft = p.gather(-1, drafts.tokens), rest.gather(-1, drafts.tokens)
    weight = in_block / in_block.sum(-1, keepdim=True).clamp(min=1)
    accepted = weight * accept(target, _clipped(target, draft, kappa, tau))
    rejected = 1 - accepted.sum(-1, keepdim=True)
    law = normalised(p - _clipped(p_off, rest, kappa, tau), p).mul_(rejected).scatter_add_(-1, drafts.tokens, accepted)
    return torch.where(random.any(-1, keepdim=True), law, p)


def in_order(ratio: Tensor, p: Tensor, q: Tensor, m: Tensor) -> Ordered:
    """Sort by ratio (M, V); p', q' (M, V), m (M, 1)."""
    if ratio.device.type == "cpu":  # NumPy sorts with vector instructions, several times faster than torch
        order = torch.from_numpy(ratio.numpy().argsort(axis=-1))
    else:
        order = ratio.argsort(-1)
    p, q = p.gather(-1, order), q.gather(-1, order)
    x = _prefix(q).clamp_(max=1)
    return Ordered(ratio.gather(-1, order), p, q, x, x**m)


def clipping_levels(order: Ordered, top_mass: Tensor) -> tuple[Tensor, Tensor]:
    """kappa and tau (M, 1) such that t = min(max(p', kappa q'), tau q').

    With j* minimising P_j - X_j^m, h = X_j* and D = h^m - P_j*: kappa = min over j <= j* of (P_j + D) / X_j makes t sum
    to h^m on the first j* tokens, tau = max over j >= j* of (1 - P_j - D) / (1 - X_j) makes the others sum to 1 - h^m.
    top_mass (M, 1) is what p has on the leading drafts, so 1 - P_j is it plus the rest of p'.
    """
    p = _prefix(order.p)
    best = (p - order.xm).argmin(-1, keepdim=True)
    spare = (order.xm - p).gather(-1, best)
    left = _count_up(p) <= best
    kappa = torch.where(left & (order.x > 0), (p + spare) / order.x, torch.inf).amin(-1, keepdim=True)
    after = order.x[:, -1:] - order.x
    beyond = (top_mass - spare + p[:, -1:]) - p
    tau = torch.where(left.logical_not_().scatter_(-1, best, True) & (after > TAIL), beyond / after, 0.0)
    tau = tau.amax(-1, keepdim=True)
    # Nothing before j*: no token is raised. Nothing after it: none is lowered.
    kappa = torch.where(kappa.isinf(), 0.0, kappa)
    return kappa, torch.where(tau > 0, tau, torch.inf)


def bridge(order: Ordered, t: Tensor, s: Tensor, place: Tensor) -> tuple[Tensor, Tensor]:
    """The envelope's edge above one token's place (M, 1): its end points low <= place < high.

    From the chord between two points, go to the point farthest below it, on the side where that lies; each step is one
    pass over the points and ends at the edge (a secant method on the envelope's slope).
    """
    points = _prefix(t).sub_(s * order.xm)
    low, high = torch.zeros_like(place), torch.full_like(place, points.shape[-1] - 1)
    for _ in range(BRIDGE_STEPS):
        run = order.x.gather(-1, high) - order.x.gather(-1, low)
        slope = (points.gather(-1, high) - points.gather(-1, low)) / run
        below = points - slope * order.x
        lowest = below.argmin(-1, keepdim=True)
        better = below.gather(-1, lowest) < torch.minimum(below.gather(-1, low), below.gather(-1, high))
        if points.device.type == "cpu" and not better.any():
            break
        left = lowest <= place
        low = torch.where(better & left, lowest, low)
        high = torch.where(better & ~left, lowest, high)
    return low, high


def _split(p: Tensor, drafts: Drafts) -> tuple[Tensor, Tensor]:
    """p off the leading drafts (M, V), and its mass on them (M, 1)."""
    off = without_leading(p, drafts)
    at_leading = p.gather(-1, drafts.tokens) - off.gather(-1, drafts.tokens)  # leading drafts are distinct
    return off, at_leading.sum(-1, keepdim=True)


def _clipped(p: Tensor, q: Tensor, kappa: Tensor, tau: Tensor) -> Tensor:
    """t from p' and q'; where q' = 0 it is 0 (tau may be infinite)."""
    return torch.where(q > 0, torch.minimum(torch.maximum(p, kappa * q), tau * q), 0.0)


def _prefix(values: Tensor) -> Tensor:
    """Sums of the first 0, 1, ..., V entries (M, V + 1)."""
    sums = values.new_zeros((*values.shape[:-1], values.shape[-1] + 1))
    torch.cumsum(values, -1, out=sums[..., 1:])
    return sums


def _count_up(like: Tensor) -> Tensor:
    return torch.arange(like.shape[-1], device=like.device).expand(like.shape)

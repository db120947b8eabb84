"""Optimal acceptance rates in torch, for many positions at once on the device."""

from __future__ import annotations

import torch
from torch import Tensor

from gpu.distributions import top_tokens
from gpu.verification.convex_minorant import in_order
from gpu.verification.residual import normalised


def optimal_acceptance(p: Tensor, q: Tensor, n: int, top: int = 0) -> Tensor:
    """alpha* (M,), float64, of n drafts: the `top` largest tokens of q, the others i.i.d. from what q leaves.

    p, q (M, V), each row summing to 1. top = 0 is with replacement, n - 1 greedy, n deterministic drafts. The minimum
    of P(H) - Q(H) over token sets is at a prefix of the tokens by p/q [Hu et al., arXiv 2502.18779, sec. 4]; without
    replacement has no such closed form per prefix and is left to `mdsd_theory`.
    """
    if not 0 <= top <= n:
        raise ValueError(f"top must be from 0 to n = {n}, got {top}")
    largest = top_tokens(q, min(top, q.shape[1]))
    certain = p.gather(-1, largest).where(q.gather(-1, largest) > 0, 0.0).sum(-1, dtype=torch.float64)
    rest = q.double().scatter(-1, largest, 0.0)
    some_left = (rest > 0).any(-1)
    if top == n:
        return certain
    rest = normalised(rest, rest)
    off = p.double().scatter(-1, largest, 0.0)
    ratio = torch.where(rest > 0, off / rest, torch.inf).to(p.dtype)
    order = in_order(ratio, off, rest, torch.full_like(off[:, :1], n - top))
    inside = torch.nn.functional.pad(order.p.cumsum(-1), (1, 0))
    rate = 1 + certain + (inside - order.xm).amin(-1)
    return torch.where(some_left, rate, certain).clamp(0, 1)

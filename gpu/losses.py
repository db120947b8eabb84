"""What drafters are trained on and judged by, on features (last hidden states) and the target's head.

A drafter that shares the target's head W (V, d) gives logits W g. Two losses, at temperature 1:

cross-entropy   H(p, q) = logsumexp(W g) - g . m   with m = E_{i ~ p} W_i, so p itself (V numbers) need not be stored;
acceptance      1 - alpha*_n = Q(H)^n - P(H) for n i.i.d. drafts, H the minimising set: the tokens of smallest p / q.
                By the envelope theorem H is held fixed in the gradient. n = 1 is the total variation distance.

Hu et al., ICLR 2025 (arXiv 2502.18779), sec. 3 for alpha*.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

CHUNK = 256  # positions whose V logits are in memory at once


class Acceptance(NamedTuple):
    """Per position: alpha of one draft, alpha* of n i.i.d. drafts."""

    alpha: Tensor
    alpha_star: Tensor


def expected_embedding(features: Tensor, head: Tensor) -> Tensor:
    """m = E_{i ~ p} W_i (N, d) for the target's features (N, d) and its head W (V, d)."""
    return torch.cat([torch.softmax((f @ head.T).float(), -1).to(head.dtype) @ head for f in features.split(CHUNK)])


class _CrossEntropy(torch.autograd.Function):
    """Sum over positions; the gradient q W - m is made in the forward pass, so logits are never kept."""

    @staticmethod
    def forward(
        context: torch.autograd.function.FunctionCtx, g: Tensor, m: Tensor, head: Tensor, log_weights: Tensor | None
    ) -> Tensor:
        total, gradients = g.new_zeros((), dtype=torch.float32), []
        for part, mean in zip(g.to(head.dtype).split(CHUNK), m.split(CHUNK), strict=True):
            logits = (part @ head.T).float()
            if log_weights is not None:
                logits += log_weights
            norm = logits.logsumexp(-1, keepdim=True)
            total += norm.sum() - (part.float() * mean.float()).sum()
            gradients.append((logits.sub_(norm).exp_().to(head.dtype) @ head).float() - mean.float())
        context.save_for_backward(torch.cat(gradients).to(g.dtype))
        return total

    @staticmethod
    def backward(context: torch.autograd.function.FunctionCtx, scale: Tensor) -> tuple:
        return context.saved_tensors[0] * scale, None, None, None


class _Rejection(torch.autograd.Function):
    """Sum over positions of 1 - alpha*_n; gradient n Q^(n-1) (sum_{i in H} q_i W_i - Q(H) sum_i q_i W_i)."""

    @staticmethod
    def forward(
        context: torch.autograd.function.FunctionCtx,
        g: Tensor,
        features: Tensor,
        head: Tensor,
        n: int,
        log_weights: Tensor | None,
    ) -> Tensor:
        def law(part: Tensor) -> Tensor:
            logits = (part @ head.T).float()
            return torch.softmax(logits if log_weights is None else logits.add_(log_weights), -1)

        total, gradients = g.new_zeros((), dtype=torch.float32), []
        for part, feature in zip(g.to(head.dtype).split(CHUNK), features.to(head.dtype).split(CHUNK), strict=True):
            p, q = law(feature), law(part)
            inside = minimising_set(p, q, n)
            q_inside = q * inside
            mass = q_inside.sum(-1, keepdim=True)
            total += (mass[:, 0] ** n - (p * inside).sum(-1)).sum()
            slope = n * mass ** (n - 1) * (q_inside - mass * q)
            gradients.append((slope.to(head.dtype) @ head).float())
        context.save_for_backward(torch.cat(gradients).to(g.dtype))
        return total

    @staticmethod
    def backward(context: torch.autograd.function.FunctionCtx, scale: Tensor) -> tuple:
        return context.saved_tensors[0] * scale, None, None, None, None


def cross_entropy(g: Tensor, m: Tensor, head: Tensor, log_weights: Tensor | None = None) -> Tensor:
    """Mean over N positions of H(p, q); g (N, d) predicted features, m (N, d) from `expected_embedding`.

    With log_weights (K,), head holds only K rows of W and row k stands for exp(log_weights[k]) tokens in the sum over
    the vocabulary (sampled softmax); m stays the mean over the whole vocabulary.
    """
    return _CrossEntropy.apply(g, m, head, log_weights) / len(g)


def rejection(g: Tensor, features: Tensor, head: Tensor, n: int, log_weights: Tensor | None = None) -> Tensor:
    """Mean over N positions of 1 - alpha*_n; g (N, d) predicted features, features (N, d) the target's.

    With log_weights (K,), head holds only K rows of W and row k stands for exp(log_weights[k]) tokens that p and q give
    the same probabilities.
    """
    return _Rejection.apply(g, features, head, n, log_weights) / len(g)


def minimising_set(p: Tensor, q: Tensor, n: int, bins: int = 1024) -> Tensor:
    """bool (N, V): the prefix in p / q that minimises P(H) - Q(H)^n, exact for n = 1, to the width of a bin in
    p / (p + q) beyond."""
    if n == 1:
        return p < q
    z = (p / (p + q).clamp(min=1e-30) * bins).to(torch.int64).clamp(max=bins - 1)
    size = (len(p), bins)
    total_p = p.new_zeros(size).scatter_add_(1, z, p).cumsum(-1)
    total_q = q.new_zeros(size).scatter_add_(1, z, q).cumsum(-1)
    best = (total_p - total_q.clamp(max=1) ** n).argmin(-1, keepdim=True)
    return (z <= best) & (p < n * q)


def acceptance(g: Tensor, features: Tensor, head: Tensor, n: int) -> Acceptance:
    """Exact acceptance per position (N,) of a drafter's features against the target's, float32 logits."""
    return acceptance_of(
        [(f @ head.T, x @ head.T) for f, x in zip(features.split(CHUNK), g.split(CHUNK), strict=True)], n
    )


def acceptance_of(logits: list[tuple[Tensor, Tensor]], n: int) -> Acceptance:
    """The same from chunks of (target logits, drafter logits), (k, V) each."""
    alphas, stars = [], []
    for target, draft in logits:
        p, q = torch.softmax(target.float(), -1), torch.softmax(draft.float(), -1)
        alphas.append(torch.minimum(p, q).sum(-1))
        order = (p / (p + q).clamp(min=1e-30)).argsort(-1)
        sums_p, sums_q = p.gather(1, order).double().cumsum(-1), q.gather(1, order).double().cumsum(-1)
        stars.append(1 + (sums_p - sums_q.clamp(max=1) ** n).amin(-1).clamp(max=0))
    return Acceptance(torch.cat(alphas), torch.cat(stars).float())

"""Logits to probabilities and probabilities to tokens, in torch, batched over all leading axes, without host syncs.

The rules are those of `mdsd_theory.probabilities`; a test holds the two together. Half-precision logits become float32
probabilities here, once: the tensor that is drawn from is the tensor that is verified with.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Sampling:
    """How a next-token law is made from logits: temperature, then top-k, then top-p.

    temperature 0 is the one-hot limit (ties to the lowest token id); top_k and top_p None switch them off.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < float("inf"):
            raise ValueError(f"temperature must be a finite number >= 0, got {self.temperature}")
        if self.top_k is not None and self.top_k < 1:
            raise ValueError(f"top_k must be at least 1, got {self.top_k}")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must be in (0, 1], got {self.top_p}")

    def __call__(self, logits: Tensor) -> Tensor:
        """Probabilities (..., V), float32 (float64 for float64 logits); NaN where the largest logit is not finite."""
        return probabilities(logits, self)


def probabilities(logits: Tensor, sampling: Sampling) -> Tensor:
    logits = logits if logits.dtype == torch.float64 else logits.float()
    if sampling.temperature == 0:
        best = _lowest_argmax(logits)
        one_hot = torch.zeros_like(logits).scatter_(-1, best, 1.0)
        return one_hot.masked_fill_(~logits.amax(-1, keepdim=True).isfinite(), torch.nan)
    if sampling.top_k is not None and sampling.top_k < logits.shape[-1]:
        logits = logits.masked_fill(~_largest(logits, sampling.top_k), -torch.inf)
    # the largest becomes 0 and stays so: no temperature, however small, lets the quotients overflow
    scaled = logits
    if sampling.temperature != 1:
        tiny = torch.finfo(logits.dtype).tiny
        scaled = (logits - logits.amax(-1, keepdim=True)) / max(sampling.temperature, tiny)
    if sampling.top_p is None or sampling.top_p == 1:
        return scaled.softmax(-1)
    # by the logits: a large temperature rounds different weights to equal ones, and changes no order
    order = logits.sort(dim=-1, descending=True, stable=True).indices
    weights = (scaled - scaled.amax(-1, keepdim=True)).exp()
    ordered = weights.gather(-1, order)
    mass = ordered.cumsum(-1, dtype=torch.float64)
    kept = torch.where(mass - ordered < sampling.top_p * mass[..., -1:], ordered, 0.0)
    return torch.zeros_like(weights).scatter_(-1, order, kept / kept.sum(-1, keepdim=True))


def categorical(weights: Tensor, u: Tensor) -> Tensor:
    """Inverse-CDF draw: one token per row of weights (..., V), >= 0 with any positive sum, for uniforms u (...) < 1.

    Summed in float64, so small probabilities of a large vocabulary are drawn at their rate. A token of weight 0 is
    never drawn, not even at u = 0.
    """
    mass = weights.cumsum(-1, dtype=torch.float64)
    total = mass[..., -1:]
    token = torch.searchsorted(mass, u[..., None] * total, right=True)
    # u * total may round up to total: then the last token of positive weight
    last = torch.searchsorted(mass, total.contiguous(), right=False)
    # NaN weights give a token too: whoever owns them finds them and says so, an index beyond the end would not
    return torch.minimum(token, last).clamp_(max=weights.shape[-1] - 1).squeeze(-1)


def top_tokens(q: Tensor, k: int) -> Tensor:
    """The k largest entries' indices (..., k), largest first, ties by lowest index."""
    if k == 0:
        return torch.empty((*q.shape[:-1], 0), dtype=torch.int64, device=q.device)
    chosen = _largest(q, k)
    index = torch.arange(q.shape[-1], device=q.device)
    by_index = torch.where(chosen, index, q.shape[-1]).topk(k, dim=-1, largest=False, sorted=True).values
    order = q.gather(-1, by_index).sort(dim=-1, descending=True, stable=True).indices
    return by_index.gather(-1, order)


def _largest(values: Tensor, k: int) -> Tensor:
    """Mask (..., V) of the k largest entries, ties by lowest index (torch.topk leaves ties to chance)."""
    least = values.topk(k, dim=-1).values[..., -1:]
    above, tied = values > least, values == least
    room = k - above.sum(-1, keepdim=True)
    return above | (tied & (tied.cumsum(-1) <= room))


def _lowest_argmax(values: Tensor) -> Tensor:
    """Index (..., 1) of the largest entry, the lowest where several are equal."""
    index = torch.arange(values.shape[-1], device=values.device)
    best = torch.where(values == values.amax(-1, keepdim=True), index, values.shape[-1] - 1)
    return best.amin(-1, keepdim=True)

"""Several drafters as one: q = sum_k w_k q_k, and that very q draws and is verified.

The weights are fixed, or follow each drafter's confidence at the node, w_k ~ weight_k (max_x q_k(x))^confidence: an
n-gram model that has seen the context before is sharp and gets more say than one that has not.
"""

from __future__ import annotations

import re

import torch
from torch import Tensor

from gpu.drafters.base import Drafter, Session
from gpu.models import LoadedModel, pad_logits


class Mixture(Drafter):
    """weights: one positive number per drafter, of any sum. confidence: 0 keeps the weights fixed."""

    def __init__(self, drafters: list[Drafter], weights: list[float], confidence: float = 0.0) -> None:
        if not drafters or len(drafters) != len(weights):
            raise ValueError(f"a mixture needs one weight per drafter, got {len(drafters)} and {len(weights)}")
        if not all(0 < weight < float("inf") for weight in weights):
            raise ValueError(f"mixture weights must be positive, got {weights}")
        if not 0 <= confidence < float("inf"):
            raise ValueError(f"mixture confidence must be 0 or more, got {confidence}")
        self.drafters, self.confidence = drafters, confidence
        self.weights = [weight / sum(weights) for weight in weights]
        self.vocab_size = max(drafter.vocab_size for drafter in drafters)
        limits = [drafter.max_length for drafter in drafters if drafter.max_length is not None]
        self.max_length = min(limits, default=None)
        self.needs_features = any(drafter.needs_features for drafter in drafters)
        self.name = " + ".join(f"{w:.3g} {d.name}" for w, d in zip(self.weights, drafters, strict=True))

    def begin(self, prompts: list[list[int]], features: list[Tensor] | None = None) -> Session:
        return _Session(self, [drafter.begin(prompts, features) for drafter in self.drafters])

    def combine(self, logits: list[Tensor]) -> tuple[Tensor, Tensor]:
        """log q (..., V) and the weights used (K, ...), which sum to 1 over K, from each drafter's logits (..., V)."""
        laws = torch.stack([torch.softmax(pad_logits(z, self.vocab_size).float(), -1) for z in logits])
        shape = (-1, *[1] * (laws.ndim - 2))
        weights = torch.tensor(self.weights, device=laws.device).reshape(shape).expand(laws.shape[:-1])
        if self.confidence:
            weights = weights * laws.amax(-1) ** self.confidence
            weights = weights / weights.sum(0)
        return (weights[..., None] * laws).sum(0).log(), weights


class _Session(Session):
    def __init__(self, mixture: Mixture, sessions: list[Session]) -> None:
        self.mixture, self.sessions = mixture, sessions

    def expand(self, tokens: Tensor, parents: Tensor) -> Tensor:
        return self.mixture.combine([session.expand(tokens, parents) for session in self.sessions])[0]

    def commit(self, paths: list[list[int]], tokens: list[list[int]], features: list[Tensor] | None = None) -> None:
        for session in self.sessions:
            session.commit(paths, tokens, features)

    def keep(self, rows: list[int]) -> None:
        for session in self.sessions:
            session.keep(rows)


def from_spec(target: LoadedModel, argument: str, pad_vocab: bool = False) -> Mixture:
    """Drafter "mixture:WEIGHT*SPEC+WEIGHT*SPEC...", also "...^CONFIDENCE": mixture:0.9*lens:FILE+0.1*ngram^0.5."""
    from gpu.drafters import make

    parts, _, confidence = argument.partition("^")
    weights, drafters = [], []
    for part in re.split(r"\+(?=[^+*]*\*)", parts):  # a plus sign may also stand in the name of a file
        weight, times, spec = part.partition("*")
        try:
            weights.append(float(weight))
        except ValueError:
            times = ""
        if not times:
            raise ValueError(f"drafter mixture:{argument}: {part!r} is not WEIGHT*DRAFTER, as in 0.9*bundled")
        drafters.append(make(spec, target, pad_vocab))
    try:
        return Mixture(drafters, weights, float(confidence or 0))
    except ValueError as error:
        raise ValueError(f"drafter mixture:{argument}: {error}") from error

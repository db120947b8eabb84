"""Draft samplers in torch: the children of many nodes at once, the same names and laws as `mdsd_theory.drafts`.

Adding one is a function and a line in SAMPLERS.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from gpu.distributions import categorical, top_tokens


class Drafts(NamedTuple):
    """Draft tokens at M nodes, with the q they were drawn from.

    q        (M, V).
    tokens   int64 (M, n) in draw order; only the first `count` of a row are drafts, the rest is 0.
    count    int64 (M,), below n where q has too few tokens.
    leading  int64 (M,), how many of them are the largest of q, proposed always; the others are random.
    """

    q: Tensor
    tokens: Tensor
    count: Tensor
    leading: Tensor

    @property
    def drawn(self) -> Tensor:
        """bool (M, n): which entries of `tokens` are drafts."""
        return torch.arange(self.tokens.shape[1], device=self.tokens.device) < self.count[:, None]


def with_replacement(q: Tensor, n: int, u: Tensor, top: int = 0) -> Drafts:
    """n tokens i.i.d. from q (M, V), one uniform u (M, n) each."""
    tokens = torch.stack([categorical(q, u[:, k]) for k in range(n)], dim=1)
    return Drafts(q, tokens, *_counts(q, n, 0))


def without_replacement(q: Tensor, n: int, u: Tensor, top: int = 0) -> Drafts:
    """n different tokens, each from q renormalised without those before it."""
    rest, tokens = q, []
    for k in range(n):
        tokens.append(categorical(rest, u[:, k]))
        rest = rest.scatter(-1, tokens[-1][:, None], 0.0)
    count = (q > 0).sum(-1).clamp(max=n)
    return _masked(Drafts(q, torch.stack(tokens, dim=1), count, torch.zeros_like(count)))


def top_then_sample(q: Tensor, n: int, u: Tensor, top: int = 1) -> Drafts:
    """The min(top, n) largest tokens of q, then the others i.i.d. from q renormalised without them."""
    top = min(top, n)
    largest = top_tokens(q, min(top, q.shape[1]))
    rest = q.scatter(-1, largest, 0.0)
    tokens = [largest, *(categorical(rest, u[:, k])[:, None] for k in range(largest.shape[1], n))]
    leading = (q.gather(-1, largest) > 0).sum(-1)
    count = torch.where((rest > 0).any(-1), n, leading)
    return _masked(Drafts(q, torch.cat(tokens, dim=1), count, leading))


def greedy(q: Tensor, n: int, u: Tensor, top: int = 0) -> Drafts:
    """The n - 1 largest tokens of q and one from the rest [Hu et al., arXiv 2502.18779, sec. 5]."""
    return top_then_sample(q, n, u, n - 1)


def deterministic(q: Tensor, n: int, u: Tensor, top: int = 0) -> Drafts:
    """The n largest tokens of q, as in EAGLE's trees."""
    return top_then_sample(q, n, u, n)


def spechub(q: Tensor, n: int, u: Tensor, top: int = 0) -> Drafts:
    """Two drafts [arXiv 2411.05289]: x ~ q, then the hub a = argmax q; when x is the hub, a token from the rest."""
    hub = top_tokens(q, 1)
    first = categorical(q, u[:, 0])[:, None]
    other = categorical(q.scatter(-1, hub, 0.0), u[:, 1])[:, None]
    second = torch.where(first == hub, other, hub)
    count = (q > 0).sum(-1).clamp(max=2)
    return _masked(Drafts(q, torch.cat([first, second], dim=1), count, torch.zeros_like(count)))


def _counts(q: Tensor, n: int, leading: int) -> tuple[Tensor, Tensor]:
    count = torch.full((len(q),), n, dtype=torch.int64, device=q.device)
    return count, torch.full_like(count, leading)


def _masked(drafts: Drafts) -> Drafts:
    return drafts._replace(tokens=drafts.tokens.where(drafts.drawn, 0))


SAMPLERS: dict[str, Callable[[Tensor, int, Tensor, int], Drafts]] = {
    "with-replacement": with_replacement,
    "without-replacement": without_replacement,
    "greedy": greedy,
    "top-then-sample": top_then_sample,
    "deterministic": deterministic,
    "spechub": spechub,
}


@dataclass(frozen=True)
class Sampler:
    """A draft sampler by name; `top` belongs to top-then-sample."""

    name: str
    top: int = 1

    def __post_init__(self) -> None:
        if self.name not in SAMPLERS:
            raise ValueError(f"unknown sampler {self.name!r}; known: {', '.join(SAMPLERS)}")
        if self.top < 0:
            raise ValueError(f"top must be at least 0, got {self.top}")

    @classmethod
    def parse(cls, spec: str) -> Sampler:
        """From its name; "top-then-sample:2" has top = 2."""
        name, _, top = spec.partition(":")
        if top and (name != "top-then-sample" or not top.isdecimal()):
            raise ValueError(f"sampler {spec!r}: only top-then-sample takes a number, as in top-then-sample:2")
        return cls(name, int(top or 1))

    def __str__(self) -> str:
        return f"{self.name}:{self.top}" if self.name == "top-then-sample" else self.name

    def __call__(self, q: Tensor, n: int, u: Tensor) -> Drafts:
        """Draw n drafts at each of M nodes from q (M, V) with uniforms u (M, n)."""
        return SAMPLERS[self.name](q, n, u, self.top)

    def theory(self, q, n: int):  # noqa: ANN001, ANN201
        """The same draft as `mdsd_theory` object, for pairing checks, bounds and verifiers that run on the host.

        n is the number of drafts asked for, or drawn where q had too few tokens for that.
        """
        from mdsd_theory import drafts

        if self.name == "top-then-sample":
            return drafts.TopThenSample(q, n, top=min(self.top, n))
        if self.name == "deterministic":
            return drafts.TopThenSample(q, n, top=n)
        if self.name == "spechub" and n == 1 and (q > 0).sum() == 1:
            return drafts.SpecHub(q)  # which then proposes that one token
        return drafts.make(self.name, q, n=n)

"""What the verifiers share: adding mass at a token, and normalised positive parts."""

import torch
from torch import Tensor

from gpu.distributions import top_tokens
from gpu.samplers import Drafts


def at(values: Tensor, token: Tensor) -> Tensor:
    """values (M, V) at token (M,)."""
    return values.gather(-1, token[:, None]).squeeze(-1)


def add_at(law: Tensor, token: Tensor, mass: Tensor) -> Tensor:
    """law (M, V) with mass (M,) added at token (M,), in place."""
    return law.scatter_add_(-1, token[:, None], mass[:, None])


def accept(p: Tensor, q: Tensor) -> Tensor:
    """min(1, p / q) elementwise, 1 where q = 0 (a draft that cannot have been drawn)."""
    return torch.where(p < q, p / q, 1.0)


def hub_of(drafts: Drafts) -> Tensor:
    """The token of largest q (M,), ties by lowest id."""
    return top_tokens(drafts.q, 1).squeeze(-1)


def hub_leads(drafts: Drafts) -> Drafts:
    """SpecHub's pairs as the set they are: the hub as the leading draft, then the other token."""
    hub = hub_of(drafts)[:, None]
    other = drafts.tokens.where(drafts.tokens != hub, 0).amax(1, keepdim=True)
    tokens = torch.cat([hub, other, torch.zeros_like(drafts.tokens[:, 2:])], dim=1)
    return drafts._replace(tokens=tokens, leading=drafts.count.clamp(max=1))


def without(values: Tensor, token: Tensor) -> Tensor:
    """values (M, V) with 0 at token (M,)."""
    return values.scatter(-1, token[:, None], 0.0)


def without_leading(values: Tensor, drafts: Drafts) -> Tensor:
    """values (M, V) with 0 at the leading drafts."""
    n = drafts.tokens.shape[1]
    is_leading = torch.arange(n, device=drafts.tokens.device) < drafts.leading[:, None]
    kept = values.gather(-1, drafts.tokens).masked_fill_(is_leading, 0)
    # entries >= 0, so the smaller of two writes is the 0: a padding entry (token 0) cannot undo a leading token 0
    return values.scatter_reduce(-1, drafts.tokens, kept, "amin")


def normalised(rest: Tensor, otherwise: Tensor) -> Tensor:
    """(rest)_+ over its sum (M, V); `otherwise` in rows where nothing is left, reached with rounding-level chance."""
    rest = rest.clamp_(min=0)
    total = rest.sum(-1, keepdim=True)
    return torch.where(total > 0, rest / total, otherwise)

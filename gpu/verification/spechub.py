import torch
from torch import Tensor

from gpu.samplers import Drafts
from gpu.verification.residual import accept, add_at, at, hub_of, normalised, without


def spechub(p: Tensor, drafts: Drafts, u: Tensor) -> Tensor:
    """SpecHub's own plan for pairs around the hub a = argmax q [Sun et al., arXiv 2411.05289, sec. 4].

    Pairs (x, a), of mass q(x), send min(p(x), q(x)) to x; pairs (a, x), of mass q'(x) - q(x) with q' = q renormalised
    off a, send to x what p(x) still lacks; all other mass is drawn from (p - q')_+ normalised. Drafts whose certain
    token always comes first (greedy with n = 2) have pairs (a, x) alone, of mass q'(x).
    """
    hub = hub_of(drafts)
    rest = normalised(without(drafts.q, hub), torch.zeros_like(drafts.q))
    hub_first = drafts.tokens[:, 0] == hub
    x = torch.where(hub_first, drafts.tokens[:, -1], drafts.tokens[:, 0])
    x_first = torch.where(drafts.leading > 0, 0.0, at(drafts.q, x))  # mass of the pair (x, a)
    lacking = at(p, x) - torch.minimum(at(p, x), x_first)
    accepted = torch.where(hub_first, accept(lacking, at(rest, x) - x_first), accept(at(p, x), x_first))
    pair = drafts.count == 2
    accepted = torch.where(pair, accepted, 0.0)
    residual = torch.where(pair[:, None], normalised(p - rest, p), p)
    return add_at((1 - accepted)[:, None] * residual, x, accepted)

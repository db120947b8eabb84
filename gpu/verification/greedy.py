import torch
from torch import Tensor

from gpu.samplers import Drafts
from gpu.verification.residual import accept, add_at, at, normalised, without_leading


def greedy(p: Tensor, drafts: Drafts, u: Tensor) -> Tensor:
    """Optimal verifier of the greedy sampler [Hu et al., arXiv 2502.18779, sec. 5.2].

    The last draft x, from q' (q renormalised off the leading tokens), is accepted with probability
    min(1, p(x) / q'(x)); else the token comes from (p - q')_+ normalised, which is p on the leading tokens. Landing on
    one of them is an acceptance too. Drafts that are all leading are a fixed set: the law is p.
    """
    rest = without_leading(drafts.q, drafts)
    rest = normalised(rest, rest)
    random = drafts.count > drafts.leading
    x = drafts.tokens.gather(-1, (drafts.count - 1).clamp(min=0)[:, None]).squeeze(-1)
    accepted = torch.where(random, accept(at(p, x), at(rest, x)), 0.0)
    residual = torch.where(random[:, None], normalised(p - rest, p), p)
    return add_at((1 - accepted)[:, None] * residual, x, accepted)

import torch
from torch import Tensor

from gpu.samplers import Drafts
from gpu.verification.residual import accept, add_at, at, normalised

ITERATIONS = 60


def kseq(p: Tensor, drafts: Drafts, u: Tensor) -> Tensor:
    """K-SEQ for i.i.d. drafts [Sun et al., arXiv 2310.15141, alg. 2].

    Each x_k in turn is accepted with probability min(1, p(x_k) / (gamma q(x_k))); when all are rejected, the token
    comes from p - c min(q, p / gamma) normalised, c = (1 - (1 - b)^n) / b. At gamma = gamma* that is (p - gamma q)_+;
    at any gamma above it (rounding) it is still lossless.
    """
    q, n = drafts.q, drafts.count.to(p.dtype)
    gamma = smallest_gamma(p, q, n)
    overlap = torch.minimum(q, p / gamma[:, None])
    b = overlap.sum(-1)
    law, rejected = torch.zeros_like(p), torch.ones_like(b)
    for k in range(drafts.tokens.shape[1]):
        token = drafts.tokens[:, k]
        accepted = torch.where(k < drafts.count, accept(at(p, token) / gamma, at(q, token)), 0.0)
        add_at(law, token, rejected * accepted)
        rejected = rejected * (1 - accepted)
    c = torch.where(b > 0, _hit(b, n) / b, 0.0)
    return law.addcmul_(rejected[:, None], normalised(p - c[:, None] * overlap, p))


def smallest_gamma(p: Tensor, q: Tensor, n: Tensor) -> Tensor:
    """gamma* (M,): the smallest gamma in [1, n] with 1 - (1 - b(gamma))^n <= gamma b(gamma), b = sum min(q, p / gamma).

    Bisection from above, so the value returned satisfies the inequality.
    """
    low, high = torch.ones_like(n), n.clamp(min=1)
    for _ in range(ITERATIONS):
        middle = (low + high) / 2
        b = torch.minimum(q, p / middle[:, None]).sum(-1)
        enough = _hit(b, n) <= middle * b
        low, high = torch.where(enough, low, middle), torch.where(enough, middle, high)
    return high


def _hit(b: Tensor, n: Tensor) -> Tensor:
    """1 - (1 - b)^n, accurate for small b."""
    return -torch.expm1(n * torch.log1p(-b.clamp(max=1)))

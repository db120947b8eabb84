import torch
from torch import Tensor

from gpu.samplers import Drafts
from gpu.verification.residual import accept, add_at, at, normalised

ITERATIONS = 50
ROUNDING = 1e-15


def kseq(p: Tensor, drafts: Drafts, u: Tensor) -> Tensor:
    """K-SEQ for i.i.d. drafts [Sun et al., arXiv 2310.15141, alg. 2], in float64.

    Each x_k in turn is accepted with probability min(1, p(x_k) / (gamma q(x_k))); when all are rejected, the token
    comes from (p - gamma q)_+ normalised. Short of rounding, that is p - c min(p, gamma q) with the share c of the
    overlap that acceptance serves, which keeps the output p even where gamma* is known to few digits (p close to q).
    """
    p = p.double() / p.sum(-1, keepdim=True, dtype=torch.float64)
    q = drafts.q.double()
    q = q / q.sum(-1, keepdim=True).clamp(min=torch.finfo(q.dtype).tiny)  # all 0 where there are no drafts
    n = drafts.count.double()
    gamma = smallest_gamma(p, q, n)
    overlap = torch.minimum(p, gamma[:, None] * q)
    total = overlap.sum(-1)
    served = torch.where(total > 0, _hit(total / gamma, n) / total, 0.0).clamp(max=1)
    law, rejected = torch.zeros_like(p), torch.ones_like(total)
    for k in range(drafts.tokens.shape[1]):
        token = drafts.tokens[:, k]
        accepted = torch.where(k < drafts.count, accept(at(p, token), gamma * at(q, token)), 0.0)
        add_at(law, token, rejected * accepted)
        rejected = rejected * (1 - accepted)
    return law.addcmul_(rejected[:, None], normalised(p - served[:, None] * overlap, p))


def smallest_gamma(p: Tensor, q: Tensor, n: Tensor) -> Tensor:
    """gamma* (M,): the smallest gamma in [1, n] with 1 - (1 - b(gamma))^n <= gamma b(gamma), b = sum min(q, p / gamma).

    The excess of the left side falls with gamma: Newton steps, bisection where they leave the bracket.
    """
    ends = torch.ones_like(n), n.clamp(min=1)
    at_one, at_n = (_excess(p, q, n, end)[0] for end in ends)
    low, high = ends
    gamma = (low + high) / 2
    done = torch.zeros_like(n, dtype=torch.bool)
    for _ in range(ITERATIONS):
        excess, slope = _excess(p, q, n, gamma)
        low, high = torch.where(excess > 0, gamma, low), torch.where(excess > 0, high, gamma)
        newton = gamma - excess / slope
        done = done | ((newton - gamma).abs() < ROUNDING * gamma) | (high - low < ROUNDING * gamma)
        if gamma.device.type == "cpu" and done.all():
            break
        inside = (newton > low) & (newton < high)
        gamma = torch.where(done, gamma, torch.where(inside, newton, (low + high) / 2))
    return torch.where(at_one <= ROUNDING, ends[0], torch.where(at_n >= 0, ends[1], gamma))


def _excess(p: Tensor, q: Tensor, n: Tensor, gamma: Tensor) -> tuple[Tensor, Tensor]:
    """1 - (1 - b)^n - gamma b at gamma (M,), and its derivative."""
    scaled = gamma[:, None] * q
    under = scaled < p  # these tokens' q, the others' p / gamma, make up b
    from_q = q.where(under, 0.0).sum(-1)
    from_p = p.where(~under, 0.0).sum(-1)
    total = gamma * from_q + from_p
    b = (total / gamma).clamp(max=1)
    return _hit(b, n) - total, -from_q - n * (1 - b) ** (n - 1) * from_p / gamma**2


def _hit(b: Tensor, n: Tensor) -> Tensor:
    """1 - (1 - b)^n, accurate for small b."""
    return -torch.expm1(n * torch.log1p(-b.clamp(max=1)))

import torch
from torch import Tensor

from gpu.samplers import Drafts
from gpu.verification.residual import accept, add_at, at, normalised


def recursive_rejection(p: Tensor, drafts: Drafts, u: Tensor) -> Tensor:
    """RRS with replacement [Miao et al., arXiv 2305.09781]; for one draft, speculative sampling as in [2211.17192].

    r_1 = p; x_k is accepted with probability min(1, r_k(x_k) / q(x_k)), else r_{k+1} is (r_k - q)_+ normalised; when
    all are rejected the token is drawn from the last r.
    """
    return _recursive(p, drafts, replace=True)


def recursive_rejection_without(p: Tensor, drafts: Drafts, u: Tensor) -> Tensor:
    """RRS without replacement [arXiv 2401.06706, 2402.14160]: q_k is q renormalised without x_1 .. x_{k-1}."""
    return _recursive(p, drafts, replace=False)


def _recursive(p: Tensor, drafts: Drafts, replace: bool) -> Tensor:
    law, r, q = torch.zeros_like(p), p, drafts.q
    rejected = torch.ones_like(p[:, 0])  # probability that all drafts so far were rejected
    for k in range(drafts.tokens.shape[1]):
        token, active = drafts.tokens[:, k], k < drafts.count
        accepted = torch.where(active, accept(at(r, token), at(q, token)), 0.0)
        add_at(law, token, rejected * accepted)
        rejected = rejected * (1 - accepted)
        r = torch.where(active[:, None], normalised(r - q, r), r)
        if not replace:
            q = q.scatter(-1, token[:, None], 0.0)
            q = normalised(q, q)
    return law.addcmul_(rejected[:, None], r)

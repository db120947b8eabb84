"""Any `mdsd_theory` verifier at the nodes of real models, one node after the other on the host."""

import torch
from torch import Tensor

from gpu.samplers import Drafts, Sampler


def on_host(verifier, sampler: Sampler):  # noqa: ANN001, ANN201
    """A law function that asks `verifier` (an `mdsd_theory` verifier) for its kernel at every node."""

    def law(p: Tensor, drafts: Drafts, u: Tensor) -> Tensor:
        rows = []
        for target, q, tokens, count in zip(p.double().cpu(), *(t.cpu() for t in drafts[:3]), strict=True):
            n = int(count)
            if n == 0:
                rows.append(target)
                continue
            target, q = target / target.sum(), q.double() / q.double().sum()
            draft = sampler.theory(q.numpy(), n)
            rows.append(torch.from_numpy(verifier.kernel(target.numpy(), draft, tokens[:n].numpy())))
        return torch.stack(rows).to(p)

    return law

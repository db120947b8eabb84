"""Verifiers in torch, batched over nodes and texts: the same names and laws as `mdsd_theory.verifiers`.

A verifier is a function `law(p, drafts, u)`: the law (M, V) of the token emitted at each of M nodes, given that node's
draft tokens, so that emitting is one inverse-CDF draw for every verifier. A verifier that is randomised beyond that
uses the uniforms u (M,); its law is then also given u. Laws are not normalised to the last bit. A node without drafts
(a leaf) has the law p whatever the verifier.

Adding one is a file here and a line in VERIFIERS. Names that only `mdsd_theory` knows are run there, on the host.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from gpu.samplers import Drafts, Sampler
from gpu.trees import Tree
from gpu.verification.convex_minorant import convex_minorant
from gpu.verification.greedy import greedy
from gpu.verification.kseq import kseq
from gpu.verification.naive import naive
from gpu.verification.recursive_rejection import recursive_rejection, recursive_rejection_without
from gpu.verification.residual import hub_leads
from gpu.verification.spechub import spechub

Law = Callable[[Tensor, Drafts, Tensor], Tensor]

VERIFIERS: dict[str, Law] = {
    "naive": naive,
    "single-draft": recursive_rejection,
    "rrs": recursive_rejection,
    "kseq": kseq,
    "greedy": greedy,
    "spechub": spechub,
    "convex-minorant": convex_minorant,
}


def known() -> tuple[str, ...]:
    """Names of all verifiers, those in torch first."""
    from mdsd_theory import verifiers

    return (*VERIFIERS, *(name for name in verifiers.names() if name not in VERIFIERS))


def make(name: str, sampler: Sampler, tree: Tree) -> Law:
    """The verifier of this name for these drafts.

    Raises ValueError for an unknown name, or when `mdsd_theory` says the verifier cannot serve this sampler with the
    numbers of drafts that the tree has.
    """
    import numpy as np

    from mdsd_theory import verifiers

    if name not in known():
        raise ValueError(f"unknown verifier {name!r}; known: {', '.join(known())}")
    theory = verifiers.make(name)
    for n in sorted({len(children) for children in tree.children} - {0}):
        q = np.full(2 * n + 2, 1 / (2 * n + 2))
        theory.check(q, sampler.theory(q, n))
    if name == "rrs" and sampler.name == "without-replacement":
        return recursive_rejection_without
    if name in ("greedy", "convex-minorant") and sampler.name == "spechub":
        return lambda p, drafts, u: VERIFIERS[name](p, hub_leads(drafts), u)
    if name in VERIFIERS:
        return VERIFIERS[name]
    from gpu.verification.on_host import on_host

    return on_host(theory, sampler)

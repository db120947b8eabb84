"""How texts are decoded, as one value."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpu import trees, verification
from gpu.distributions import Sampling
from gpu.samplers import Sampler
from gpu.trees import Tree
from gpu.verification import Law


@dataclass(frozen=True)
class Method:
    """How texts are decoded: the tree, who draws its drafts, who verifies them, and both models' sampling."""

    tree: Tree
    sampler: Sampler
    verifier: str
    sampling: Sampling = field(default_factory=Sampling)
    draft_sampling: Sampling = field(default_factory=Sampling)

    @classmethod
    def make(
        cls,
        tree: str | Tree = "eagle-sparse",
        sampler: str | Sampler = "without-replacement",
        verifier: str = "rrs",
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        draft_temperature: float | None = None,
        draft_top_k: int | None = None,
        draft_top_p: float | None = None,
    ) -> Method:
        """From names. The drafter samples like the target unless told otherwise.

        Raises ValueError for unknown names, values out of range, or a verifier that cannot serve the sampler.
        """
        target = Sampling(temperature, top_k, top_p)
        draft = Sampling(
            temperature if draft_temperature is None else draft_temperature,
            top_k if draft_top_k is None else draft_top_k,
            top_p if draft_top_p is None else draft_top_p,
        )
        sampler = sampler if isinstance(sampler, Sampler) else Sampler.parse(sampler)
        method = cls(trees.parse(tree), sampler, verifier, target, draft)
        method.law()
        return method

    def law(self) -> Law:
        """The verifier in torch."""
        return verification.make(self.verifier, self.sampler, self.tree)

    @classmethod
    def parse(cls, spec: str, **sampling: float | None) -> Method:
        """From "TREE SAMPLER VERIFIER", such as "kary:2x4 top-then-sample:2 convex-minorant"."""
        parts = spec.split()
        if len(parts) != 3:
            raise ValueError(f"method {spec!r}: give a tree, a sampler and a verifier, separated by spaces")
        return cls.make(parts[0], Sampler.parse(parts[1]), parts[2], **sampling)

    @property
    def name(self) -> str:
        if self.tree.depth == 0:
            return "plain"
        return f"{self.sampler} + {self.verifier} on {self.tree.name}"

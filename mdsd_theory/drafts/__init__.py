"""Draft samplers, one file each. `make` builds one by name; other packages add theirs under the entry point
`mdsd.drafts`.
"""

from __future__ import annotations

from numpy.typing import ArrayLike

from mdsd_theory.drafts.base import Draft
from mdsd_theory.drafts.independent import Independent
from mdsd_theory.drafts.joint import Joint
from mdsd_theory.drafts.spechub import SpecHub
from mdsd_theory.drafts.top_then_sample import Greedy, TopThenSample
from mdsd_theory.drafts.with_replacement import WithReplacement
from mdsd_theory.drafts.without_replacement import WithoutReplacement
from mdsd_theory.registry import Registry

_REGISTRY = Registry(
    "sampler",
    "mdsd.drafts",
    {
        draft.name: draft
        for draft in (WithReplacement, WithoutReplacement, Greedy, TopThenSample, SpecHub, Independent, Joint)
    },
)
NAMES = _REGISTRY.names


def make(name: str, q: ArrayLike, n: int | None = None, **parameters: object) -> Draft:
    """The draft sampler called `name`, for command lines and configurations.

    Args:
        name: one of `names()`.
        q: the drafter's distribution (V,); for "independent" one per drafter (n, V); for "joint" the table (V,) * n.
        n: number of drafts; not given where q or the sampler fixes it (independent, joint, spechub), or equal to it.
        parameters: what the sampler takes beside q and n (`top` for "top-then-sample").

    Raises:
        ValueError: unknown name (the known ones are listed), parameters the sampler does not take, or its own checks.
    """
    sampler = _REGISTRY.get(name)
    fixed = sampler in (SpecHub, Independent, Joint)
    if n is not None and not fixed:
        parameters["n"] = n
    try:
        draft = sampler(q, **parameters)
    except TypeError as error:
        raise ValueError(f"sampler {name}: {str(error).replace('__init__()', name)}") from None
    if fixed and n is not None and n != draft.n:
        raise ValueError(f"n: {n}; {name} here has n = {draft.n}")
    return draft


def names() -> tuple[str, ...]:
    """The known samplers, those of installed packages included."""
    return _REGISTRY.all_names()


__all__ = [
    "NAMES",
    "Draft",
    "Greedy",
    "Independent",
    "Joint",
    "SpecHub",
    "TopThenSample",
    "WithReplacement",
    "WithoutReplacement",
    "make",
    "names",
]

"""Verifiers, one file each. `make` builds one by name; other packages add theirs under the entry point
`mdsd.verifiers`.
"""

from __future__ import annotations

from mdsd_theory.registry import Registry
from mdsd_theory.verifiers.base import Law, Verifier
from mdsd_theory.verifiers.canonical import Canonical
from mdsd_theory.verifiers.convex_minorant import ConvexMinorant
from mdsd_theory.verifiers.greedy import Greedy
from mdsd_theory.verifiers.kseq import KSeq
from mdsd_theory.verifiers.naive import Naive
from mdsd_theory.verifiers.recursive_rejection import RecursiveRejection
from mdsd_theory.verifiers.single_draft import SingleDraft
from mdsd_theory.verifiers.spechub import SpecHub
from mdsd_theory.verifiers.transport_plan import TransportPlan

_OURS = (Naive, SingleDraft, RecursiveRejection, KSeq, Greedy, SpecHub, Canonical, ConvexMinorant, TransportPlan)
_REGISTRY = Registry("verifier", "mdsd.verifiers", {verifier.name: verifier for verifier in _OURS})
NAMES = _REGISTRY.names


def make(name: str, **parameters: object) -> Verifier:
    """The verifier called `name`, for command lines and configurations.

    Raises:
        ValueError: unknown name (the known ones are listed), or parameters it does not take.
    """
    verifier = _REGISTRY.get(name)
    try:
        return verifier(**parameters)
    except TypeError as error:
        raise ValueError(f"verifier {name}: {error}") from None


def names() -> tuple[str, ...]:
    """The known verifiers, those of installed packages included."""
    return _REGISTRY.all_names()


__all__ = [
    "NAMES",
    "Canonical",
    "ConvexMinorant",
    "Greedy",
    "KSeq",
    "Law",
    "Naive",
    "RecursiveRejection",
    "SingleDraft",
    "SpecHub",
    "TransportPlan",
    "Verifier",
    "make",
    "names",
]

"""Draft-tree topologies: which node has how many children, before any token is drawn.

A topology is a set of child-rank paths closed under taking parents, as in EAGLE [Li et al., arXiv 2401.15077] and
Medusa: (0,) is the root's first child, (0, 1) that child's second. Nodes are called slots and numbered level by level,
within a level by path, so the slots of a level are contiguous and the root is slot 0.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from mdsd_theory.files import read_json

MAX_NODES = 4096

EAGLE_SPARSE = (
    "0 1 2 3 00 01 02 10 11 20 21 30 000 001 002 010 011 020 021 100 0000 0001 0002 00000 00001"  # 25 drafts, depth 5
)

KNOWN = "plain, chain:4, kary:2x4 (2 children, depth 4), eagle-sparse, or a .json file of child-rank paths"


@dataclass(frozen=True)
class Tree:
    """One topology. All tuples are indexed by slot; the root is slot 0, with parent -1 and depth 0."""

    name: str
    paths: tuple[tuple[int, ...], ...]

    @property
    def size(self) -> int:
        """Number of slots, root included: the most tokens one target pass reads per text."""
        return len(self.paths)

    @cached_property
    def parents(self) -> tuple[int, ...]:
        slot = {path: index for index, path in enumerate(self.paths)}
        return tuple(slot[path[:-1]] if path else -1 for path in self.paths)

    @cached_property
    def children(self) -> tuple[tuple[int, ...], ...]:
        """Slots of each slot's children, by rank."""
        return tuple(tuple(c for c, parent in enumerate(self.parents) if parent == s) for s in range(self.size))

    @cached_property
    def depths(self) -> tuple[int, ...]:
        return tuple(len(path) for path in self.paths)

    @property
    def depth(self) -> int:
        """Most drafts that one step can accept."""
        return self.depths[-1]

    @property
    def width(self) -> int:
        """Largest number of children of one node."""
        return max(len(children) for children in self.children)

    @cached_property
    def inner(self) -> tuple[tuple[int, ...], ...]:
        """Per depth, the slots that have children: the nodes the drafter is run on."""
        return tuple(
            tuple(s for s in range(self.size) if self.depths[s] == d and self.children[s]) for d in range(self.depth)
        )

    @cached_property
    def levels(self) -> tuple[tuple[int, ...], ...]:
        """Per depth, all slots."""
        return tuple(tuple(s for s in range(self.size) if self.depths[s] == d) for d in range(self.depth + 1))

    @cached_property
    def ancestors(self) -> np.ndarray:
        """bool (size, size): entry (s, a) says that slot a is slot s itself or above it."""
        above = np.eye(self.size, dtype=bool)
        for s in range(1, self.size):  # parents come first
            above[s] |= above[self.parents[s]]
        return above


def from_paths(paths: list, name: str = "paths") -> Tree:
    """Topology with these child-rank paths; the root is implied.

    Raises ValueError unless every path is a non-empty list of ranks whose parent and lower-ranked siblings are there.
    """
    if not isinstance(paths, (list, tuple)):
        raise ValueError(f"tree {name}: expected a list of child-rank paths such as [[0], [1], [0, 0]]")
    known: set[tuple[int, ...]] = {()}
    for path in paths:
        if not isinstance(path, (list, tuple)) or not path:
            raise ValueError(f"tree {name}: {path!r} is not a path, which is a non-empty list of child ranks")
        if any(isinstance(rank, bool) or not isinstance(rank, int) or rank < 0 for rank in path):
            raise ValueError(f"tree {name}: path {list(path)} has a child rank that is not an integer >= 0")
        if tuple(path) in known:
            raise ValueError(f"tree {name}: path {list(path)} is there twice")
        known.add(tuple(path))
    for path in sorted(known - {()}):
        if path[:-1] not in known:
            raise ValueError(f"tree {name}: path {list(path)} has no parent {list(path[:-1])}")
        if path[-1] and (*path[:-1], path[-1] - 1) not in known:
            raise ValueError(f"tree {name}: path {list(path)} has no sibling of rank {path[-1] - 1}")
    if len(known) > MAX_NODES:
        raise ValueError(f"tree {name} has {len(known)} nodes; at most {MAX_NODES} are allowed")
    return Tree(name, tuple(sorted(known, key=lambda path: (len(path), path))))


def kary(children: int, depth: int, name: str | None = None) -> Tree:
    """Every node down to `depth` - 1 has `children` children; children = 1 is a chain."""
    name = name or f"kary:{children}x{depth}"
    if children < 1 or depth < 1:
        raise ValueError(f"tree {name}: number of drafts and depth must be at least 1")
    level: list[tuple[int, ...]] = [()]
    paths: list[tuple[int, ...]] = []
    for _ in range(depth):
        if len(paths) + len(level) * children > MAX_NODES:
            raise ValueError(f"tree {name} has more than the {MAX_NODES} nodes allowed")
        level = [(*path, rank) for path in level for rank in range(children)]
        paths += level
    return from_paths(paths, name)


def plain() -> Tree:
    """The root alone: autoregressive decoding, one token per target pass."""
    return from_paths([], "plain")


def parse(spec: str | Tree) -> Tree:
    """Topology from its command-line name: see KNOWN.

    Raises ValueError for a name that is none of them or a file whose content is no tree, OSError for a file that
    cannot be read.
    """
    if isinstance(spec, Tree):
        return spec
    if spec == "plain":
        return plain()
    if spec == "eagle-sparse":
        return from_paths([[int(rank) for rank in path] for path in EAGLE_SPARSE.split()], spec)
    if match := re.fullmatch(r"chain:(\d+)", spec):
        return kary(1, int(match[1]), spec)
    if match := re.fullmatch(r"kary:(\d+)x(\d+)", spec):
        return kary(int(match[1]), int(match[2]), spec)
    if spec.endswith(".json"):
        return from_paths(read_json(Path(spec), "tree file"), spec)
    raise ValueError(f"unknown tree {spec!r}; known: {KNOWN}")

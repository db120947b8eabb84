"""Growing one draft tree per text, level by level: run the drafter on a level's nodes, draw all their children."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from gpu.distributions import Sampling
from gpu.drafters.base import PADDED, ROOT_PARENT, Drafter, Session
from gpu.samplers import Drafts, Sampler
from gpu.trees import Tree


class Layout:
    """A topology as tensors on one device. N slots of which I have children, at most n each."""

    def __init__(self, tree: Tree, device: torch.device) -> None:
        self.tree = tree
        inner = [slot for level in tree.inner for slot in level]
        rows = np.zeros(tree.size, dtype=np.int64)
        rows[inner] = np.arange(len(inner))
        children = np.zeros((tree.size, max(tree.width, 1)), dtype=np.int64)
        for slot, kids in enumerate(tree.children):
            children[slot, : len(kids)] = kids
        self.inner = inner
        self.row_of_slot = torch.from_numpy(rows).to(device)  # (N,): where an inner slot's q is kept
        self.children = torch.from_numpy(children).to(device)  # (N, n), 0 where there is none
        self.has_children = torch.tensor([bool(kids) for kids in tree.children], device=device)
        self.depths = torch.tensor(tree.depths, device=device)
        self.ancestors = torch.from_numpy(tree.ancestors).to(device)
        self._index = lru_cache(1024)(lambda numbers: torch.tensor(numbers, dtype=torch.int64, device=device))

    def index(self, numbers: Sequence[int]) -> Tensor:
        """Slots or places to pick, int64 (k,) on the device. The same few come back in every step; copied over each
        time, they would make the host wait for the device.
        """
        return self._index(tuple(numbers))


@dataclass
class Drafted:
    """The draft trees of B texts, one topology.

    A slot is alive when it is a node of its text's tree: its token was drawn and no earlier sibling is equal to it.
    Siblings that are equal share one node but stay separate drafts, so the verifier sees their multiplicity.
    """

    layout: Layout
    tokens: Tensor  # int64 (B, N); slot 0 is the root, the text's last token
    alive: Tensor  # bool (B, N)
    count: Tensor  # int64 (B, I): drafts drawn at each inner slot, 0 where none
    leading: Tensor  # int64 (B, I): how many of them were not random
    q: Tensor  # (B, I, V): what they were drawn from
    logits: list[Tensor]  # per inner slot that was expanded, (B, V): the drafter's logits
    numbers: dict[int, int]  # slot -> the session's number of that node, for the expanded ones
    passes: int  # forward passes of the drafter

    def at(self, nodes: Tensor) -> Drafts:
        """The drafts at one node (B,) of each text."""
        rows = torch.arange(len(nodes), device=nodes.device)
        inner = self.layout.row_of_slot[nodes]
        drafts = Drafts(
            self.q[rows, inner],
            self.tokens.gather(1, self.layout.children[nodes]),
            self.count[rows, inner] * self.layout.has_children[nodes],
            self.leading[rows, inner] * self.layout.has_children[nodes],
        )
        return drafts._replace(tokens=drafts.tokens.where(drafts.drawn, 0))


def grow(
    layout: Layout,
    session: Session | None,
    sampler: Sampler,
    sampling: Sampling,
    roots: Tensor,
    uniforms: Tensor,
    depth_limits: list[int],
    vocab_size: int,
    expand_leaves: bool = False,
) -> Drafted:
    """Draw one tree per text.

    roots         int64 (B,), the texts' last tokens.
    uniforms      float64 (B, N), slot s's draw.
    depth_limits  most drafts each text has room for; deeper levels are left out.
    expand_leaves run the drafter on childless nodes too, for whoever wants its logits there.
    """
    tree, batch, device = layout.tree, len(roots), roots.device
    tokens = torch.zeros((batch, tree.size), dtype=torch.int64, device=device)
    tokens[:, 0] = roots
    alive = torch.zeros((batch, tree.size), dtype=torch.bool, device=device)
    alive[:, 0] = True
    count = torch.zeros((batch, len(layout.inner)), dtype=torch.int64, device=device)
    drafted = Drafted(layout, tokens, alive, count, count.clone(), tokens.new_zeros(0), [], {}, 0)
    drafted.q = torch.zeros((batch, len(layout.inner), vocab_size), device=device)
    limits = torch.tensor(depth_limits, device=device)
    for depth, level in enumerate(tree.levels if expand_leaves else tree.inner):
        if session is None:
            break
        growing = alive & (limits > depth)[:, None]  # (B, N)
        wanted = (alive if expand_leaves else growing)[:, layout.index(level)].any(0).tolist()
        slots = [slot for slot, somewhere in zip(level, wanted, strict=True) if somewhere]
        if not slots:
            break
        logits = session.expand(tokens[:, layout.index(slots)], _parents(drafted, slots, depth))
        drafted.numbers |= {slot: len(drafted.numbers) + k for k, slot in enumerate(slots)}
        drafted.logits += logits.unbind(1)
        drafted.passes += 1
        parents = [k for k, slot in enumerate(slots) if tree.children[slot]]
        if parents and max(depth_limits) > depth:
            slots, logits = [slots[k] for k in parents], logits[:, layout.index(parents)]
            _draw_children(drafted, slots, logits, sampler, sampling, uniforms, growing[:, layout.index(slots)])
    return drafted


def _parents(drafted: Drafted, slots: list[int], depth: int) -> Tensor:
    if depth == 0:
        return torch.full_like(drafted.tokens[:, :1], ROOT_PARENT)
    layout = drafted.layout
    numbers = layout.index([drafted.numbers[layout.tree.parents[slot]] for slot in slots])
    return numbers.where(drafted.alive[:, layout.index(slots)], PADDED)


def _draw_children(
    drafted: Drafted,
    slots: list[int],
    logits: Tensor,
    sampler: Sampler,
    sampling: Sampling,
    uniforms: Tensor,
    growing: Tensor,
) -> None:
    """Draw the children of these slots (B, w, V logits), all nodes with equally many children in one call."""
    layout, tree = drafted.layout, drafted.layout.tree
    q = sampling(padded(logits, drafted.q.shape[-1]))
    drafted.q = drafted.q.to(q.dtype)  # float64 when the drafter speaks that
    drafted.q[:, layout.row_of_slot[layout.index(slots)]] = q
    for n in sorted({len(tree.children[slot]) for slot in slots}):
        alike = [slot for slot in slots if len(tree.children[slot]) == n]
        where = layout.index([slots.index(slot) for slot in alike])
        inner = layout.row_of_slot[layout.index(alike)]
        kids = layout.index([child for slot in alike for child in tree.children[slot]])
        shape = (len(q), len(alike))  # (B, g)
        drafts = sampler(q[:, where].flatten(0, 1), n, uniforms[:, kids].reshape(-1, n))
        growing_here = growing[:, where]
        drafted.count[:, inner] = drafts.count.view(shape) * growing_here
        drafted.leading[:, inner] = drafts.leading.view(shape) * growing_here
        fresh = (drafts.drawn & first_occurrence(drafts.tokens)).view(*shape, n) & growing_here[..., None]
        drafted.tokens[:, kids] = drafts.tokens.view(len(q), -1)
        drafted.alive[:, kids] = fresh.flatten(1)


class ShorterVocabulary(Session):
    """A drafter's session for a target that knows more tokens: those that the drafter lacks are read as token 0.

    That makes the drafter guess worse after such a token, nothing else: q stays what the drafts are drawn from.
    """

    def __init__(self, drafter: Drafter, prompts: list[list[int]], features: list[Tensor] | None) -> None:
        self.size = drafter.vocab_size
        self.session = drafter.begin([self._known(prompt) for prompt in prompts], features)

    def _known(self, tokens: list[int]) -> list[int]:
        return [token if token < self.size else 0 for token in tokens]

    def expand(self, tokens: Tensor, parents: Tensor) -> Tensor:
        return self.session.expand(tokens.where(tokens < self.size, 0), parents)

    def commit(self, paths: list[list[int]], tokens: list[list[int]], features: list[Tensor] | None = None) -> None:
        self.session.commit(paths, [self._known(row) for row in tokens], features)

    def keep(self, rows: list[int]) -> None:
        self.session.keep(rows)


def first_occurrence(tokens: Tensor) -> Tensor:
    """bool (M, n): no earlier entry of the row is equal."""
    equal = tokens[:, :, None] == tokens[:, None, :]
    return ~equal.tril(-1).any(-1)


def padded(logits: Tensor, vocab_size: int) -> Tensor:
    """Logits of a shorter vocabulary, with probability 0 for the tokens it lacks."""
    missing = vocab_size - logits.shape[-1]
    return torch.nn.functional.pad(logits, (0, missing), value=-torch.inf) if missing else logits

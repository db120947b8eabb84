"""What a drafter is to the decoder: something that, given a text and a growing tree of draft tokens, returns logits.

A drafter never samples. The decoder turns its logits into q (temperature, top-k, top-p), draws the draft tokens from
that q and hands the very same q to the verifier, so a drafter cannot get the pairing of q and drafts wrong.

One batch of texts is a `Session`. A step of decoding calls, in this order,

    session.expand(root tokens, parents = -1)          level 0: logits after the root
    session.expand(tokens, parents)                    one call per further level whose nodes have children
    session.commit(paths, tokens, features)            what the target's verification kept
    session.keep(rows)                                 only when some rows have finished

The *root* of a step is the last token of the text so far (prompt or emitted). It is in nobody's cache yet: both models
read it in this step, together with the draft tokens below it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from torch import Tensor

ROOT_PARENT = -1
PADDED = -2
UNEXPANDED = 1 << 30


class Session(ABC):
    """One batch of B texts being decoded, with whatever cache the drafter keeps for them."""

    @abstractmethod
    def expand(self, tokens: Tensor, parents: Tensor) -> Tensor:
        """Add one level of w nodes to each row's tree and return the logits after each of them.

        tokens   int64 (B, w), the nodes' tokens.
        parents  int64 (B, w), the number of each node's parent. Nodes are numbered in the order in which they were
                 given in this step, padded ones included, so numbers mean the same in every row: the root is 0 (its
                 parent is ROOT_PARENT, and it comes alone, w = 1), the next call's nodes are 1, 2, ... A slot whose
                 parent is PADDED is not a node: its token may be any in the vocabulary, its logits are ignored.
        returns  float (B, w, V), next-token logits, any float dtype, on the device of `tokens`.

        Nodes that get no children (leaves of the tree) are expanded only when a trace is recorded.
        """

    @abstractmethod
    def commit(self, paths: list[list[int]], tokens: list[list[int]], features: list[Tensor] | None = None) -> None:
        """Take up the step's outcome, forget the rest of the tree.

        paths     per row, the numbers of the accepted nodes, root first (so never empty). An accepted leaf that was
                  not expanded has UNEXPANDED in its place, always as the last entry: the session reads its token at
                  the next step, before the root.
        tokens    per row, the emitted tokens: those of paths[b][1:], then one more, the next step's root. After max
                  tokens or EOS a row may be shorter; such a row is dropped by `keep` before the next step.
        features  per row (len(paths[b]), d): the target's last hidden states at the root and the accepted nodes; None
                  unless the drafter asks for them (`Drafter.needs_features`).
        """

    @abstractmethod
    def keep(self, rows: list[int]) -> None:
        """Keep only these rows of the batch, in this order; called right after `commit`."""


class Drafter(ABC):
    """Proposes next-token distributions. Immutable: all that belongs to one batch of texts is in the session."""

    name: str
    vocab_size: int
    max_length: int | None = None
    """Longest text in tokens the drafter can read; None when unlimited."""
    needs_features: ClassVar[bool] = False
    """Whether `begin` and `commit` must be given the target's last hidden states."""

    @abstractmethod
    def begin(self, prompts: list[list[int]], features: list[Tensor] | None = None) -> Session:
        """Start a batch.

        prompts   B token lists: each text up to but without its last token, which is the first step's root. A list may
                  be empty.
        features  with `needs_features`, B tensors (len(prompts[b]), d): the target's last hidden states there.
        """

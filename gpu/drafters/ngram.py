"""n-gram drafter: what followed the same last tokens before, in the prompt, in what was generated, and in text files.

Counts c_k(h, x) of token x after each context h of k tokens, k < order, all orders interpolated down to the uniform law
with Witten and Bell's weights (IEEE Trans. Inf. Theory 37(4), 1991):

    q_k(x | h) = (c_k(h, x) + t_k(h) q_{k-1}(x | h')) / (c_k(h) + t_k(h)),     q_{-1} = 1 / V

t_k(h) the number of distinct tokens seen after h, h' = h without its first token. So q is a real distribution with full
support; with a deterministic sampler (top candidates) and a datastore of files it drafts like REST (arXiv 2311.08252).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from gpu.drafters.base import PADDED, Drafter, Session
from gpu.models import LoadedModel
from mdsd_theory.files import read_text

DEFAULT_ORDER = 4


class Counts:
    """Continuation counts of every context of 0 .. order-1 tokens."""

    def __init__(self, order: int) -> None:
        self.order = order
        self._after: dict[tuple[int, ...], Counter[int]] = {}

    def add(self, text: Sequence[int], start: int = 0) -> None:
        """Count the tokens text[start:], each after up to order - 1 tokens before it."""
        for end in range(start, len(text)):
            for k in range(min(self.order - 1, end) + 1):
                self._after.setdefault(tuple(text[end - k : end]), Counter())[text[end]] += 1

    def after(self, context: tuple[int, ...]) -> Counter[int]:
        return self._after.get(context) or Counter()


class NGram(Drafter):
    """order: contexts have up to order - 1 tokens. datastore: texts (token lists) counted once, for all batches."""

    def __init__(self, vocab_size: int, order: int = DEFAULT_ORDER, datastore: Sequence[Sequence[int]] = ()) -> None:
        if order < 1:
            raise ValueError(f"n-gram order must be at least 1, got {order}")
        self.vocab_size, self.order = vocab_size, order
        self.store = Counts(order)
        for text in datastore:
            self.store.add(text)
        self.name = f"{order}-gram" + (" with datastore" if datastore else "")

    def begin(self, prompts: list[list[int]], features: list[Tensor] | None = None) -> Session:
        return _Session(self, prompts)

    def probabilities(self, context: Sequence[int], counts: Counts) -> np.ndarray:
        """q (V,), float64, after the context by the datastore's counts and these."""
        q = np.full(self.vocab_size, 1 / self.vocab_size)
        for k in range(min(self.order - 1, len(context)) + 1):
            history = tuple(context[len(context) - k :])
            seen = self.store.after(history) + counts.after(history)
            if not seen:
                break  # a longer context was not seen either
            types, total = len(seen), seen.total()
            q *= types / (total + types)
            q[list(seen.keys())] += np.fromiter(seen.values(), float) / (total + types)
        return q


class _Session(Session):
    def __init__(self, drafter: NGram, prompts: list[list[int]]) -> None:
        self.drafter = drafter
        self.texts = [list(prompt) for prompt in prompts]
        self.counts = [Counts(drafter.order) for _ in prompts]
        for text, counts in zip(self.texts, self.counts, strict=True):
            counts.add(text)
        self.paths: list[list[tuple[int, ...]]] = [[] for _ in prompts]  # per row and node, the tokens root .. node

    def expand(self, tokens: Tensor, parents: Tensor) -> Tensor:
        logits = torch.zeros((*tokens.shape, self.drafter.vocab_size))
        for row, (new, above) in enumerate(zip(tokens.tolist(), parents.tolist(), strict=True)):
            before = list(self.paths[row])
            for slot, (token, parent) in enumerate(zip(new, above, strict=True)):
                path = (*(before[parent] if parent >= 0 else ()), token)
                self.paths[row].append(path)
                if parent != PADDED:
                    context = [*self.texts[row][-self.drafter.order :], *path]
                    q = self.drafter.probabilities(context, self.counts[row])
                    logits[row, slot] = torch.from_numpy(np.log(q)).float()
        return logits.to(tokens.device)

    def commit(self, paths: list[list[int]], tokens: list[list[int]], features: list[Tensor] | None = None) -> None:
        for row, (path, emitted) in enumerate(zip(paths, tokens, strict=True)):
            text, known = self.texts[row], len(self.texts[row])
            text += [self.paths[row][0][0], *emitted[: len(path) - 1]]  # the root, and the accepted tokens below it
            self.counts[row].add(text, known)
            self.paths[row] = []

    def keep(self, rows: list[int]) -> None:
        self.texts = [self.texts[row] for row in rows]
        self.counts = [self.counts[row] for row in rows]
        self.paths = [self.paths[row] for row in rows]


def from_spec(target: LoadedModel, argument: str, pad_vocab: bool = False) -> NGram:
    """Drafter "ngram", "ngram:ORDER" or "ngram:ORDER,FILE,FILE..." (text files as datastore)."""
    order, *files = argument.split(",")
    if order and not order.isdecimal():
        raise ValueError(f"drafter ngram:{argument}: give the order first, as in ngram:4 or ngram:4,notes.txt")
    datastore = [target.tokenizer(read_text(Path(file), f"drafter ngram:{argument}:")).input_ids for file in files]
    return NGram(target.vocab_size, int(order or DEFAULT_ORDER), datastore)

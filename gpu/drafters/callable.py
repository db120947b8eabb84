"""A user's function as drafter."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from gpu.drafters.base import Drafter, Session


class CallableDrafter(Drafter):
    """`function(texts)` takes a list of token lists and returns next-token logits (len(texts), vocab_size).

    With `probabilities=True` it returns probabilities instead (rows >= 0 of positive sum); temperature and truncation
    then act on their logarithms.
    """

    def __init__(
        self,
        function: Callable[[list[list[int]]], Sequence],
        vocab_size: int,
        probabilities: bool = False,
        name: str = "callable",
    ) -> None:
        self.function, self.vocab_size, self.probabilities, self.name = function, vocab_size, probabilities, name

    def begin(self, prompts: list[list[int]], features: list[Tensor] | None = None) -> Session:
        return _Session(self, prompts)

    def logits(self, texts: list[list[int]], device: torch.device) -> Tensor:
        """The function's answer, checked: float (len(texts), vocab_size)."""
        values = torch.as_tensor(self.function(texts), device=device)
        if values.shape != (len(texts), self.vocab_size):
            raise ValueError(
                f"drafter {self.name} returned shape {tuple(values.shape)}; expected {(len(texts), self.vocab_size)}"
            )
        if not values.is_floating_point():
            values = values.double()
        if not self.probabilities:
            return values
        if not ((values >= 0).all() and (values.sum(-1) > 0).all()):
            raise ValueError(f"drafter {self.name} returned probabilities that are negative, NaN or all zero")
        return values.log()


class _Session(Session):
    def __init__(self, drafter: CallableDrafter, prompts: list[list[int]]) -> None:
        self.drafter = drafter
        self.texts = [list(prompt) for prompt in prompts]
        self.nodes: list[list[list[int]]] = [[] for _ in prompts]  # per row and node, the tokens from the root on

    def expand(self, tokens: Tensor, parents: Tensor) -> Tensor:
        texts = []
        for text, nodes, row_tokens, row_parents in zip(
            self.texts, self.nodes, tokens.tolist(), parents.tolist(), strict=True
        ):
            new = [
                [*(nodes[parent] if parent >= 0 else []), token]
                for token, parent in zip(row_tokens, row_parents, strict=True)
            ]
            texts += [text + path for path in new]
            nodes += new
        logits = self.drafter.logits(texts, tokens.device)
        return logits.view(*tokens.shape, -1)

    def commit(self, paths: list[list[int]], tokens: list[list[int]], features: list[Tensor] | None = None) -> None:
        for text, nodes, path, emitted in zip(self.texts, self.nodes, paths, tokens, strict=True):
            text.append(nodes[0][0])
            text += emitted[: len(path) - 1]
        self.nodes = [[] for _ in self.texts]

    def keep(self, rows: list[int]) -> None:
        self.texts = [self.texts[row] for row in rows]
        self.nodes = [[] for _ in rows]

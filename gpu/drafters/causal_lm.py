"""A causal language model as drafter, with a KV cache of its own and the same tree attention as the target."""

from __future__ import annotations

import torch
from torch import Tensor
from transformers import PreTrainedModel

from gpu.attention import Reader, check_tree_attention, max_length
from gpu.drafters.base import UNEXPANDED, Drafter, Session
from gpu.models import LoadedModel, common_vocabulary, load_target


class CausalLM(Drafter):
    """Any transformers causal language model that shares the target's tokenizer."""

    def __init__(self, model: PreTrainedModel, name: str | None = None) -> None:
        check_tree_attention(model)
        self.model = model
        self.name = name or model.config.name_or_path or type(model).__name__
        self.vocab_size = model.get_output_embeddings().weight.shape[0]
        self.max_length = max_length(model)

    def begin(self, prompts: list[list[int]], features: list[Tensor] | None = None) -> Session:
        return _Session(self.model, prompts)


class _Session(Session):
    """Columns appended in a step: what an accepted leaf left to be read, if any row has one, then the nodes."""

    def __init__(self, model: PreTrainedModel, prompts: list[list[int]]) -> None:
        self.reader = Reader(model, len(prompts))
        self.reader.read_texts(prompts)
        self.pending: list[list[int]] = [[] for _ in prompts]
        self._forget_tree()

    def _forget_tree(self) -> None:
        self.first = 0  # column of node 0
        self.visible: Tensor | None = None  # bool (B, columns, columns)
        self.depths: Tensor | None = None  # int64 (B, columns)

    def expand(self, tokens: Tensor, parents: Tensor) -> Tensor:
        batch, w = tokens.shape
        if self.visible is None:
            return self._expand_root(tokens)
        columns = (parents + self.first).clamp(min=0)  # of the parents; a padded slot takes any
        depths = self.depths.gather(1, columns) + 1
        old = self.visible.shape[-1]
        above = self.visible.gather(1, columns[..., None].expand(batch, w, old))
        itself = torch.eye(w, dtype=torch.bool, device=tokens.device).expand(batch, w, w)
        seen = torch.cat([above, itself], dim=2)  # (B, w, old + w)
        self.visible = torch.cat([torch.nn.functional.pad(self.visible, (0, w)), seen], dim=1)
        self.depths = torch.cat([self.depths, depths], dim=1)
        return self.reader.read(tokens, depths, seen).logits

    def _expand_root(self, roots: Tensor) -> Tensor:
        """Node 0, after the token of an accepted leaf where the row has one (a padding column where not)."""
        self.first = max(map(len, self.pending))
        late = torch.tensor([[*p, *[0] * (self.first - len(p))] for p in self.pending], dtype=torch.int64)
        has = torch.tensor([[bool(p)] for p in self.pending], device=roots.device)  # (B, 1)
        tokens = torch.cat([late.to(roots.device), roots], dim=1)
        size = tokens.shape[1]
        self.visible = torch.eye(size, dtype=torch.bool, device=roots.device).repeat(len(roots), 1, 1)
        self.visible[:, -1, : self.first] = has
        self.depths = torch.zeros_like(tokens)
        self.depths[:, -1] = has[:, 0]
        return self.reader.read(tokens, self.depths, self.visible, keep=1).logits

    def commit(self, paths: list[list[int]], tokens: list[list[int]], features: list[Tensor] | None = None) -> None:
        self.reader.keep_columns(
            [
                [*range(len(pending)), *(self.first + node for node in path if node != UNEXPANDED)]
                for pending, path in zip(self.pending, paths, strict=True)
            ]
        )
        self.pending = [
            [emitted[len(path) - 2]] if path[-1] == UNEXPANDED else []
            for path, emitted in zip(paths, tokens, strict=True)
        ]
        self._forget_tree()

    def keep(self, rows: list[int]) -> None:
        self.reader.keep_rows(rows)
        self.pending = [self.pending[row] for row in rows]


def from_spec(target: LoadedModel, argument: str, pad_vocab: bool = False) -> CausalLM:
    """Drafter by Hub id, folder or GGUF file, on the target's device and in its dtype."""
    loaded = load_target(argument, dtype=target.model.dtype, device=target.model.device)
    common_vocabulary(target, loaded, pad_vocab)
    return CausalLM(loaded.model, loaded.name)

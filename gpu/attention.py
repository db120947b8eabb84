"""Running a transformers causal language model over trees of tokens: mask, position ids, KV cache.

One `Reader` holds one model's KV cache for a batch of B texts of different lengths. Columns of the cache are shared by
the batch: text b owns columns 0 .. lengths[b]-1, and what a step appends comes after the longest text. Which columns a
new token may see is decided by the 4D attention mask alone, so a whole draft tree goes through one forward pass.

    reader = Reader(model, B)
    reader.read(tokens, depths, visible)    append columns (prompt, draft tree, one level of it), return the outputs
    reader.keep_columns(columns)            per text, the appended columns that stay, in order; the others are dropped
    reader.keep_rows(rows)                  the texts that stay
"""

from __future__ import annotations

import inspect
from typing import NamedTuple

import torch
from torch import Tensor
from transformers import Cache, PretrainedConfig, PreTrainedModel
from transformers.cache_utils import DynamicLayer

SUPPORTED_ATTENTION = ("eager", "sdpa")


class Output(NamedTuple):
    """What the model says about the tokens just read: logits (B, k, V), last hidden states (B, w, d) when asked for."""

    logits: Tensor
    hidden: Tensor | None


class _Layer(DynamicLayer):
    """Keys and values (B, heads, columns, d) in a buffer that doubles, so that a step copies only what it appends.

    `keys` and `values`, which transformers reads, are views of the buffers' first columns.
    """

    def update(self, key_states: Tensor, value_states: Tensor, *args, **kwargs) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self.buffers = (key_states[:, :, :0], value_states[:, :, :0])
        length = self.get_seq_length()
        total = length + key_states.shape[-2]
        if total > self.buffers[0].shape[-2]:
            self.buffers = tuple(_grown(buffer[:, :, :length], 2 * total) for buffer in self.buffers)
        for buffer, new in zip(self.buffers, (key_states, value_states), strict=True):
            buffer[:, :, length:total] = new
        self.show(total)
        return self.keys, self.values

    def show(self, length: int) -> None:
        self.keys, self.values = (buffer[:, :, :length] for buffer in self.buffers)

    def move(self, start: int, source: Tensor) -> None:
        """Overwrite columns start, start + 1, ... by columns source[b, 0], source[b, 1], ... and drop what follows."""
        index = source[:, None, :, None].to(self.buffers[0].device)
        for buffer in self.buffers:
            buffer[:, :, start : start + source.shape[1]] = torch.take_along_dim(buffer, index, dim=2)
        self.show(start + source.shape[1])

    def select_rows(self, rows: Tensor) -> None:
        self.buffers = tuple(buffer[rows.to(buffer.device)] for buffer in self.buffers)


def _grown(old: Tensor, columns: int) -> Tensor:
    new = old.new_empty((*old.shape[:2], columns, old.shape[3]))
    new[:, :, : old.shape[2]] = old
    return new


class Reader:
    """A model and its KV cache for B texts."""

    def __init__(self, model: PreTrainedModel, batch: int) -> None:
        self.model = model
        self.lengths = [0] * batch
        self.appended = 0
        """Columns appended since the last `keep_columns`."""
        self._cache = Cache(layer_class_to_replicate=_Layer)
        self._windows = _sliding_windows(model.config)
        self._positions = torch.zeros((batch, 0), dtype=torch.int64, device=model.device)  # of every column

    @property
    def width(self) -> int:
        """Columns of the longest text, where appended columns begin."""
        return max(self.lengths)

    @property
    def vocab_size(self) -> int:
        """Number of tokens the model can read."""
        return self.model.get_input_embeddings().weight.shape[0]

    def read(
        self, tokens: Tensor, depths: Tensor, visible: Tensor, keep: int | Tensor = 0, hidden: bool = False
    ) -> Output:
        """Append one column per token and run the model on them.

        tokens   int64 (B, w), on any device; the outputs come back to it.
        depths   int64 (B, w): position of each token counted from the end of its text (a tree's root has 0).
        visible  bool (B, w, appended + w): which appended columns, these included, each token sees besides its text. A
                 padding slot must see at least itself, and be seen by none.
        keep     which positions' logits are wanted: 0 all, k the last k, or indices.
        """
        batch, w = tokens.shape
        asked, device = tokens.device, self.model.device
        tokens, depths, visible = tokens.to(device), depths.to(device), visible.to(device)
        if isinstance(keep, int) and keep:  # as indices: from a slice, the head's product would copy W per text
            keep = torch.arange(w - keep, w, device=_head_device(self.model))
        lengths = torch.tensor(self.lengths, device=device)
        positions = lengths[:, None] + depths
        self._positions = torch.cat([self._positions, positions], dim=1)
        in_text = torch.arange(self.width, device=device) < lengths[:, None]  # (B, width)
        sees = torch.cat([in_text[:, None].expand(batch, w, -1), visible], dim=2)  # (B, w, columns)
        self.appended += w
        with torch.no_grad():
            output = self.model(
                input_ids=tokens,
                attention_mask=self._mask(sees, positions),
                position_ids=positions,
                use_cache=True,
                logits_to_keep=keep,
                output_hidden_states=hidden,
                return_dict=True,
                **{_cache_argument(self.model): self._cache},
            )
        # a model spread over several devices may answer on its last one, a drafter may have one of its own
        return Output(output.logits.to(asked), output.hidden_states[-1].to(asked) if hidden else None)

    def read_texts(self, texts: list[list[int]], hidden: bool = False) -> Output | None:
        """Append one text per row (padded on the right) and keep it: the prefill. None when all are empty."""
        w = max(map(len, texts))
        if w == 0:
            return None
        tokens = torch.tensor([[*text, *[0] * (w - len(text))] for text in texts], device=self.model.device)
        depths = torch.arange(w, device=tokens.device).expand(len(texts), w)
        causal = torch.ones((w, w), dtype=torch.bool, device=tokens.device).tril()
        output = self.read(tokens, depths, causal.expand(len(texts), w, w), keep=1, hidden=hidden)
        self.keep_columns([list(range(len(text))) for text in texts])
        return output

    def keep_columns(self, columns: list[list[int]]) -> None:
        """Per row, the appended columns (0 = first appended) that become part of its text, in order."""
        start, base = min(self.lengths), self.width
        longer = [length + len(kept) for length, kept in zip(self.lengths, columns, strict=True)]
        source = [  # per row, for columns start, start + 1, ...: the rest of its text, then what it keeps
            [*range(start, length), *(base + column for column in kept)]
            for length, kept in zip(self.lengths, columns, strict=True)
        ]
        w = max(map(len, source))
        index = torch.tensor([[*row, *[0] * (w - len(row))] for row in source], dtype=torch.int64)
        index = index.to(self._positions.device)
        self._positions = torch.cat(
            [self._positions[:, :start], torch.take_along_dim(self._positions, index, dim=1)], dim=1
        )
        for layer in self._cache.layers:
            layer.move(start, index)
        self.lengths, self.appended = longer, 0

    def keep_rows(self, rows: list[int]) -> None:
        index = torch.tensor(rows, dtype=torch.int64, device=self._positions.device)
        self.lengths = [self.lengths[row] for row in rows]
        self._positions = self._positions[index, : self.width]
        for layer in self._cache.layers:
            layer.select_rows(index)
            layer.show(self.width)

    def keys_values(self, row: int) -> list[tuple[Tensor, Tensor]]:
        """Per layer, keys and values (heads, length, d) of one text; for tests and inspection."""
        return [
            (layer.keys[row, :, : self.lengths[row]], layer.values[row, :, : self.lengths[row]])
            for layer in self._cache.layers
        ]

    def _mask(self, sees: Tensor, positions: Tensor) -> Tensor | dict[str, Tensor] | None:
        """Additive masks (B, 1, w, columns): one tensor, or one per kind of layer where the model has several.

        None for one token that sees everything, as in a chain of one text: the model needs no mask then, and is faster
        without. Elsewhere than on the CPU looking would wait for the device.
        """
        if sees.shape[:2] == (1, 1) and not self._windows and sees.device.type == "cpu" and sees.all():
            return None
        full = _additive(sees, self.model.dtype)
        if not self._windows:
            return full
        near = positions[:, :, None] - self._positions[:, None, :] < self._windows.window
        sliding = _additive(sees & near, self.model.dtype)
        return {"full_attention": full, "sliding_attention": sliding} if self._windows.mixed else sliding


class _Windows(NamedTuple):
    window: int
    mixed: bool  # the model takes one mask per kind of layer


def _sliding_windows(config: PretrainedConfig) -> _Windows | None:
    """The model's sliding-window attention, if it has any; the cache keeps all columns and the mask does the sliding.

    Raises ValueError for layers whose memory of the text is not a window of keys and values.
    """
    config = config.get_text_config(decoder=True)
    kinds = set(getattr(config, "layer_types", None) or ())
    if other := kinds - {"full_attention", "sliding_attention"}:
        raise ValueError(
            f"{config.model_type} models have layers of kind {', '.join(sorted(other))}, whose state cannot branch "
            "along a draft tree; only full and sliding-window attention can"
        )
    window = getattr(config, "sliding_window", None)
    if kinds:
        return _Windows(window, mixed=True) if "sliding_attention" in kinds else None
    return _Windows(window, mixed=False) if window and getattr(config, "use_sliding_window", True) else None


def _additive(sees: Tensor, dtype: torch.dtype) -> Tensor:
    mask = torch.zeros(sees.shape, dtype=dtype, device=sees.device)
    return mask.masked_fill_(~sees, torch.finfo(dtype).min)[:, None]


def _head_device(model: PreTrainedModel) -> torch.device:
    """Where the last hidden states are when the head selects among them; indices on the CPU serve any device."""
    weight = model.get_output_embeddings().weight
    return torch.device("cpu") if weight.is_meta else weight.device


def _cache_argument(model: PreTrainedModel) -> str:
    """transformers renamed the argument: past_key_values up to 5.2x, cache since."""
    return "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"


def max_length(model: PreTrainedModel) -> int | None:
    """Longest text the model has positions for, None when its configuration names no limit."""
    return getattr(model.config.get_text_config(decoder=True), "max_position_embeddings", None)


def check_tree_attention(model: PreTrainedModel) -> None:
    """Prove on this very model that a tree pass gives every node the logits of a plain forward over its path.

    Raises ValueError when it does not: the architecture then ignores or overrides the mask or the positions (absolute
    biases computed inside, recurrent state, flash attention), and decoding with it would be silently wrong.
    """
    name = type(model).__name__
    if model.config._attn_implementation not in SUPPORTED_ATTENTION:
        raise ValueError(
            f"{name} runs {model.config._attn_implementation!r} attention, which takes no tree mask; "
            f"load it with attn_implementation={' or '.join(map(repr, SUPPORTED_ATTENTION))}"
        )
    if getattr(model, "_is_stateful", False):
        raise ValueError(f"{name} keeps a recurrent state, which cannot branch along a draft tree")
    vocabulary = model.get_input_embeddings().weight.shape[0]
    a, b, c, d, e = ((7 * k + 3) % vocabulary for k in range(5))
    reader = Reader(model, 1)
    reader.read_texts([[a, b]])
    tree = torch.tensor([[c, d, e, a]], device=model.device)  # c with children d and e, e with child a
    depths = torch.tensor([[0, 1, 1, 2]], device=model.device)
    visible = torch.tensor(
        [[[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 0, 1, 1]]], dtype=torch.bool, device=model.device
    )
    ours = reader.read(tree, depths, visible).logits[0].float()
    with torch.no_grad():
        for node, path in ((1, [a, b, c, d]), (3, [a, b, c, e, a])):
            plain = model(input_ids=torch.tensor([path], device=model.device), use_cache=False).logits[0, -1].float()
            spread = plain[plain.isfinite()].std() + 1e-3
            error = ((ours[node] - plain).nan_to_num().abs().max() / spread).item()
            allowed = 1e-2 if model.dtype == torch.float32 else 0.3
            if not error < allowed:
                raise ValueError(
                    f"{name} does not follow a tree attention mask: logits of a tree node differ from those of a plain "
                    f"forward by {error:.2g} standard deviations (allowed: {allowed})"
                )

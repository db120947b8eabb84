"""EAGLE-style drafter: one transformer layer that reads the target's last hidden state beside a token's embedding.

For token x_i of the text, with f_{i-1} the target's hidden state before it (after the final norm, *feature* for short),

    u_i = fc [embedding(x_i); f_{i-1}],     g_i = u_i + attention(u_{<=i}) + MLP(...)  ~  f_i

and the logits after x_i are the target's head on g_i. Down the draft tree, where the target has not been yet, g takes
the place of f ("feature-level autoregression"); once nodes are accepted their true features replace it.

Source: Li et al., EAGLE, ICML 2024 (arXiv 2401.15077), sec. 3. Tensor names and layout are those of published EAGLE-1
checkpoints, `fc` and `layers.0.*`; embedding and head are the target's.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import ClassVar

import torch
from safetensors import safe_open
from torch import Tensor, nn
from torch.nn import functional as F

from gpu.drafters.base import PADDED, Drafter, Session
from gpu.models import LoadedModel
from mdsd_theory.files import read_json


@dataclass(frozen=True)
class EagleConfig:
    """Shapes of the layer, under the names they have in a checkpoint's config.json."""

    hidden_size: int
    intermediate_size: int
    num_attention_heads: int
    num_key_value_heads: int
    rms_norm_eps: float
    rope_theta: float

    @property
    def head_dim(self) -> int:
        return self.hidden_size // self.num_attention_heads

    @classmethod
    def read(cls, values: dict, source: object) -> EagleConfig:
        """From a config.json. Raises ValueError naming what is missing, impossible or not supported."""
        if not isinstance(values, dict):
            raise ValueError(f"{source}: the configuration is no JSON object")
        scaling = values.get("rope_scaling") or values.get("rope_parameters") or {}
        if not isinstance(scaling, dict) or scaling.get("rope_type", scaling.get("type", "default")) != "default":
            raise ValueError(f"{source}: rope_scaling {scaling} is not supported, only plain rotary positions")
        if values.get("hidden_act", "silu") != "silu":
            raise ValueError(f"{source}: hidden_act {values['hidden_act']!r} is not supported, only 'silu'")
        found = {"rms_norm_eps": 1e-6, "rope_theta": scaling.get("rope_theta", 10000.0)} | values
        found.setdefault("num_key_value_heads", found.get("num_attention_heads"))
        missing = [name for name in cls.__dataclass_fields__ if found.get(name) is None]
        if missing:
            raise ValueError(f"{source}: the configuration lacks {', '.join(missing)}")
        for name, field in cls.__dataclass_fields__.items():
            number = int if field.type == "int" else int | float
            value = found[name]
            if not isinstance(value, number) or isinstance(value, bool) or not 0 < value < float("inf"):
                raise ValueError(f"{source}: {name} must be a positive {field.type}, got {value!r}")
        config = cls(**{name: found[name] for name in cls.__dataclass_fields__})
        heads = config.num_attention_heads
        if config.hidden_size % (2 * heads) or heads % config.num_key_value_heads:
            raise ValueError(
                f"{source}: {heads} attention heads and {config.num_key_value_heads} of keys and values do not divide "
                f"a hidden size of {config.hidden_size}"
            )
        return config


class EagleHead(nn.Module):
    """The trained part. Tensors: features and embeddings (..., w, d); positions int64 (B, w)."""

    def __init__(self, config: EagleConfig, biases: tuple[str, ...] = (), input_norm: bool = False) -> None:
        """biases: of "fc", "q_proj", "k_proj", "v_proj", "o_proj", those that have one (Qwen2 has three, EAGLE's fc
        one). input_norm: whether the layer normalises what its attention reads; published EAGLE layers do not."""
        super().__init__()
        d, m, size = config.hidden_size, config.intermediate_size, config.head_dim
        self.config = config
        self.fc = nn.Linear(2 * d, d, bias="fc" in biases)
        attention = nn.Module()
        for name, rows, columns in (
            ("q_proj", config.num_attention_heads * size, d),
            ("k_proj", config.num_key_value_heads * size, d),
            ("v_proj", config.num_key_value_heads * size, d),
            ("o_proj", d, config.num_attention_heads * size),
        ):
            attention.add_module(name, nn.Linear(columns, rows, bias=name in biases))
        mlp = nn.Module()
        for name, rows, columns in (("gate_proj", m, d), ("up_proj", m, d), ("down_proj", d, m)):
            mlp.add_module(name, nn.Linear(columns, rows, bias=False))
        layer = nn.Module()
        layer.self_attn, layer.mlp = attention, mlp
        layer.input_layernorm = nn.RMSNorm(d, config.rms_norm_eps) if input_norm else nn.Identity()
        layer.post_attention_layernorm = nn.RMSNorm(d, config.rms_norm_eps)
        self.layers = nn.ModuleList([layer])

    def read(self, embeddings: Tensor, features: Tensor, positions: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """u (B, w, d), then queries (B, w, heads, size), keys and values (B, w, kv heads, size), rotated."""
        u = self.fc(torch.cat([embeddings, features], dim=-1))
        x = self.layers[0].input_layernorm(u.to(self.fc.weight.dtype))
        attention, size = self.layers[0].self_attn, self.config.head_dim
        q, k, v = (p(x).unflatten(-1, (-1, size)) for p in (attention.q_proj, attention.k_proj, attention.v_proj))
        return u, self._rotate(q, positions), self._rotate(k, positions), v

    def attend(self, u: Tensor, q: Tensor, k: Tensor, v: Tensor, visible: Tensor) -> Tensor:
        """Predicted features (B, w, d) of w queries over c keys; visible bool (B or 1, w, c)."""
        layer = self.layers[0]
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=visible[:, None], enable_gqa=True)
        return self.finish(u, layer.self_attn.o_proj(mixed.transpose(1, 2).flatten(2)))

    def finish(self, u: Tensor, attended: Tensor) -> Tensor:
        layer = self.layers[0]
        h = u + attended
        norm = layer.post_attention_layernorm
        x = norm(h.to(norm.weight.dtype))  # under autocast the norm works in the weights' precision
        return h + layer.mlp.down_proj(F.silu(layer.mlp.gate_proj(x)) * layer.mlp.up_proj(x))

    def _rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        half = self.config.head_dim // 2
        rates = self.config.rope_theta ** (-torch.arange(half, device=x.device, dtype=torch.float32) / half)
        angles = positions[..., None, None].float() * rates  # (B, w, 1, half)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        a, b = x[..., :half], x[..., half:]
        return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


class Eagle(Drafter):
    """An EagleHead on a target, whose embedding and head it uses."""

    needs_features: ClassVar[bool] = True

    def __init__(self, head: EagleHead, target: LoadedModel, name: str = "eagle") -> None:
        """Raises ValueError when the head was made for another hidden size than the target's."""
        self.embedding, self.output = target.model.get_input_embeddings(), target.model.get_output_embeddings()
        width = self.output.weight.shape[1]
        if head.config.hidden_size != width:
            raise ValueError(
                f"drafter {name}: tensor fc.weight has shape {tuple(head.fc.weight.shape)}, expected "
                f"{(width, 2 * width)}: the target {target.name} has hidden size {width}"
            )
        if self.output.weight.is_meta:
            raise ValueError(f"drafter {name}: the output layer of {target.name} is offloaded; it must be on a device")
        self.head = head.to(self.output.weight.device, self.output.weight.dtype).requires_grad_(False).eval()
        self.vocab_size = self.output.weight.shape[0]
        self.name = name

    def begin(self, prompts: list[list[int]], features: list[Tensor] | None = None) -> Session:
        if features is None:
            raise ValueError(f"drafter {self.name} reads the target's hidden states: begin needs features")
        return _Session(self, prompts, features)


class _Session(Session):
    """Cache columns of a row: its text so far, then this step's tree. Text columns hold true features only: what the
    step accepted waits in `tokens` and `features` and is read, with them, together with the next root.

    The text's first token has no feature before it and gets zeros; EAGLE never trains on that, so no other token sees
    column 0.
    """

    def __init__(self, drafter: Eagle, prompts: list[list[int]], features: list[Tensor]) -> None:
        weight, config = drafter.output.weight, drafter.head.config
        self.drafter = drafter
        self.lengths = torch.zeros(len(prompts), dtype=torch.int64, device=weight.device)
        shape = (len(prompts), 0, config.num_key_value_heads, config.head_dim)
        self.keys, self.values = weight.new_zeros(shape), weight.new_zeros(shape)
        zero = weight.new_zeros(1, config.hidden_size)
        self.tokens = [list(prompt) for prompt in prompts]  # per row, tokens to read before the root ...
        self.features = [torch.cat([zero, f.to(weight)]) for f in features]  # ... and the feature before each, and root

    def expand(self, tokens: Tensor, parents: Tensor) -> Tensor:
        with torch.no_grad():
            asked, device = tokens.device, self.keys.device  # a target over several devices reads on another
            tokens, parents = tokens.to(device), parents.to(device)
            g = self._root(tokens) if (parents < 0).all() and tokens.shape[1] == 1 else self._level(tokens, parents)
            return self.drafter.output(g).to(asked)

    def _embed(self, tokens: Tensor) -> Tensor:
        embedding = self.drafter.embedding
        return embedding(tokens.to(embedding.weight.device)).to(self.keys.device)

    def _root(self, roots: Tensor) -> Tensor:
        """Read what is pending, the root last; rows with less are padded on the left."""
        head, device = self.drafter.head, roots.device
        counts = torch.tensor([len(f) for f in self.features], device=device)
        w = int(counts.max())
        pending = torch.tensor([[0] * (w - 1 - len(t)) + t for t in self.tokens], dtype=torch.int64, device=device)
        tokens = torch.cat([pending.reshape(len(roots), w - 1), roots], dim=1)
        features = torch.stack([F.pad(f, (0, 0, w - len(f), 0)) for f in self.features])
        slot = torch.arange(w, device=device) - (w - counts)[:, None]  # (B, w), < 0 where padding
        positions = self.lengths[:, None] + slot
        u, q, k, v = head.read(self._embed(tokens), features, positions)

        row, column = (slot >= 0).nonzero(as_tuple=True)
        longer = self.lengths + counts
        self._reserve(int(longer.max()))
        self.keys[row, positions[row, column]] = k[row, column]
        self.values[row, positions[row, column]] = v[row, column]
        self.lengths = longer
        at = torch.arange(self.keys.shape[1], device=device)
        causal = (at > 0) & (at <= positions[..., None]) | (at == positions.clamp(min=0)[..., None])
        g = head.attend(u, q, self.keys, self.values, causal)[:, -1:]
        self.outputs, self.tree_keys, self.tree_values = g, k[:, :0], v[:, :0]
        self.visible = torch.zeros((len(roots), 1, 0), dtype=torch.bool, device=device)  # nodes x tree columns
        self.depths = torch.zeros_like(roots)
        return g

    def _level(self, tokens: Tensor, parents: Tensor) -> Tensor:
        """Tree columns are nodes 1, 2, ...: node 0, the root, is already a text column."""
        head, (batch, w) = self.drafter.head, tokens.shape
        real = parents != PADDED
        parent = torch.where(real, parents, 0)
        feature = self.outputs.gather(1, parent[..., None].expand(-1, -1, self.outputs.shape[-1]))
        depths = self.depths.gather(1, parent) + 1
        u, q, k, v = head.read(self._embed(tokens), feature, self.lengths[:, None] - 1 + depths)
        above = self.visible.gather(1, parent[..., None].expand(-1, -1, self.visible.shape[-1]))
        itself = torch.eye(w, dtype=torch.bool, device=tokens.device).expand(batch, w, w)
        seen = torch.cat([above, itself], dim=2)
        self.visible = torch.cat([F.pad(self.visible, (0, w)), seen], dim=1)
        self.depths = torch.cat([self.depths, depths], dim=1)
        self.tree_keys = torch.cat([self.tree_keys, k], dim=1)
        self.tree_values = torch.cat([self.tree_values, v], dim=1)
        at = torch.arange(self.keys.shape[1], device=tokens.device)
        text = ((at > 0) & (at < self.lengths[:, None]))[:, None].expand(-1, w, -1)
        keys = torch.cat([self.keys, self.tree_keys], dim=1)
        values = torch.cat([self.values, self.tree_values], dim=1)
        g = head.attend(u, q, keys, values, torch.cat([text, seen], dim=2))
        self.outputs = torch.cat([self.outputs, g], dim=1)
        return g

    def commit(self, paths: list[list[int]], tokens: list[list[int]], features: list[Tensor] | None = None) -> None:
        if features is None:
            raise ValueError(f"drafter {self.drafter.name} reads the target's hidden states: commit needs features")
        self.tokens = [emitted[: len(path) - 1] for path, emitted in zip(paths, tokens, strict=True)]
        self.features = [f.to(self.keys) for f in features]

    def keep(self, rows: list[int]) -> None:
        index = torch.tensor(rows, dtype=torch.int64, device=self.lengths.device)
        self.lengths, self.keys, self.values = self.lengths[index], self.keys[index], self.values[index]
        self.tokens, self.features = [self.tokens[row] for row in rows], [self.features[row] for row in rows]

    def _reserve(self, columns: int) -> None:
        """Room for at least this many text columns; the buffers double."""
        if columns > self.keys.shape[1]:
            more = (0, 0, 0, 0, 0, 2 * columns - self.keys.shape[1])
            self.keys, self.values = F.pad(self.keys, more), F.pad(self.values, more)


def load(path: str | Path, target: LoadedModel, pad_vocab: bool = False) -> Eagle:
    """An EAGLE drafter: a folder as published, config.json beside *.safetensors or pytorch_model*.bin, or our file.

    A checkpoint that carries its target's embedding must have as many tokens as this target has, unless pad_vocab.

    Raises OSError when nothing is there, ValueError naming the tensor and the expected shape when it does not fit.
    """
    path = Path(path).expanduser()
    tensors, values = _read_folder(path) if path.is_dir() else _read_file(path)
    drafter = Eagle(_fill(EagleConfig.read(values, path), tensors, path), target, f"eagle {path.stem}")
    expected = tuple(target.model.get_input_embeddings().weight.shape)
    for name in ("embed_tokens.weight", "lm_head.weight"):
        if name in tensors and tuple(tensors[name].shape) != expected and not pad_vocab:
            raise ValueError(
                f"{path}: tensor {name} has shape {tuple(tensors[name].shape)}, expected {expected} for the target "
                f"{target.name}; pad_vocab takes a head made for another vocabulary"
            )
    return drafter


def _fill(config: EagleConfig, tensors: dict[str, Tensor], path: Path) -> EagleHead:
    biases = [n for n in ("q_proj", "k_proj", "v_proj", "o_proj") if f"layers.0.self_attn.{n}.bias" in tensors]
    biases += ["fc"] * ("fc.bias" in tensors)
    with torch.device("meta"):
        head = EagleHead(config, tuple(biases), "layers.0.input_layernorm.weight" in tensors)
    expected = {name: tuple(tensor.shape) for name, tensor in head.state_dict().items()}
    check_tensors(path, tensors, expected)
    others = [n for n in tensors if n not in expected and not n.startswith(("embed_tokens.", "lm_head."))]
    others = [n for n in others if not n.endswith("rotary_emb.inv_freq")]  # rope_theta says the same
    if others:
        raise ValueError(f"{path}: tensor {others[0]} is no part of a one-layer EAGLE head (fc, layers.0.*)")
    head.load_state_dict({name: tensors[name].float() for name in expected}, assign=True)
    return head


def check_tensors(path: Path, tensors: dict[str, Tensor], expected: dict[str, tuple[int, ...]]) -> None:
    """Raises ValueError naming the first tensor that is missing, of another shape than expected, or not finite."""
    for name, shape in expected.items():
        if name not in tensors:
            raise ValueError(f"{path}: tensor {name} is missing, expected shape {shape}")
        if tuple(tensors[name].shape) != shape:
            raise ValueError(f"{path}: tensor {name} has shape {tuple(tensors[name].shape)}, expected {shape}")
        if not tensors[name].isfinite().all():
            raise ValueError(f"{path}: tensor {name} has entries that are not finite")


def _read_file(path: Path) -> tuple[dict[str, Tensor], dict]:
    if not path.is_file():
        raise FileNotFoundError(f"no drafter at {path}")
    tensors, metadata = read_tensors(path)
    try:
        return tensors, json.loads(metadata["config"])
    except (KeyError, ValueError) as error:
        raise ValueError(f"{path} carries no drafter configuration; give the folder with its config.json") from error


def _read_folder(path: Path) -> tuple[dict[str, Tensor], dict]:
    try:
        values = read_json(path / "config.json")
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{path} has no config.json") from error
    tensors: dict[str, Tensor] = {}
    for file in sorted(path.glob("*.safetensors")) or sorted(path.glob("pytorch_model*.bin")):
        tensors |= read_tensors(file)[0]
    if not tensors:
        raise FileNotFoundError(f"{path} holds no *.safetensors or pytorch_model*.bin file")
    return tensors, values


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors and metadata of a safetensors file, or of a torch file of plain tensors (no code is ever unpickled)."""
    try:
        if path.suffix == ".safetensors":
            with safe_open(path, "pt") as file:
                return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
        tensors = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file shows as any of several, UnpicklingError among them
        raise ValueError(f"{path} is corrupt or not a file of tensors: {' '.join(str(error).split())[:200]}") from error
    if not isinstance(tensors, dict) or not all(isinstance(tensor, Tensor) for tensor in tensors.values()):
        raise ValueError(f"{path} is not a plain dictionary of tensors")
    return tensors, {}


def packed(head: EagleHead) -> tuple[dict[str, Tensor], dict[str, str]]:
    """What `load` reads back: tensors (float16) and metadata of one safetensors file."""
    tensors = {name: tensor.detach().half().contiguous() for name, tensor in head.state_dict().items()}
    return tensors, {"config": json.dumps(asdict(head.config))}  # one key: safetensors writes several in any order


def from_spec(target: LoadedModel, argument: str, pad_vocab: bool = False) -> Eagle:
    """Drafter "eagle:FOLDER" or "eagle:FILE"."""
    if not argument:
        raise ValueError("drafter eagle: give a folder or file, as in eagle:path/to/checkpoint")
    return load(argument, target, pad_vocab)

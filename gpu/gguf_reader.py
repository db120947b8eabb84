"""A Llama-architecture model read straight from a GGUF file.

Three times faster than ``AutoModelForCausalLM.from_pretrained(..., gguf_file=...)``, which parses the file twice and
needs accelerate, and equal to it tensor for tensor. Only the plain Llama layout is read here (no rotary scaling, no
biases, no experts); ``gpu.models`` hands every other GGUF file to transformers.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import gguf
    import numpy as np
    from transformers import LlamaConfig, LlamaForCausalLM

LAYER_TENSORS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
OTHER_TENSORS = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}


class UnsupportedGGUF(ValueError):
    """The file is sound GGUF but not the plain Llama layout this reader knows."""


def read_llama(path: str | Path) -> LlamaForCausalLM:
    """The model in float32, in evaluation mode.

    Raises UnsupportedGGUF for another architecture or an unknown tensor, ValueError for a file that is not GGUF, that
    is cut short, or that lacks a tensor or has one of the wrong shape.
    """
    import torch
    from transformers import LlamaForCausalLM

    reader = _open(path)
    config = _config(reader)
    with torch.device("meta"):
        model = LlamaForCausalLM(config)
    expected = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    weights = {}
    for tensor in reader.tensors:
        name = _name(tensor.name)
        values = _values(tensor, config)
        if expected.get(name) != values.shape:
            raise ValueError(f"{path}: tensor {tensor.name} has shape {values.shape}, expected {expected.get(name)}")
        weights[name] = torch.from_numpy(values)
    if config.tie_word_embeddings:
        weights["lm_head.weight"] = weights.get("model.embed_tokens.weight")
    missing = sorted(name for name in expected if weights.get(name) is None)
    if missing:
        raise ValueError(f"{path}: tensors missing for {', '.join(missing[:3])}{' ...' if len(missing) > 3 else ''}")
    model = LlamaForCausalLM(config)
    model.load_state_dict(weights, assign=True)
    model.tie_weights()
    return model.eval()


def _open(path: str | Path) -> gguf.GGUFReader:
    import gguf

    try:
        return gguf.GGUFReader(path)
    except OSError:
        raise
    except Exception as error:  # the reader indexes a memory map: a cut file shows as any of several exceptions
        raise ValueError(f"{path} is not a complete GGUF file: {error}") from error


def _config(reader: gguf.GGUFReader) -> LlamaConfig:
    from transformers import LlamaConfig

    def field(name: str, default: Any = None) -> Any:
        found = reader.get_field(name)
        if found is None and default is None:
            raise ValueError(f"GGUF field {name} is missing")
        return default if found is None else found.contents()

    architecture = field("general.architecture")
    if architecture != "llama":
        raise UnsupportedGGUF(f"GGUF architecture {architecture!r} is not read directly, only 'llama'")
    if reader.get_field("llama.rope.scaling.type") is not None or reader.get_field("llama.expert_count") is not None:
        raise UnsupportedGGUF("GGUF files with rotary scaling or experts are not read directly")
    embedding = next((tensor for tensor in reader.tensors if tensor.name == "token_embd.weight"), None)
    if embedding is None:
        raise ValueError("GGUF tensor token_embd.weight is missing")
    heads = field("llama.attention.head_count")
    hidden = field("llama.embedding_length")
    return LlamaConfig(
        vocab_size=int(embedding.shape[1]),
        hidden_size=hidden,
        intermediate_size=field("llama.feed_forward_length"),
        num_hidden_layers=field("llama.block_count"),
        num_attention_heads=heads,
        num_key_value_heads=field("llama.attention.head_count_kv", heads),
        head_dim=field("llama.rope.dimension_count", hidden // heads),
        max_position_embeddings=field("llama.context_length"),
        rms_norm_eps=field("llama.attention.layer_norm_rms_epsilon"),
        rope_parameters={"rope_type": "default", "rope_theta": field("llama.rope.freq_base", 10000.0)},
        tie_word_embeddings=all(tensor.name != "output.weight" for tensor in reader.tensors),
        bos_token_id=field("tokenizer.ggml.bos_token_id", 1),
        eos_token_id=field("tokenizer.ggml.eos_token_id", 2),
        pad_token_id=field("tokenizer.ggml.padding_token_id", field("tokenizer.ggml.eos_token_id", 2)),
    )


def _name(gguf_name: str) -> str:
    """The transformers name of a GGUF tensor: ``blk.3.attn_q.weight`` -> ``model.layers.3.self_attn.q_proj.weight``."""
    if gguf_name in OTHER_TENSORS:
        return OTHER_TENSORS[gguf_name]
    match gguf_name.split("."):
        case ["blk", index, kind, "weight"] if kind in LAYER_TENSORS:
            return f"model.layers.{index}.{LAYER_TENSORS[kind]}.weight"
    raise UnsupportedGGUF(f"GGUF tensor {gguf_name} is not part of the plain Llama layout")


def _values(tensor: gguf.ReaderTensor, config: LlamaConfig) -> np.ndarray:
    """The tensor in float32, rows in the order transformers has them.

    GGUF stores the rows of each query and key head interleaved (pairs of one rotary frequency side by side);
    transformers keeps the two halves of a head apart.
    """
    import numpy as np
    from gguf import dequantize

    values = dequantize(tensor.data, tensor.tensor_type).astype(np.float32, copy=False)
    heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}.get(tensor.name.split(".")[-2])
    if heads is not None:
        rows, columns = values.shape
        values = values.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)
    return np.array(values)  # a copy: nothing may point into the file's memory map

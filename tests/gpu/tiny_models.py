"""Tiny random transformers models, one per architecture the decoder promises to run, and a tokenizer for them."""

from types import SimpleNamespace

import torch
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    Gemma3TextConfig,
    GemmaConfig,
    GPT2Config,
    LlamaConfig,
    MistralConfig,
    OPTConfig,
    Qwen2Config,
)

ROPE = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 128,
}
WINDOW = ["sliding_attention", "full_attention"]

CONFIGS = {
    "llama": lambda v: LlamaConfig(vocab_size=v, **ROPE),
    "qwen2": lambda v: Qwen2Config(vocab_size=v, **ROPE),
    "gpt2": lambda v: GPT2Config(vocab_size=v, n_embd=32, n_layer=2, n_head=4, n_positions=128),
    "opt": lambda v: OPTConfig(
        vocab_size=v, hidden_size=32, ffn_dim=48, num_hidden_layers=2, num_attention_heads=4, word_embed_proj_dim=32,
        max_position_embeddings=128, pad_token_id=0,
    ),
    "gemma": lambda v: GemmaConfig(vocab_size=v, **ROPE),
    "gemma2": lambda v: Gemma2Config(vocab_size=v, **ROPE, sliding_window=5, layer_types=WINDOW),
    "gemma3": lambda v: Gemma3TextConfig(vocab_size=v, **ROPE, sliding_window=5, layer_types=WINDOW),
    "mistral": lambda v: MistralConfig(vocab_size=v, **ROPE, sliding_window=5),
    "qwen2-sliding": lambda v: Qwen2Config(
        vocab_size=v, **ROPE, use_sliding_window=True, sliding_window=5, max_window_layers=1
    ),
}  # fmt: skip


def tiny_model(architecture="llama", vocab_size=32, seed=0, attention=None, scale=1.0):
    """Random weights, large enough (times `scale`) that logits differ visibly between contexts."""
    torch.manual_seed(seed)
    config = CONFIGS[architecture](vocab_size)
    model = AutoModelForCausalLM.from_config(config, attn_implementation=attention)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 2:
                parameter.normal_(0, 0.2 * scale if "embed" not in name and "wte" not in name else 0.6 * scale)
    return model.eval().requires_grad_(False)


def loaded(model, name="tiny"):
    """What gpu.models.load_target returns, without a tokenizer: prompts are token lists."""
    vocab_size = model.get_output_embeddings().weight.shape[0]
    return SimpleNamespace(model=model, tokenizer=None, name=name, vocab_size=vocab_size)


class Words:
    """A tokenizer that counts the letters of words."""

    eos_token_id = None
    bos_token_id = 1
    chat_template = None

    def __call__(self, text):
        return {"input_ids": [3 + len(word) for word in text.split()]}

    def decode(self, tokens, skip_special_tokens=True):
        return "".join(chr(64 + token) for token in tokens)

"""One forward over a tree equals plain forwards over its paths, and the cache keeps exactly the accepted path."""

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, MambaConfig, MambaForCausalLM

from gpu import trees
from gpu.attention import Reader, check_tree_attention
from tests.gpu.tiny_models import CONFIGS, tiny_model

TOLERANCE = 1e-4  # float32 logits of order 1


def plain_logits(model, tokens):
    with torch.no_grad():
        return model(input_ids=torch.tensor([tokens]), use_cache=False).logits[0]


EVERY_KIND = [(a, k) for a in CONFIGS for k in ("eager", "sdpa") if (a, k) != ("gemma2", "sdpa")]  # has no sdpa


@pytest.mark.parametrize(("architecture", "attention"), EVERY_KIND)
def test_tree_nodes_have_the_logits_of_their_paths(architecture, attention):
    model = tiny_model(architecture, attention=attention)
    check_tree_attention(model)
    tree = trees.parse("eagle-sparse")
    rng = np.random.default_rng(1)
    texts = [rng.integers(1, 32, size).tolist() for size in (9, 1, 0, 4)]
    reader = Reader(model, len(texts))
    reader.read_texts(texts)
    for _ in range(3):  # three steps, each keeping a random path of its own in every row
        drafts = rng.integers(1, 32, (len(texts), tree.size))
        depths = torch.tensor(tree.depths).expand(len(texts), -1)
        visible = torch.from_numpy(tree.ancestors).expand(len(texts), -1, -1)
        logits = reader.read(torch.from_numpy(drafts), depths, visible).logits
        kept = []
        for row, text in enumerate(texts):
            for slot in range(tree.size):
                path = np.flatnonzero(tree.ancestors[slot])
                expected = plain_logits(model, [*text, *drafts[row, path]])[-1]
                assert (logits[row, slot] - expected).abs().max() < TOLERANCE
            kept.append(np.flatnonzero(tree.ancestors[rng.integers(tree.size)]).tolist())
            text += drafts[row, kept[-1]].tolist()
        reader.keep_columns(kept)
        assert_cache_is_a_prefill(model, reader, texts)
        if len(texts) == 4:
            del texts[0]
            reader.keep_rows([1, 2, 3])
            assert_cache_is_a_prefill(model, reader, texts)


def assert_cache_is_a_prefill(model, reader, texts):
    for row, text in enumerate(texts):
        fresh = Reader(model, 1)
        fresh.read_texts([text])
        for (keys, values), (want_keys, want_values) in zip(reader.keys_values(row), fresh.keys_values(0), strict=True):
            assert keys.shape == want_keys.shape
            assert (keys - want_keys).abs().max() < TOLERANCE
            assert (values - want_values).abs().max() < TOLERANCE


def test_a_model_that_ignores_the_mask_is_refused():
    model = tiny_model()
    forward = model.model.forward
    model.model.forward = lambda **arguments: forward(**{**arguments, "attention_mask": None})
    with pytest.raises(ValueError, match="does not follow a tree attention mask"):
        check_tree_attention(model)


def test_a_model_that_ignores_positions_is_refused():
    model = tiny_model("gpt2")
    forward = model.transformer.forward
    model.transformer.forward = lambda *a, **arguments: forward(*a, **{**arguments, "position_ids": None})
    with pytest.raises(ValueError, match="does not follow a tree attention mask"):
        check_tree_attention(model)


def test_recurrent_and_flash_models_are_refused():
    mamba = MambaForCausalLM(MambaConfig(vocab_size=32, hidden_size=16, num_hidden_layers=1, state_size=4)).eval()
    with pytest.raises(ValueError, match="branch along a draft tree"):
        check_tree_attention(mamba)
    model = tiny_model()
    model.config._attn_implementation = "flash_attention_2"
    with pytest.raises(ValueError, match="takes no tree mask"):
        check_tree_attention(model)
    config = LlamaConfig(vocab_size=8, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8)
    config.layer_types = ["chunked_attention"]
    model.config = config
    with pytest.raises(ValueError, match="chunked_attention"):
        Reader(model, 1)

"""The EAGLE head: trees, published checkpoints, and files that are not what they should be."""

import contextlib
import json
from dataclasses import asdict

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from transformers import LlamaConfig, Qwen2Config
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRotaryEmbedding
from transformers.models.qwen2.modeling_qwen2 import Qwen2DecoderLayer, Qwen2RotaryEmbedding

from gpu import drafters
from gpu.drafters import eagle
from gpu.drafters.base import ROOT_PARENT
from tests.gpu.decoded_texts import VOCABULARY
from tests.gpu.tiny_drafters import CONFIG, features_of, random_head, root_logits
from tests.gpu.tiny_models import loaded, tiny_model

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**6), 10**6) | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["type", "rope_theta", "x"]), inner),
    max_leaves=4,
)


def test_eagle_tree_nodes_equal_a_chain_of_their_own(target):
    """Every node of a bushy tree gets the logits it gets when it is drafted alone, path by path."""
    drafter = eagle.Eagle(random_head(), target)
    text = [3, 1, 4, 1, 5]

    def chain(path):
        session = drafter.begin([text[:-1]], [features_of(target, text[:-1])])
        logits = session.expand(torch.tensor([[text[-1]]]), torch.tensor([[ROOT_PARENT]]))
        for node, token in enumerate(path):
            logits = session.expand(torch.tensor([[token]]), torch.tensor([[node]]))
        return logits[0, 0]

    session = drafter.begin([text[:-1]], [features_of(target, text[:-1])])
    session.expand(torch.tensor([[text[-1]]]), torch.tensor([[ROOT_PARENT]]))
    one = session.expand(torch.tensor([[2, 6, 7]]), torch.tensor([[0, 0, 0]]))[0]
    two = session.expand(torch.tensor([[1, 0, 3, 5]]), torch.tensor([[3, 1, 1, 2]]))[0]
    three = session.expand(torch.tensor([[4, 4]]), torch.tensor([[4, 6]]))[0]
    close = {"atol": 1e-4, "rtol": 1e-4}
    for node, path in enumerate(([2], [6], [7])):
        torch.testing.assert_close(one[node], chain(path), **close)
    for node, path in enumerate(([7, 1], [2, 0], [2, 3], [6, 5])):
        torch.testing.assert_close(two[node], chain(path), **close)
    for node, path in enumerate(([7, 1, 4], [2, 3, 4])):
        torch.testing.assert_close(three[node], chain(path), **close)


REFERENCE = {
    "vicuna": (LlamaConfig, LlamaDecoderLayer, LlamaRotaryEmbedding, ["fc"]),
    "llama": (LlamaConfig, LlamaDecoderLayer, LlamaRotaryEmbedding, []),
    "qwen2": (Qwen2Config, Qwen2DecoderLayer, Qwen2RotaryEmbedding, ["fc", "q_proj", "k_proj", "v_proj"]),
}


def write_checkpoint(folder, kind, biases, form="safetensors", **changes):
    """A published checkpoint's layout: config.json, fc and layers.0.*, no input norm, an embedding that is not used."""
    folder.mkdir()
    values = {
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 32,
        "intermediate_size": 40,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_hidden_layers": 1,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "vocab_size": VOCABULARY,
    }
    (folder / "config.json").write_text(json.dumps(values | changes.pop("config", {})))
    tensors = dict(random_head(7, tuple(biases)).state_dict())
    tensors["embed_tokens.weight"] = torch.zeros(VOCABULARY, 32)
    for name, tensor in changes.items():
        if tensor is None:
            del tensors[name.replace("__", ".")]
        else:
            tensors[name.replace("__", ".")] = tensor
    if form == "safetensors":
        save_file(tensors, folder / "model.safetensors")
    else:
        torch.save(tensors, folder / "pytorch_model.bin")
    return folder, tensors


@pytest.mark.parametrize("kind", REFERENCE)
@pytest.mark.parametrize("form", ["safetensors", "bin"])
def test_eagle_1_checkpoints_load_and_run_as_published(target, tmp_path, kind, form):
    """Against transformers' own decoder layer without its input norm, as EAGLE's code runs it."""
    make_config, make_layer, make_rotary, biases = REFERENCE[kind]
    folder, tensors = write_checkpoint(tmp_path / "ckpt", kind, biases, form)
    drafter = eagle.load(folder, target)
    config = make_config(
        hidden_size=32, intermediate_size=40, num_attention_heads=4, num_key_value_heads=2, vocab_size=VOCABULARY,
        num_hidden_layers=1, rms_norm_eps=1e-6, attn_implementation="eager",
    )  # fmt: skip
    layer = make_layer(config, 0).eval()
    layer.load_state_dict(
        {name.removeprefix("layers.0."): t for name, t in tensors.items() if name.startswith("layers.0.")}, strict=False
    )
    layer.input_layernorm = torch.nn.Identity()
    text = [3, 1, 4, 1, 5, 2]
    features = features_of(target, text)
    with torch.no_grad():  # EAGLE pairs the feature of token i - 1 with the embedding of token i, from i = 1 on
        embeddings = target.model.get_input_embeddings()(torch.tensor(text[1:]))
        u = torch.cat([embeddings, features[:-1]], -1) @ tensors["fc.weight"].T + tensors.get("fc.bias", 0)
        size = len(u)
        mask = torch.full((1, 1, size, size), -torch.inf).triu(1)
        rotary = make_rotary(config)(u[None], torch.arange(size)[None])
        out = layer(u[None], attention_mask=mask, position_embeddings=rotary)
        expected = target.model.get_output_embeddings()((out[0] if isinstance(out, tuple) else out)[0, -1])
    torch.testing.assert_close(root_logits(drafter, target, text), expected, atol=1e-4, rtol=1e-4)


def test_eagle_files_of_ours_round_trip(target, tmp_path):
    head = random_head(1)
    tensors, metadata = eagle.packed(head)
    save_file(tensors, tmp_path / "mine.safetensors", metadata)
    again = drafters.make(f"eagle:{tmp_path / 'mine.safetensors'}", target)
    rounded = eagle.Eagle(random_head(1).half().float(), target)
    torch.testing.assert_close(root_logits(again, target, [1, 2, 3]), root_logits(rounded, target, [1, 2, 3]))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"fc__weight": torch.zeros(32, 32)}, r"tensor fc\.weight has shape \(32, 32\), expected \(32, 64\)"),
        ({"layers__0__mlp__up_proj__weight": None}, r"up_proj\.weight is missing, expected shape \(40, 32\)"),
        ({"layers__1__mlp__up_proj__weight": torch.zeros(1)}, r"layers\.1\.mlp\.up_proj\.weight is no part"),
        ({"fc__weight": torch.full((32, 64), torch.nan)}, r"fc\.weight has entries that are not finite"),
        ({"config": {"rope_scaling": {"type": "linear", "factor": 2}}}, "rope_scaling"),
        ({"config": {"hidden_size": None}}, "lacks hidden_size"),
        ({"config": {"hidden_act": "gelu"}}, "hidden_act 'gelu'"),
        ({"config": {"num_attention_heads": 0}}, "num_attention_heads must be a positive int, got 0"),
        ({"config": {"hidden_size": 32.5}}, r"hidden_size must be a positive int, got 32\.5"),
        ({"config": {"rope_theta": float("nan")}}, "rope_theta must be a positive float, got nan"),
        ({"config": {"num_attention_heads": 3}}, "do not divide a hidden size of 32"),
        ({"config": {"num_key_value_heads": 3}}, "4 attention heads and 3 of keys and values do not divide"),
        (
            {"embed_tokens__weight": torch.zeros(VOCABULARY + 2, 32)},
            r"tensor embed_tokens\.weight has shape \(10, 32\), expected \(8, 32\) for the target tiny",
        ),
    ],
)
def test_mismatched_checkpoints_name_the_fault(target, tmp_path, changes, message):
    folder, _ = write_checkpoint(tmp_path / "ckpt", "llama", ["fc"], **changes)
    with pytest.raises(ValueError, match=message) as caught:
        eagle.load(folder, target)
    assert "\n" not in str(caught.value)


def test_a_head_for_another_target_is_refused(tmp_path):
    other = loaded(tiny_model("gpt2", VOCABULARY))
    other.model.lm_head.weight = torch.nn.Parameter(torch.zeros(VOCABULARY, 16))
    fault = r"tensor fc\.weight has shape \(32, 64\), expected \(16, 32\): the target tiny has hidden size 16"
    with pytest.raises(ValueError, match=fault):
        eagle.Eagle(random_head(), other)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ValueError, match="not readable JSON"):
        eagle.load(tmp_path, other)


@settings(deadline=None)
@given(st.sampled_from([*CONFIG.__dataclass_fields__, "rope_scaling", "rope_parameters", "hidden_act", None]), JSON)
def test_no_configuration_is_worse_than_one_clear_line(field, junk):
    """Whatever JSON stands in a config.json: a configuration that a head can be built of, or a ValueError."""
    values = junk if field is None else asdict(CONFIG) | {field: junk}
    with contextlib.suppress(ValueError), torch.device("meta"):
        assert eagle.EagleHead(eagle.EagleConfig.read(values, "config.json")).config.head_dim % 2 == 0


def test_what_published_folders_also_hold_is_no_obstacle(target, tmp_path):
    """Rotary tables in old files, the trainer's own pickle beside them; another vocabulary only when asked for."""
    more = {
        "layers__0__self_attn__rotary_emb__inv_freq": torch.zeros(4),
        "embed_tokens__weight": torch.zeros(9, 32),
    }
    folder, _ = write_checkpoint(tmp_path / "ckpt", "llama", ["fc"], "bin", **more)
    (folder / "training_args.bin").write_bytes(b"\x80\x04cos\nsystem\n(S'true'\ntR.")
    with pytest.raises(ValueError, match="embed_tokens"):
        drafters.make(f"eagle:{folder}", target)
    assert drafters.make(f"eagle:{folder}", target, pad_vocab=True).vocab_size == VOCABULARY


def test_corrupt_and_absent_checkpoints(target, tmp_path):
    folder, _ = write_checkpoint(tmp_path / "ckpt", "llama", ["fc"])
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match="corrupt"):
        eagle.load(folder, target)
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x04cos\nsystem\n(S'true'\ntR.")  # a pickle that would run code
    with pytest.raises(ValueError, match="corrupt"):
        eagle.load(folder, target)
    (folder / "pytorch_model.bin").unlink()
    for path in (folder, tmp_path / "absent", tmp_path):
        with pytest.raises(FileNotFoundError):
            eagle.load(path, target)

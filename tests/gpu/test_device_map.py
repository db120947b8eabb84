"""Targets that accelerate has spread out. On a CPU what it can spread over is memory and disk: the same hooks move
tensors between the layers, and what is on disk shows as on no device at all."""

import pytest

pytest.importorskip("accelerate")

import tokenizers
import torch
import transformers

from gpu import decode, load_target
from gpu.drafters import lens
from gpu.drafters.causal_lm import CausalLM
from gpu.drafters.eagle import Eagle, EagleConfig, EagleHead
from gpu.drafters.early_exit import EarlyExit
from tests.gpu.tiny_models import CONFIGS, tiny_model

IN_MEMORY = dict.fromkeys(("model.embed_tokens", "model.layers.0", "model.layers.1", "model.norm", "lm_head"), "cpu")
IN_MEMORY["model.rotary_emb"] = "cpu"


def saved(folder, architecture="llama"):
    """A tiny model in a folder, with a tokenizer of one word."""
    tiny_model(architecture, 32, seed=3, scale=1.2).save_pretrained(folder)
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0}, unk_token="a"))
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="a").save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return saved(tmp_path_factory.mktemp("llama"))


def drafter(kind, target):
    torch.manual_seed(5)
    if kind == "model":
        return CausalLM(tiny_model("llama", 32, seed=4))
    if kind == "early exit":
        return EarlyExit(target.model, 1)
    if kind == "lens":
        return lens.Lens(target.model, 1, torch.randn(32, 33))
    return Eagle(EagleHead(EagleConfig(32, 48, 4, 2, 1e-6, 10000.0)), target)


@pytest.mark.parametrize("kind", ["model", "early exit", "lens", "eagle"])
@pytest.mark.parametrize(
    "spread",
    ["auto", {"": "cpu"}, IN_MEMORY | {"model.layers.1": "disk"}, IN_MEMORY | {"lm_head": "disk"}],
    ids=["auto", "one", "layer on disk", "head on disk"],
)
def test_a_spread_target_decodes_as_the_whole_one(folder, spread, kind):
    plain, target = load_target(folder, dtype="float32", device="cpu"), load_target(folder, "float32", None, spread)
    if kind == "eagle" and spread != "auto" and spread.get("lm_head") == "disk":
        with pytest.raises(ValueError, match=r"output layer of .* is offloaded"):
            drafter(kind, target)
        return
    expected, record = (
        decode(t, drafter(kind, t), [1, 5, 2, 7], max_tokens=30, eos=[], tree="kary:2x2", generator=9)
        for t in (plain, target)
    )
    assert record.tokens == expected.tokens
    # a drafter cut from a spread target is that part of it, not the target itself
    assert [v.probability for v in record.visits] == pytest.approx([v.probability for v in expected.visits], abs=1e-5)
    assert record.acceptance < 1


@pytest.mark.parametrize("architecture", CONFIGS)
def test_early_exit_of_a_spread_model_runs_its_first_layers_only(tmp_path, architecture):
    target = load_target(saved(tmp_path, architecture), device="cpu").model
    parts = [name for name, part in target.named_modules() if not list(part.children())]
    from accelerate import dispatch_model

    spread = load_target(tmp_path, device="cpu").model
    dispatch_model(spread, dict.fromkeys(parts, "cpu"), force_hooks=True)
    assert hasattr(spread, "_hf_hook")
    ids = torch.tensor([[1, 2, 3, 4, 5]])
    with torch.no_grad():
        logits = [EarlyExit(model, 1).model(input_ids=ids).logits for model in (target, spread)]
        assert (logits[0] - logits[1]).abs().max() < 1e-5
        assert (logits[0] - target(input_ids=ids).logits).abs().max() > 1e-2


def test_an_offloaded_embedding_is_refused(folder):
    with pytest.raises(ValueError, match=r"input embedding of .* must be on a device"):
        load_target(folder, device_map=IN_MEMORY | {"model.embed_tokens": "disk"})

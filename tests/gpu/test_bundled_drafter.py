"""The drafter that ships with the package."""

import json

import numpy as np
import pytest
import torch

from gpu import training_data
from gpu.drafters import bundled, eagle, make
from gpu.drafters.compare import table
from gpu.drafters.compare_losses import differences
from gpu.models import load_bundled
from gpu.replay import replay
from gpu.training_prompts import KINDS, held_out_prompts
from tests.gpu.tiny_models import loaded, tiny_model

CARD = bundled.FILE.with_suffix(".json")


def test_the_file_is_small_and_fits_its_card():
    card = json.loads(CARD.read_text())
    assert bundled.FILE.stat().st_size < 10_000_000
    assert card["seconds"] <= 30 * 60
    mean = card["held_out"]["depth 1"]["mean"]
    assert mean["alpha"] >= 0.36
    assert mean["alpha_star"] >= 0.52
    assert card["command"].startswith("mdsd train-drafter --kind eagle --data self")
    assert set(card["held_out"]["depth 1"]) == {"mean", *KINDS}
    tensors, metadata = eagle.read_tensors(bundled.FILE)
    assert {tensor.dtype for tensor in tensors.values()} == {torch.float16}
    head = eagle._fill(eagle.EagleConfig.read(json.loads(metadata["config"]), bundled.FILE), tensors, bundled.FILE)
    assert head.config.hidden_size == 576


def test_the_page_shows_what_was_recorded():
    page = (bundled.FILE.parents[1] / "README.md").read_text()
    recorded = json.loads((bundled.FILE.parent / "acceptance.json").read_text())
    assert table(recorded["records"]) in page
    card = json.loads(CARD.read_text())
    assert card["command"] in page
    for depth, rates in card["held_out"].items():
        assert f"| {depth} | {rates['mean']['alpha']:.3f} | {rates['mean']['alpha_star']:.3f} |" in page


def test_the_comparison_of_losses_is_the_recorded_one():
    """Rows of the page, and the differences of the file, from the rates of every text."""
    page = (bundled.FILE.parents[1] / "README.md").read_text()
    recorded = json.loads((bundled.FILE.parent / "losses.json").read_text())
    assert differences(recorded["runs"]) == recorded["differences"]
    for run in recorded["runs"]:
        means = [np.mean(run["texts"][depth][name]) for depth, name in
                 (("depth 1", "alpha"), ("depth 1", "alpha_star"), ("depth 3", "alpha_star"))]  # fmt: skip
        cells = " | ".join(f"{mean:.3f}" for mean in means)
        assert f"| {run['seconds'] - run['text_seconds']} | {run['steps']} | {cells} |" in page
    for line in recorded["differences"]:
        if line["run"][0] == "acceptance":
            cells = [line["depth 1"]["alpha"], line["depth 1"]["alpha_star"], line["depth 3"]["alpha_star"]]
            row = " | ".join(f"{c['mean']:+.3f} ({c['low']:+.3f}, {c['high']:+.3f})" for c in cells)
            assert row.replace("-", "−") in page


def test_it_is_refused_for_another_target():
    with pytest.raises(ValueError, match="trained for SmolLM2-135M-Instruct, not for tiny"):
        make("bundled", loaded(tiny_model()))
    with pytest.raises(ValueError, match="takes no argument"):
        make("bundled:x", loaded(tiny_model()))


@pytest.mark.slow
def test_its_acceptance_is_what_the_card_says():
    """Fresh continuations (another seed) of three held-out prompts of each kind.

    12 texts of 24 positions: the standard error of the mean over texts is about 0.02, so 0.12 is six of them. The same
    head with its tensors exchanged must be far below.
    """
    target = load_bundled(device="cpu")
    prompts = [prompt for k, prompt in enumerate(held_out_prompts()) if k % 12 < 3]
    encoded = [training_data.encode(prompt, target.tokenizer) for prompt in prompts]
    text = training_data.sample(target, encoded, 24, 77, len(encoded), None)
    drafter = eagle.load(bundled.FILE, target)
    alpha = replay(drafter, target, text, 4).alpha.mean()
    stated = json.loads(CARD.read_text())["held_out"]["depth 1"]["mean"]["alpha"]
    assert abs(alpha - stated) < 0.12
    mixture = make("bundled", target)
    assert replay(mixture, target, text, 4).alpha.mean() > alpha - 0.03
    drafter.head.fc.weight.copy_(drafter.head.fc.weight.roll(576, dims=1))  # embedding and feature in the wrong order
    assert replay(drafter, target, text, 4).alpha.mean() < stated - 0.12

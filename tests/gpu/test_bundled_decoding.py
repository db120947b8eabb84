"""The bundled model, at temperature 0: token for token what transformers generates."""

import pytest
import torch

from gpu import decode_batch, load_target
from gpu.decoding import Method
from gpu.drafters.early_exit import EarlyExit
from gpu.prompts import chat_tokens

PROMPTS = [
    "What causes the tides?", "Name three rivers in Africa.", "Write a haiku about rain.", "Define entropy simply.",
    "How do bees find flowers?", "Translate 'good morning' into Spanish.", "What is 17 times 23?",
    "Write a Python function that reverses a list.", "Who wrote Hamlet?", "Give me a recipe for pancakes.",
    "Explain photosynthesis.", "What is the capital of Peru?", "Tell a joke about a cat.", "List the primary colours.",
    "How does a bicycle stay upright?", "Summarise the story of Icarus.", "What is a prime number?",
    "Why is the sky blue?", "Describe a desert at night.", "How is glass made?",
]  # fmt: skip


@pytest.fixture(scope="module")
def target():
    return load_target(None)


@pytest.fixture(scope="module")
def generated(target):
    """(prompt, what transformers generates) of every prompt."""
    pairs = []
    for prompt in PROMPTS:
        ids = torch.tensor([chat_tokens(target, [prompt])])
        with torch.no_grad():
            out = target.model.generate(
                ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=64, pad_token_id=0
            )
        pairs.append((ids[0].tolist(), out[0, ids.shape[1] :].tolist()))
    return pairs


@pytest.mark.slow
@pytest.mark.parametrize("spec", ["kary:2x2 without-replacement rrs", "eagle-sparse deterministic greedy"])
def test_temperature_zero_is_generate(target, generated, spec):
    method = Method.parse(spec, temperature=0.0, draft_temperature=1.0)
    prompts = [prompt for prompt, _ in generated]
    records = decode_batch(target, EarlyExit(target.model, 26), prompts, method, max_tokens=64)
    assert max(record.block_efficiency for record in records) > 1.3  # drafts were accepted
    for (prompt, expected), record in zip(generated, records, strict=True):
        assert_equal_up_to_ties(target.model, prompt, record.tokens, expected)


def assert_equal_up_to_ties(model, prompt, ours, theirs):
    """Equal, or parted where the two best logits are one rounding apart: then both are argmax decoding."""
    if ours == theirs:
        return
    parting = next(k for k, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b)
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([prompt + theirs[:parting]])).logits[0, -1]
    assert (logits[ours[parting]] - logits[theirs[parting]]).abs() < 1e-4

"""The bundled model, at temperature 0: token for token what transformers generates."""

import pytest
import torch

from gpu import decode_batch, load_target
from gpu.drafters.early_exit import EarlyExit
from gpu.method import Method
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


LEAST_GAP = 1e-3
"""Nowhere on these texts are the two best logits closer (the closest pair is 1.7e-3 apart). Logits of one position
differ by up to 1.2e-4 between passes of different shapes: no argmax is a matter of rounding, so equality is exact.
"""


@pytest.fixture(scope="module")
def generated(target):
    """(prompt, what transformers generates) of every prompt."""
    pairs = []
    for prompt in PROMPTS:
        ids = torch.tensor([chat_tokens(target, [prompt])])
        with torch.no_grad():
            out = target.model.generate(
                ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=64, pad_token_id=0,
                output_scores=True, return_dict_in_generate=True,
            )  # fmt: skip
        best = torch.cat(out.scores).topk(2).values
        assert (best[:, 0] - best[:, 1]).min() > LEAST_GAP, prompt
        pairs.append((ids[0].tolist(), out.sequences[0, ids.shape[1] :].tolist()))
    return pairs


@pytest.mark.slow
@pytest.mark.parametrize("spec", ["kary:2x2 without-replacement rrs", "eagle-sparse deterministic greedy"])
def test_temperature_zero_is_generate(target, generated, spec):
    method = Method.parse(spec, temperature=0.0, draft_temperature=1.0)
    prompts = [prompt for prompt, _ in generated]
    records = decode_batch(target, EarlyExit(target.model, 26), prompts, method, max_tokens=64)
    assert max(record.block_efficiency for record in records) > 1.3  # drafts were accepted
    for (_, expected), record in zip(generated, records, strict=True):
        assert record.tokens == expected

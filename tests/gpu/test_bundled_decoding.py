"""The bundled model, at temperature 0: token for token what transformers generates."""

import pytest
import torch

from gpu import decode_batch, load_target
from gpu.decoding import Method
from gpu.drafters.early_exit import EarlyExit

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


@pytest.mark.slow
@pytest.mark.parametrize(
    "spec", ["kary:2x3 without-replacement rrs", "eagle-sparse deterministic greedy", "chain:4 greedy single-draft"]
)
def test_temperature_zero_is_generate(target, spec):
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        method = Method.parse(spec, temperature=0.0, draft_temperature=1.0)
        drafter = EarlyExit(target.model, 24)
        prompts = [
            target.tokenizer.apply_chat_template(
                [{"role": "user", "content": prompt}], add_generation_prompt=True, return_dict=True
            )["input_ids"]
            for prompt in PROMPTS
        ]
        records = []
        for first in range(0, len(prompts), 5):
            records += decode_batch(target, drafter, prompts[first : first + 5], method, max_tokens=64)
        for prompt, record in zip(prompts, records, strict=True):
            ids = torch.tensor([list(prompt)])
            with torch.no_grad():
                out = target.model.generate(
                    ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=64, pad_token_id=0
                )
            expected = out[0, ids.shape[1] :].tolist()
            assert_equal_up_to_ties(target.model, list(prompt), record.tokens, expected)
    finally:
        torch.set_num_threads(threads)


def assert_equal_up_to_ties(model, prompt, ours, theirs):
    """Equal, or parted where the two best logits are one rounding apart: then both are argmax decoding."""
    if ours == theirs:
        return
    parting = next(k for k, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b)
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([prompt + theirs[:parting]])).logits[0, -1]
    assert (logits[ours[parting]] - logits[theirs[parting]]).abs() < 1e-4

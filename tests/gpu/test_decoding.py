"""The decoder emits the target's own law, alone or in a batch, and stops where it should."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from gpu import Sampling, decode, decode_batch
from gpu.attention import Reader
from gpu.decoding import stream
from gpu.drafters.callable import CallableDrafter
from gpu.drafters.causal_lm import CausalLM
from gpu.drafters.early_exit import EarlyExit, cut
from gpu.method import Method
from gpu.samplers import Sampler
from tests.gpu.tiny_models import CONFIGS, loaded, tiny_model

PROMPT = [1, 5, 2]


@pytest.fixture(scope="module")
def target():
    return loaded(tiny_model("llama", 32, seed=3))


@pytest.fixture(scope="module")
def drafter():
    return CausalLM(tiny_model("llama", 32, seed=4), "tiny drafter")


def greedy_text(model, prompt, size):
    text = list(prompt)
    for _ in range(size):
        with torch.no_grad():
            text.append(int(model(input_ids=torch.tensor([text])).logits[0, -1].argmax()))
    return text[len(prompt) :]


@pytest.mark.parametrize("architecture", CONFIGS)
@pytest.mark.parametrize(("sampler", "verifier"), [("without-replacement", "rrs"), ("greedy", "greedy")])
def test_temperature_zero_is_greedy_decoding(architecture, sampler, verifier):
    model = tiny_model(architecture, 32, seed=1)
    record = decode(
        loaded(model), EarlyExit(model, 1), PROMPT, tree="kary:2x3", sampler=sampler, verifier=verifier,
        temperature=0.0, draft_temperature=1.0, max_tokens=20,
    )  # fmt: skip
    assert record.tokens == greedy_text(model, PROMPT, 20)[: len(record.tokens)]
    assert record.finish in ("length", "eos")


@pytest.mark.parametrize("architecture", CONFIGS)
def test_cache_equals_a_fresh_prefill_after_every_sampled_step(architecture, monkeypatch):
    """Both models' caches, texts of different lengths that end at different times."""
    readers = []
    start = Reader.__init__
    monkeypatch.setattr(Reader, "__init__", lambda self, *a: (start(self, *a), readers.append(self))[0])
    model = tiny_model(architecture, 32, seed=1)
    drafter = CausalLM(tiny_model(architecture, 32, seed=2))
    method = Method.make("eagle-sparse", "with-replacement", "rrs")
    readers.clear()
    steps = 0
    for records in stream(
        loaded(model), drafter, [[4, 2, 9, 1, 7], [3], [8, 8], [5], [7] * 9], method, max_tokens=18, eos=[6]
    ):
        live = [record for record in records if record.finish == "unfinished"]
        if not live:
            break
        steps += 1
        for reader, network in zip(readers[:2], (model, drafter.model), strict=True):
            for row, record in enumerate(live):
                text = (record.prompt + record.tokens)[:-1]
                length = reader.lengths[row]
                if length == 0:
                    continue
                # the drafter may still have to read an accepted leaf
                assert length in (len(text), len(text) - (network is not model))
                fresh = Reader(network, 1)
                fresh.read_texts([text[:length]])
                for kept, wanted in zip(reader.keys_values(row), fresh.keys_values(0), strict=True):
                    for ours, theirs in zip(kept, wanted, strict=True):
                        assert ours.shape == theirs.shape
                        assert not ours.numel() or (ours - theirs).abs().max() < 1e-4
    assert steps > 3


@pytest.mark.parametrize(
    ("tree", "sampler", "verifier"),
    [
        ("eagle-sparse", "without-replacement", "rrs"),
        ("kary:3x2", "with-replacement", "kseq"),
        ("kary:2x3", "greedy", "greedy"),
        ("chain:4", "with-replacement", "single-draft"),
        ("plain", "with-replacement", "naive"),
    ],
)
def test_a_row_of_a_batch_is_what_it_is_alone(target, drafter, tree, sampler, verifier):
    method = Method.make(tree, sampler, verifier, temperature=0.8)
    prompts = [[4, 2, 9, 1, 7, 3, 3], [3], [8, 8], [5, 1, 2, 4]]
    together = decode_batch(target, drafter, prompts, method, max_tokens=25, eos=[6, 11], generators=[7, 8, 9, 10])
    assert len({len(record.tokens) for record in together}) > 1  # they do end at different times
    for prompt, seed, record in zip(prompts, [7, 8, 9, 10], together, strict=True):
        alone = decode_batch(target, drafter, [prompt], method, max_tokens=25, eos=[6, 11], generators=[seed])[0]
        assert alone.tokens == record.tokens
        assert alone.finish == record.finish
        assert alone.target_passes == record.target_passes
        assert [v[:4] for v in alone.visits] == [v[:4] for v in record.visits]


def test_same_generator_same_text(target, drafter):
    texts = [decode(target, drafter, PROMPT, generator=seed, max_tokens=30).tokens for seed in (5, 5, 6)]
    assert texts[0] == texts[1] != texts[2]
    generator = torch.Generator().manual_seed(5)
    assert decode(target, drafter, PROMPT, generator=generator, max_tokens=30).tokens == texts[0]


def test_nothing_is_emitted_after_eos(target, drafter):
    method = Method.make("kary:3x4", "without-replacement", "rrs", temperature=0.5)
    free = decode_batch(target, target_as_drafter(target), [PROMPT] * 20, method, max_tokens=24, eos=[])
    seen_inside = 0
    for eos in range(2, 12):
        ended = decode_batch(target, target_as_drafter(target), [PROMPT] * 20, method, max_tokens=24, eos=[eos])
        for without, record in zip(free, ended, strict=True):
            assert eos not in record.tokens[:-1]
            expected = without.tokens[: without.tokens.index(eos) + 1] if eos in without.tokens else without.tokens
            assert record.tokens == expected
            assert record.finish == ("eos" if eos in without.tokens else "length")
            assert len(record.visits) == len(record.tokens)
            assert sum(v.depth == 0 for v in record.visits) == record.target_passes
            seen_inside += record.finish == "eos" and record.visits[-1].rank >= 0
    assert seen_inside > 10  # EOS was an accepted draft, often


def target_as_drafter(target):
    return CausalLM(target.model)


@pytest.mark.parametrize("max_tokens", [1, 2, 3, 7])
def test_max_tokens_is_exact(target, max_tokens):
    method = Method.make("kary:2x4", "without-replacement", "rrs")
    for record in decode_batch(target, target_as_drafter(target), [PROMPT] * 5, method, max_tokens=max_tokens, eos=[]):
        assert len(record.tokens) == len(record.visits) == max_tokens
        assert record.finish == "length"


def test_text_stops_at_the_models_longest(target):
    """128 positions: the text fills them, whoever has fewer decides."""
    prompt = [1] * 120
    record = decode(target, target_as_drafter(target), prompt, max_tokens=50, tree="kary:2x4")
    assert record.finish == "context"
    assert len(prompt) + len(record.tokens) == 128
    short = target_as_drafter(target)
    short.max_length = 124
    assert len(decode(target, short, prompt, max_tokens=50).tokens) == 4
    with pytest.raises(ValueError, match="128 tokens; the models read at most 128"):
        decode(target, drafter=target_as_drafter(target), prompt=[1] * 128)


def test_perfect_drafter_is_always_accepted(target):
    record = decode(
        target, target_as_drafter(target), PROMPT, tree="chain:4", sampler="with-replacement",
        verifier="single-draft", max_tokens=25,
    )  # fmt: skip
    assert record.acceptance == 1.0
    assert record.block_efficiency == 5.0
    assert all(visit.probability == pytest.approx(1, abs=1e-4) for visit in record.visits if visit.drafts)


def test_callable_drafter_equals_the_model_it_wraps(target, drafter):
    def logits(texts):
        return torch.stack([drafter.model(input_ids=torch.tensor([text])).logits[0, -1] for text in texts])

    def probabilities(texts):
        return logits(texts).softmax(-1).numpy()

    for method in (Method.make("eagle-sparse"), Method.make("kary:2x3", "with-replacement", "rrs", temperature=0.7)):
        texts = [
            [r.tokens for r in decode_batch(target, d, [PROMPT, [2, 3]], method, max_tokens=20, eos=[])]
            for d in (drafter, CallableDrafter(logits, 32), CallableDrafter(probabilities, 32, probabilities=True))
        ]
        assert texts[0] == texts[1] == texts[2]


@pytest.mark.parametrize("answer", [np.ones((1, 31)), np.full((1, 32), -1.0), np.zeros((1, 32))])
def test_callable_drafter_that_answers_nonsense_is_named(target, answer):
    bad = CallableDrafter(lambda texts: answer, 32, probabilities=True, name="mine")
    with pytest.raises(ValueError, match="drafter mine returned"):
        decode(target, bad, PROMPT, tree="chain:1", sampler="with-replacement", verifier="rrs")


@pytest.mark.parametrize("architecture", CONFIGS)
def test_early_exit_is_the_first_layers_and_leaves_the_model_alone(architecture):
    model = tiny_model(architecture, 32)
    ids = torch.tensor([[1, 2, 3, 4, 5, 6, 7, 8]])
    with torch.no_grad():
        before = model(input_ids=ids).logits
        short = cut(model, 1)
        hidden = model(input_ids=ids, output_hidden_states=True).hidden_states[1]
        parts = dict(model.named_modules())
        norms = ("model.norm", "transformer.ln_f", "model.decoder.final_layer_norm")
        expected = model.get_output_embeddings()(next(parts[n] for n in norms if n in parts)(hidden))
        cap = getattr(model.config, "final_logit_softcapping", None)
        expected = cap * torch.tanh(expected / cap) if cap else expected
        assert (short(input_ids=ids).logits - expected).abs().max() < 1e-5
        assert torch.equal(model(input_ids=ids).logits, before)
    assert {p.data_ptr() for p in short.parameters()} <= {p.data_ptr() for p in model.parameters()}
    for layers in (0, 2, 5):
        with pytest.raises(ValueError, match="the model has 2 layers"):
            cut(model, layers)


def test_vocabularies_that_differ_are_refused_or_padded(target):
    smaller = CausalLM(tiny_model("llama", 30, seed=5))
    with pytest.raises(ValueError, match="vocabularies of 32 and 30"):
        decode(target, smaller, PROMPT)
    record = decode(target, smaller, PROMPT, pad_vocab=True, max_tokens=20, eos=[])
    assert len(record.tokens) == 20
    larger = CausalLM(tiny_model("llama", 40, seed=5))
    assert max(decode(target, larger, PROMPT, pad_vocab=True, max_tokens=60).tokens) < 32


class Letters:
    """A tokenizer of 32 letters, enough for stop strings."""

    eos_token_id = None
    bos_token_id = None

    def __call__(self, text):
        return {"input_ids": [ord(letter) - 96 for letter in text]}

    def decode(self, tokens, skip_special_tokens=True):
        return "".join(chr(96 + token) for token in tokens)


def test_stop_strings_end_text_and_counts_inside_a_path(target):
    spelled = SimpleNamespace(**{**vars(target), "tokenizer": Letters()})
    whole = decode(spelled, target_as_drafter(target), "abc", max_tokens=40, tree="chain:4", sampler="with-replacement",
                   verifier="single-draft", eos=[])  # fmt: skip
    assert len(whole.text) == 40
    for place in (1, 3, 7, 13):
        stop = whole.text[place : place + 2]
        found = whole.text.find(stop)
        record = decode(spelled, target_as_drafter(target), "abc", max_tokens=40, tree="chain:4", stop=[stop, "zzzzz"],
                        sampler="with-replacement", verifier="single-draft", eos=[])  # fmt: skip
        one = decode(spelled, target_as_drafter(target), "abc", max_tokens=40, tree="chain:4", stop=stop,
                     sampler="with-replacement", verifier="single-draft", eos=[])  # fmt: skip
        assert (one.tokens, one.text) == (record.tokens, record.text)
        assert record.finish == "stop"
        assert record.text == whole.text[:found]
        assert record.tokens == whole.tokens[: found + 2]
        assert len(record.visits) == found + 2
        assert record.target_passes == found // 5 + 1 + ((found + 1) // 5 > found // 5)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"prompt": []}, "prompt is empty"),
        ({"prompt": [99]}, "outside the vocabulary"),
        ({"prompt": "text"}, "without a tokenizer"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"temperature": -1.0}, "temperature"),
        ({"top_p": 2.0}, "top_p"),
        ({"draft_top_k": 0}, "top_k"),
        ({"sampler": "beam"}, "known: with-replacement"),
        ({"verifier": "magic"}, "known: naive"),
        ({"tree": "kary:0x2"}, "at least 1"),
        ({"drafter": None}, "needs a drafter"),
        ({"sampler": "greedy"}, "rrs.*greedy"),
        ({"stop": ["x"]}, "without a tokenizer"),
        ({"stop": "x"}, "without a tokenizer"),
        ({"stop": ["x", ""]}, "stop: ''"),
        ({"generator": -1}, "generators: seed -1"),
        ({"generator": 2**64}, "generators: seed 18446744073709551616"),
        ({"generator": "0"}, "generators: seed '0'"),
    ],
)
def test_bad_input_is_one_clear_error(target, drafter, wrong, says):
    arguments = {"drafter": drafter, "prompt": PROMPT} | wrong
    with pytest.raises(ValueError, match=says):
        decode(target, **arguments)


def test_nan_logits_are_an_error_and_not_a_token(target, drafter):
    broken = loaded(tiny_model("llama", 32, seed=3))
    broken.model.lm_head.weight.data[5] = float("nan")
    with pytest.raises(ValueError, match="target's logits"):
        decode(broken, drafter, PROMPT)
    with pytest.raises(ValueError, match="drafter's logits"):
        decode(target, CausalLM_unchecked(broken.model), PROMPT)


def CausalLM_unchecked(model):
    drafter = CausalLM.__new__(CausalLM)
    drafter.model, drafter.name, drafter.vocab_size, drafter.max_length = model, "broken", 32, None
    return drafter


def test_method_names_and_settings():
    method = Method.make("kary:2x4", "top-then-sample:2", "naive", temperature=0.5, draft_top_k=4)
    assert method.name == "top-then-sample:2 + naive on kary:2x4"
    assert method.sampler == Sampler("top-then-sample", 2)
    assert method.sampling == Sampling(0.5)
    assert method.draft_sampling == Sampling(0.5, 4)

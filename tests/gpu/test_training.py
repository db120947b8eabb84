"""Training drafters: losses against plain formulas, the unrolled head against its session, resuming, the whole job."""

import copy
import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from rich.progress import Progress

from gpu import losses, train_drafter, training, training_data
from gpu.drafters import eagle, lens, make
from gpu.drafters.base import ROOT_PARENT
from gpu.models import LoadedModel
from gpu.replay import replay
from gpu.train_commands import train_drafter as command
from gpu.training_data import Corpus
from gpu.training_prompts import KINDS, held_out_prompts, training_prompts
from mdsd_theory import drafts, optimal_acceptance
from tests.gpu.test_models import word_model
from tests.gpu.tiny_drafters import features_of, random_head
from tests.gpu.tiny_models import loaded, tiny_model

V, D = 24, 32


@pytest.fixture(scope="module")
def target():
    return loaded(tiny_model("llama", V, 0))


def random_features(count, seed):
    return torch.randn(count, D, generator=torch.Generator().manual_seed(seed))


def random_corpus(target, texts=10, seed=0):
    rng = np.random.default_rng(seed)
    tokens = [rng.integers(0, V, int(rng.integers(5, 14))).tolist() for _ in range(texts)]
    return Corpus(
        tokens=torch.tensor([token for text in tokens for token in text]),
        features=torch.cat([features_of(target, text) for text in tokens]),
        lengths=torch.tensor([len(text) for text in tokens]),
        starts=torch.tensor([k % 3 for k in range(texts)]),
    )


# Losses


def test_cross_entropy_equals_the_plain_formula_and_its_gradient():
    head, f, g = random_features(V, 0), random_features(700, 1), random_features(700, 2).requires_grad_()
    p = torch.softmax(f @ head.T, -1)
    plain = -(p * torch.log_softmax(g @ head.T, -1)).sum(-1).mean()
    (expected,) = torch.autograd.grad(plain, g)
    value = losses.cross_entropy(g, losses.expected_embedding(f, head), head)
    (gradient,) = torch.autograd.grad(value, g)
    torch.testing.assert_close(value, plain, atol=1e-4, rtol=1e-5)
    torch.testing.assert_close(gradient, expected, atol=1e-6, rtol=1e-4)


def test_a_weighted_row_of_the_head_counts_for_several_tokens():
    head, g, m = random_features(V, 0), random_features(5, 1), random_features(5, 2)
    twice = torch.cat([head, head[-3:], head[-3:]])
    weights = torch.zeros(V)
    weights[-3:] = np.log(3)
    torch.testing.assert_close(losses.cross_entropy(g, m, head, weights), losses.cross_entropy(g, m, twice))
    f, g = random_features(5, 3), g.requires_grad_()
    for n in (1, 3):
        one, other = losses.rejection(g, f, head, n, weights), losses.rejection(g, f, twice, n)
        torch.testing.assert_close(one, other)
        torch.testing.assert_close(torch.autograd.grad(one, g), torch.autograd.grad(other, g), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("n", [1, 2, 4])
def test_acceptance_and_its_loss_equal_alpha_star(n):
    head, f, g = random_features(V, 0) / 2, random_features(12, 1), random_features(12, 2).requires_grad_()
    p, q = (torch.softmax((x @ head.T).double(), -1).detach().numpy() for x in (f, g))
    exact = [optimal_acceptance(a / a.sum(), drafts.WithReplacement(b / b.sum(), n)).rate for a, b in zip(p, q)]  # noqa: B905
    rates = losses.acceptance(g.detach(), f, head, n)
    np.testing.assert_allclose(rates.alpha_star, exact, atol=2e-6)
    np.testing.assert_allclose(rates.alpha, np.minimum(p, q).sum(-1), atol=2e-6)
    loss = losses.rejection(g, f, head, n)
    assert loss.item() == pytest.approx(1 - np.mean(exact), abs=2e-3)  # n > 1: the set is found to a bin's width
    (gradient,) = torch.autograd.grad(loss, g)
    inside = losses.minimising_set(*(torch.softmax(x @ head.T, -1).detach() for x in (f, g)), n)
    free = g.detach().requires_grad_()
    held = ((torch.softmax(free @ head.T, -1) * inside).sum(-1) ** n).mean()
    torch.testing.assert_close(gradient, torch.autograd.grad(held, free)[0], atol=1e-6, rtol=1e-4)


# The head, unrolled


def test_unrolled_training_sees_what_a_session_sees(target):
    """Depth k of the training pass equals a session whose last k - 1 tokens hang below the root."""
    head = random_head(4)
    drafter, student = eagle.Eagle(head, target), training.EagleStudent(head, target.model.get_input_embeddings())
    text = [3, 1, 4, 1, 5, 9, 2, 6]
    with torch.no_grad():
        unrolled = student(torch.tensor([text]), features_of(target, text)[None], 4)
    for depth in (1, 2, 3, 4):
        for i in range(depth, len(text)):
            root = i - depth + 1
            session = drafter.begin([text[:root]], [features_of(target, text[:root])])
            logits = session.expand(torch.tensor([[text[root]]]), torch.tensor([[ROOT_PARENT]]))
            for node, token in enumerate(text[root + 1 : i + 1]):
                logits = session.expand(torch.tensor([[token]]), torch.tensor([[node]]))
            expected = target.model.get_output_embeddings()(unrolled[depth - 1][0, i])
            torch.testing.assert_close(logits[0, 0], expected, atol=1e-4, rtol=1e-4)


def make_trainer(target, steps=8, loss="cross-entropy", depth=2):
    torch.manual_seed(1)
    head = random_head(4)
    corpus = random_corpus(target)
    training.start_from_ridge(head, target.model.get_input_embeddings().weight, corpus)
    student = training.EagleStudent(head, target.model.get_input_embeddings())
    plan = training.Plan(texts=4, depth=depth, loss=loss, n=2, warmup=2)
    return training.Trainer(student, target, corpus, steps, plan), corpus


def test_training_resumes_to_the_same_result(target, tmp_path):
    straight, _ = make_trainer(target)
    for _ in range(8):
        straight.advance()
    stopped, _ = make_trainer(target)
    for _ in range(3):
        stopped.advance()
    stopped.save(tmp_path / "checkpoint.pt")
    stopped.advance()  # work that the kill loses
    resumed, _ = make_trainer(target, steps=99)
    resumed.resume(tmp_path / "checkpoint.pt")
    assert (resumed.step, resumed.steps) == (3, 8)
    while resumed.step < resumed.steps:
        resumed.advance()
    for name, tensor in straight.student.state_dict().items():
        assert torch.equal(resumed.student.state_dict()[name], tensor), name


def test_a_checkpoint_of_something_else_is_refused(target, tmp_path):
    trainer, _ = make_trainer(target)
    torch.save({"step": 1}, tmp_path / "checkpoint.pt")
    whole = (tmp_path / "checkpoint.pt").read_bytes()
    for content in (whole, whole[:100], whole[: len(whole) // 2], b"", b"not a checkpoint"):
        (tmp_path / "checkpoint.pt").write_bytes(content)
        with pytest.raises(ValueError, match="no checkpoint of this training run"):
            trainer.resume(tmp_path / "checkpoint.pt")


def test_the_steps_that_a_time_allows_count_the_dear_ones_too(target, monkeypatch):
    """A step costs 1 s in the first half of the schedule and 3 s in the second: 100 s allow 50 steps, not 100."""
    trainer, _ = make_trainer(target)
    clock = SimpleNamespace(seconds=7.0)

    def advance(probe):
        clock.seconds += 1.0 if probe.step < probe.steps / 2 else 3.0

    monkeypatch.setattr(training.Trainer, "advance", advance)
    assert train_drafter._affordable(trainer, 100.0, clock) == int(0.93 * 50)
    assert (trainer.step, trainer.steps) == (0, 8)


@pytest.mark.parametrize("loss", ["cross-entropy", "acceptance"])
def test_training_raises_acceptance(target, loss):
    trainer, corpus = make_trainer(target, steps=60, loss=loss, depth=1)
    before = training.judge(trainer.student, target, corpus, 2, 1)[0]
    for _ in range(60):
        trainer.advance()
    after = training.judge(trainer.student, target, corpus, 2, 1)[0]
    assert after[0].mean() > before[0].mean() + 0.01
    assert after[1].mean() > before[1].mean() + 0.01


def test_ridge_start_is_the_best_linear_map(target):
    trainer, corpus = make_trainer(target)
    x, y = [], []
    embedding = target.model.get_input_embeddings().weight
    for tokens, features, start in corpus.split():
        first = max(start, 1)
        x.append(torch.cat([embedding[tokens[first:]], features[first - 1 : -1]], 1))
        y.append(features[first:])
    x, y = torch.cat(x).double(), torch.cat(y).double()
    weight = trainer.student.head.fc.weight.double()
    normal = x.T @ (x @ weight.T - y) + 1e-3 * (x**2).sum(0)[:, None] * weight.T
    assert normal.abs().max() < 1e-3


# Judging with the real sessions


def test_replay_equals_judging_the_features(target):
    head, corpus = random_head(4), random_corpus(target, 4)
    student = training.EagleStudent(head, target.model.get_input_embeddings())
    corpus = training_data.Corpus(corpus.tokens, corpus.features, corpus.lengths, corpus.starts.clamp(min=1))
    alpha, star = training.judge(student, target, corpus, 3, 1)[0]
    found = replay(eagle.Eagle(head, target), target, corpus, 3)
    torch.testing.assert_close(found.alpha, alpha, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(found.alpha_star, star, atol=1e-4, rtol=1e-4)
    assert found.seconds > 0


# Text


def test_prompts_of_four_kinds_and_none_held_out():
    prompts = training_prompts(2000, 3)
    assert prompts == training_prompts(2000, 3)
    assert prompts[:8] == training_prompts(8, 3)
    assert prompts != training_prompts(2000, 4)
    assert [sum(p.kind == kind for p in prompts) for kind in KINDS] == [500] * 4
    assert not {p.text for p in prompts} & {p.text for p in held_out_prompts()}
    assert not any("{" in p.text and p.kind != "code" for p in prompts)


def test_sampled_text_comes_with_the_features_of_a_plain_pass(target):
    tiny = LoadedModel(target.model, type("Tokenizer", (), {"eos_token_id": 7})(), "tiny")
    prompts = [[1, 2, 3, 4], [5], [6, 8]]
    corpus = training_data.sample(tiny, prompts, 9, 5, 2, None)
    assert len(corpus) == 3
    again = training_data.sample(tiny, prompts, 9, 5, 2, None)
    assert torch.equal(corpus.tokens, again.tokens)
    for prompt, (tokens, features, start) in zip(prompts, corpus.split(), strict=True):
        assert tokens[: len(prompt)].tolist() == prompt
        assert start == len(prompt) - 1
        torch.testing.assert_close(features, features_of(target, tokens.tolist()), atol=1e-4, rtol=1e-4)


def test_sampled_text_follows_the_target(target):
    from scipy.stats import chisquare

    tiny = LoadedModel(target.model, type("Tokenizer", (), {"eos_token_id": -1})(), "tiny")
    corpus = training_data.sample(tiny, [[1, 2, 3]] * 3000, 2, 0, 3000, None)
    seen = np.bincount([tokens[3] for tokens, _, _ in corpus.split()], minlength=V)
    with torch.no_grad():
        p = torch.softmax(target.model(torch.tensor([[1, 2, 3]])).logits[0, -1].double(), -1).numpy()
    assert chisquare(seen, 3000 * p / p.sum()).pvalue > 1e-9
    assert chisquare(seen, np.full(V, 3000 / V)).pvalue < 1e-9


def test_text_that_cannot_be_learned_from_is_refused(tmp_path):
    model = word_model(["a", "b", "c"], 3)
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "latin.txt").write_bytes(b"\xe9\xff")
    with pytest.raises(ValueError, match="no text to learn from"):
        training_data.read(model, [tmp_path / "empty.txt"], 16, 100, None)
    with pytest.raises(ValueError, match="not UTF-8"):
        training_data.read(model, [tmp_path / "latin.txt"], 16, 100, None)
    (tmp_path / "text-0000.safetensors").write_bytes(b"cut")
    with pytest.raises(ValueError, match="not training data"):
        Corpus.load(tmp_path / "text-0000.safetensors")


# The whole job


@pytest.fixture(scope="module")
def speaker():
    """A target with a tokenizer, three layers."""
    import transformers

    words = ["[UNK]", "the", "sea", "boat", "goes", "over", "and", "under", "moon", "sings", "a", "song"]
    named = word_model(words, len(words))
    named.tokenizer.pre_tokenizer = None
    named.tokenizer.backend_tokenizer.pre_tokenizer = __import__("tokenizers").pre_tokenizers.Whitespace()
    named.tokenizer.eos_token = "song"
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=len(words), hidden_size=16, intermediate_size=24, num_hidden_layers=3, num_attention_heads=2
    )
    model = transformers.LlamaForCausalLM(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.normal_(0, 0.3)
    return LoadedModel(model.eval().requires_grad_(False), named.tokenizer, "speaker")


@pytest.fixture
def small(monkeypatch):
    """The real job in miniature: few prompts, short texts, a fixed number of steps."""
    for name, value in (("CHUNK_PROMPTS", 6), ("NEW_TOKENS", 12), ("HELD_OUT_TOKENS", 6)):
        monkeypatch.setattr(training_data, name, value)
    monkeypatch.setattr(train_drafter, "MOST_PIECES", 2)
    monkeypatch.setattr(train_drafter, "SAVE_EVERY", 0.0)
    monkeypatch.setattr(train_drafter, "JUDGE_EVERY", 1)
    monkeypatch.setattr(train_drafter, "_affordable", lambda *args: 5)


def train(speaker, out, kind, data=("self",), **changes):
    settings = {"minutes": 1.0, "seed": 0, "layers": 1, "loss": "cross-entropy", "n": 2} | changes
    with Progress(disable=True) as progress:
        return train_drafter.run(
            speaker,
            train_drafter.Settings("speaker", kind, tuple(data), **settings),
            out,
            "mdsd train-drafter",
            progress,
        )


@pytest.mark.parametrize("kind", ["lens", "eagle", "layers"])
def test_the_job_writes_a_drafter_that_loads_and_its_card(speaker, small, tmp_path, kind):
    out = tmp_path / "drafter.safetensors"
    before = {name: tensor.clone() for name, tensor in speaker.model.state_dict().items()}
    card = train(speaker, out, kind)
    assert not any(parameter.requires_grad for parameter in speaker.model.parameters())
    assert all(torch.equal(tensor, before[name]) for name, tensor in speaker.model.state_dict().items())
    assert json.loads(out.with_suffix(".json").read_text()) == json.loads(json.dumps(card))
    assert set(card["held_out"]["depth 1"]) == {"mean", *KINDS}
    assert not out.with_suffix(".work").exists()
    drafter = make(f"{kind}:{out}", speaker)
    with Progress(disable=True):
        held = training_data.held_out(speaker, 0)
    found = replay(drafter, speaker, held, 2)
    of_kind = [found.alpha[[k == kind for k in [p.kind for p in held_out_prompts()]]].mean().item() for kind in KINDS]
    assert np.mean(of_kind) == pytest.approx(card["held_out"]["depth 1"]["mean"]["alpha"], abs=3e-3)  # float16 storage


def test_the_same_seed_gives_the_same_lens_bit_for_bit(speaker, small, tmp_path):
    for name in ("a", "b"):
        train(speaker, tmp_path / f"{name}.safetensors", "lens")
    assert (tmp_path / "a.safetensors").read_bytes() == (tmp_path / "b.safetensors").read_bytes()
    train(speaker, tmp_path / "c.safetensors", "lens", seed=1)
    assert (tmp_path / "a.safetensors").read_bytes() != (tmp_path / "c.safetensors").read_bytes()


def test_a_slower_machine_fits_the_same_lens(speaker, small, tmp_path, monkeypatch):
    for name, seconds in (("quick", 0.0), ("slow", 150.0)):
        monkeypatch.setattr(train_drafter.Clock, "seconds", seconds)
        card = train(speaker, tmp_path / f"{name}.safetensors", "lens", minutes=4.0)
        assert card["seconds"] == seconds
    assert (tmp_path / "quick.safetensors").read_bytes() == (tmp_path / "slow.safetensors").read_bytes()


def test_a_target_unlike_llama(speaker, small, tmp_path):
    """An EAGLE head needs nothing but hidden states, embedding and output layer; lens and layers say what they lack."""
    gpt2 = LoadedModel(tiny_model("gpt2", len(speaker.tokenizer), 0), speaker.tokenizer, "gpt2")
    assert train(gpt2, tmp_path / "eagle.safetensors", "eagle")["steps"] == 5
    assert make(f"eagle:{tmp_path / 'eagle.safetensors'}", gpt2).needs_features
    for kind, part in (("lens", "final norm"), ("layers", "no `layers`")):
        with pytest.raises(ValueError, match=part):
            train(gpt2, tmp_path / "refused.safetensors", kind)  # leaves nothing that stands in the next one's way


@pytest.mark.parametrize("kind", ["lens", "eagle", "layers"])
def test_a_target_in_16_bit(speaker, small, tmp_path, kind):
    """As on a GPU: the drafter is trained in float32, the target stays as it is and the drafter runs on it."""
    half = LoadedModel(copy.deepcopy(speaker.model).bfloat16(), speaker.tokenizer, "half")
    train(half, tmp_path / "drafter.safetensors", kind)
    assert {parameter.dtype for parameter in half.model.parameters()} == {torch.bfloat16}
    with Progress(disable=True):
        held = training_data.held_out(half, 0)
    assert (replay(make(f"{kind}:{tmp_path / 'drafter.safetensors'}", half), half, held, 2).alpha > 0).all()


def test_a_killed_job_ends_with_the_same_drafter(speaker, small, tmp_path, monkeypatch):
    train(speaker, tmp_path / "straight.safetensors", "eagle")
    advance, sample = training.Trainer.advance, training_data.sample

    def killed_while_training(trainer):
        if trainer.step == 3:
            raise KeyboardInterrupt
        return advance(trainer)

    def killed_while_sampling(*args):
        if (tmp_path / "killed.work" / "text-0000.safetensors").exists():
            raise KeyboardInterrupt
        return sample(*args)

    for owner, name, fault in (
        (training_data, "sample", killed_while_sampling),
        (training.Trainer, "advance", killed_while_training),
    ):
        monkeypatch.setattr(owner, name, fault)
        with pytest.raises(KeyboardInterrupt):
            train(speaker, tmp_path / "killed.safetensors", "eagle")
        assert not (tmp_path / "killed.safetensors").exists()
    monkeypatch.setattr(training_data, "sample", sample)
    monkeypatch.setattr(training.Trainer, "advance", advance)
    with pytest.raises(ValueError, match="another seed"):
        train(speaker, tmp_path / "killed.safetensors", "eagle", seed=9)
    train(speaker, tmp_path / "killed.safetensors", "eagle")
    assert (tmp_path / "killed.safetensors").read_bytes() == (tmp_path / "straight.safetensors").read_bytes()


def test_the_job_learns_from_files(speaker, small, tmp_path):
    (tmp_path / "text.txt").write_text("the boat goes over the sea and the moon sings under a sea " * 60)
    card = train(speaker, tmp_path / "drafter.safetensors", "lens", [str(tmp_path / "text.txt")])
    assert set(card["held_out"]["depth 1"]) == {"mean", "file"}
    (tmp_path / "text.txt").write_text("the boat")
    with pytest.raises(ValueError, match="only 2 tokens"):
        train(speaker, tmp_path / "other.safetensors", "lens", [str(tmp_path / "text.txt")])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "medusa"}, "--kind 'medusa' is not one of lens, eagle, layers"),
        ({"loss": "mse"}, "--loss 'mse' is not one of"),
        ({"minutes": 0.0}, "--minutes must be a positive number"),
        ({"n": 0}, "--n must be at least 1"),
        ({"data": ["absent.txt"]}, "absent.txt: no such file"),
    ],
)
def test_the_command_refuses_bad_arguments(tmp_path, changes, message):
    with pytest.raises((ValueError, OSError), match=message):
        command(**({"out": tmp_path / "x.safetensors"} | changes))
    with pytest.raises(ValueError, match=r"must end in \.safetensors"):
        command(out=tmp_path / "x.bin")


def test_trained_layers_and_lens_leave_the_target_alone(speaker):
    before = {name: tensor.clone() for name, tensor in speaker.model.state_dict().items()}
    copied = lens.own_copy(lens.cut(speaker.model, 2))
    with torch.no_grad():
        for parameter in copied.base_model.layers.parameters():
            parameter.zero_()
    lens.with_lens(speaker.model, 1, torch.zeros(16, 17))
    assert all(torch.equal(tensor, before[name]) for name, tensor in speaker.model.state_dict().items())

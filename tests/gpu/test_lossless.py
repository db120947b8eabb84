"""Decoded text is distributed as the target's: exact enumeration of three tokens against many decoded texts."""

import itertools
import json

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from gpu import decoding, verification
from gpu.decoding import decode_batch
from gpu.drafters.causal_lm import CausalLM
from gpu.method import Method
from gpu.samplers import SAMPLERS, Sampler
from mdsd_theory import verifiers
from tests.gpu.tiny_models import loaded, tiny_model

P_VALUE = 1e-9  # false alarm rate of each test here: all of them together stay far below 1e-6
VOCABULARY, LENGTH, TEXTS = 8, 3, 4000
PROMPT = [1, 5, 2]

UNEVEN = [[0], [1], [2], [0, 0], [0, 1], [1, 0], [0, 0, 0]]
TREES = {"chain": "chain:3", "kary": "kary:2x3", "uneven": "uneven.json"}


@pytest.fixture(scope="module")
def models():
    target, drafter = (tiny_model("llama", VOCABULARY, seed, scale=1.5) for seed in (0, 1))
    return loaded(target), CausalLM(drafter)


def target_law(target, sampling):
    """Probability of every text of LENGTH tokens, (V ** LENGTH,), by plain forwards."""
    texts = torch.tensor(list(itertools.product(range(VOCABULARY), repeat=LENGTH)))
    inputs = torch.cat([torch.tensor(PROMPT).expand(len(texts), -1), texts], dim=1)
    with torch.no_grad():
        p = sampling(target.model(input_ids=inputs).logits[:, len(PROMPT) - 1 : -1].double())
    return p.gather(2, texts[..., None]).squeeze(-1).prod(1).numpy()


def p_value(target, drafter, method, texts=TEXTS):
    records = decode_batch(
        target, drafter, [PROMPT] * texts, method, max_tokens=LENGTH + 1, eos=[], generators=range(texts)
    )
    powers = VOCABULARY ** np.arange(LENGTH)[::-1]
    seen = np.bincount([np.dot(record.tokens[:LENGTH], powers) for record in records], minlength=VOCABULARY**LENGTH)
    expected = texts * target_law(target, method.sampling)
    assert not seen[expected == 0].any()
    rare = expected < 5  # one cell for all of them, or none where they are impossible
    seen, expected = (np.append(x[~rare], x[rare].sum()) for x in (seen, expected))
    return chisquare(seen[expected > 0], expected[expected > 0] * texts / expected.sum()).pvalue


def every_pair():
    """All samplers with all verifiers that may serve them, on every tree that both allow."""
    samplers = [Sampler(name, top) for name in SAMPLERS for top in ((1, 2) if name == "top-then-sample" else (1,))]
    for sampler, verifier, tree in itertools.product(samplers, verification.VERIFIERS, TREES):
        if sampler.name == "spechub" and tree != "kary":
            continue
        try:
            n = {"chain": [1], "kary": [2], "uneven": [3, 2, 1]}[tree]
            for drafts in n:
                verifiers.make(verifier).check(np.full(8, 1 / 8), sampler.theory(np.full(8, 1 / 8), drafts))
        except ValueError:
            continue
        marks = () if tree == "kary" else pytest.mark.slow  # together they take minutes
        yield pytest.param(sampler, verifier, tree, id=f"{sampler.name}:{sampler.top}-{verifier}-{tree}", marks=marks)


def make_method(tmp_path, sampler, verifier, tree, **sampling):
    (tmp_path / "uneven.json").write_text(json.dumps(UNEVEN))
    spec = str(tmp_path / "uneven.json") if tree == "uneven" else TREES[tree]
    return Method.make(spec, sampler, verifier, **sampling)


@pytest.mark.parametrize(("sampler", "verifier", "tree"), list(every_pair()))
def test_every_method_is_lossless(models, tmp_path, sampler, verifier, tree):
    method = make_method(tmp_path, sampler, verifier, tree)
    assert p_value(*models, method) > P_VALUE


@pytest.mark.parametrize(("sampler", "verifier"), [("with-replacement", "canonical"), ("spechub", "transport")])
def test_verifiers_that_run_on_the_host_are_lossless(models, tmp_path, sampler, verifier):
    """Fewer texts: each node is a linear program. That their laws are right is tested where they are at home."""
    assert p_value(*models, make_method(tmp_path, Sampler(sampler), verifier, "kary"), 150) > P_VALUE


@pytest.mark.parametrize(
    "sampling",
    [
        {"temperature": 0.6, "draft_temperature": 1.5},
        {"temperature": 1.2, "draft_temperature": 0.0},
        {"top_k": 5, "draft_top_k": 3},
        {"top_p": 0.7, "draft_top_p": 0.95},
    ],
)
@pytest.mark.parametrize(("sampler", "verifier"), [("with-replacement", "rrs"), ("without-replacement", "rrs"),
                                                   ("with-replacement", "kseq"), ("greedy", "greedy")])  # fmt: skip
def test_target_and_draft_may_be_sampled_differently(models, tmp_path, sampler, verifier, sampling):
    assert p_value(*models, make_method(tmp_path, Sampler(sampler), verifier, "kary", **sampling)) > P_VALUE


def no_residual(p, drafts, u):
    """Planted fault: after a rejection the token comes from p, not from the residual."""
    law = verification.VERIFIERS["rrs"](p, drafts, u)
    accepted = (law.gather(1, drafts.tokens) * drafts.drawn).sum(1, keepdim=True).clamp(max=1)
    kept = torch.zeros_like(law).scatter_reduce_(1, drafts.tokens, law.gather(1, drafts.tokens), "amax")
    return kept + (1 - accepted) * p


def stale_residual(p, drafts, u):
    """Planted fault: a repeated draft is skipped, the residual not updated for it."""
    rows = torch.arange(drafts.tokens.shape[1])
    first = decoding.first_occurrence(drafts.tokens)
    order = torch.where(first, rows, rows + 100).argsort(1)
    fewer = drafts._replace(tokens=drafts.tokens.gather(1, order), count=torch.minimum(drafts.count, first.sum(1)))
    return verification.VERIFIERS["rrs"](p, fewer, u)


FAULTS = {
    "i.i.d. rule on drafts without replacement": ("without-replacement", verification.recursive_rejection),
    "kseq on drafts without replacement": ("without-replacement", verification.kseq),
    "recursive rule without replacement on i.i.d. drafts": (
        "with-replacement",
        verification.recursive_rejection_without,
    ),
    "residual forgotten": ("with-replacement", no_residual),
    "repeated draft skipped": ("with-replacement", stale_residual),
    "sampled q for a point mass": ("deterministic", verification.recursive_rejection),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_caught(models, tmp_path, monkeypatch, fault):
    sampler, law = FAULTS[fault]
    method = make_method(tmp_path, Sampler(sampler), "naive", "uneven" if law is stale_residual else "kary")
    monkeypatch.setattr(Method, "law", lambda self: law)
    assert p_value(*models, method) < P_VALUE


def test_wrong_positions_or_mask_are_caught(models, tmp_path, monkeypatch):
    """Planted fault: siblings see each other."""
    method = make_method(tmp_path, Sampler("without-replacement"), "rrs", "kary")
    layout = decoding.Layout

    def leaky(tree, device):
        built = layout(tree, device)
        built.ancestors = torch.ones_like(built.ancestors).tril()
        return built

    monkeypatch.setattr(decoding, "Layout", leaky)
    assert p_value(*models, method) < P_VALUE


def test_verifying_with_another_temperature_is_caught(models, tmp_path, monkeypatch):
    """Planted fault: q at the wrong temperature in the test, and the target's temperature forgotten."""
    method = make_method(tmp_path, Sampler("with-replacement"), "rrs", "kary", temperature=0.5)
    target, drafter = models
    verify = decoding.verify

    def cold(law, drafted, slots, logits, sampling, uniforms, eos):
        return verify(law, drafted, slots, logits, decoding.Sampling(1.0), uniforms, eos)

    monkeypatch.setattr(decoding, "verify", cold)
    assert p_value(target, drafter, method) < P_VALUE

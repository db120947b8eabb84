"""Decoded text is distributed as the target's: exact enumeration of three tokens against many decoded texts."""

import pytest
import torch

from gpu import decoding, verification
from gpu.drafters.causal_lm import CausalLM
from gpu.method import Method
from gpu.samplers import Sampler
from tests.gpu.decoded_texts import P_VALUE, VOCABULARY, every_pair, make_method, p_value
from tests.gpu.tiny_models import loaded, tiny_model


@pytest.fixture(scope="module")
def models():
    target, drafter = (tiny_model("llama", VOCABULARY, seed, scale=1.5) for seed in (0, 1))
    return loaded(target), CausalLM(drafter)


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

"""Decoding on a device that is not the CPU gives the CPU's tokens; run by test_device.py in a process of its own."""

import dataclasses
import json

import pytest
import torch

from gpu import decoding, self_check, verification
from gpu.bounds import optimal_acceptance
from gpu.decoding import decode_batch
from gpu.drafters.causal_lm import CausalLM
from gpu.method import Method
from gpu.samplers import Sampler
from gpu.trees import kary
from tests.gpu.decoded_texts import every_pair, make_method
from tests.gpu.elsewhere import DEVICE, Elsewhere, elsewhere
from tests.gpu.tiny_drafters import KINDS, make_all
from tests.gpu.tiny_models import CONFIGS, loaded, tiny_model

PROMPTS = [[1, 5, 2], [3, 4, 5, 6, 7, 2]]


def tokens(target, drafter, method):
    records = decode_batch(target, drafter, PROMPTS, method, max_tokens=10, eos=[])
    return [record.tokens for record in records]


def models(architecture, attention=None):
    return [tiny_model(architecture, 8, seed, attention, scale=1.5) for seed in (0, 1)]


@pytest.mark.parametrize("attention", ["eager", None])
@pytest.mark.parametrize("architecture", CONFIGS)
def test_every_architecture(architecture, attention):
    method = Method.parse("kary:2x3 without-replacement rrs")
    target, drafter = models(architecture, attention)
    expected = tokens(loaded(target), CausalLM(drafter), method)
    with elsewhere():
        target, drafter = target.to(DEVICE), drafter.to(DEVICE)
        assert isinstance(next(target.parameters()), Elsewhere)
        assert tokens(loaded(target), CausalLM(drafter), method) == expected


@pytest.mark.parametrize("on_the_cpu", ["target", "drafter"])
def test_target_and_drafter_on_different_devices(on_the_cpu):
    method = Method.parse("kary:2x3 with-replacement rrs")
    target, drafter = models("llama")
    expected = tokens(loaded(target), CausalLM(drafter), method)
    with elsewhere():
        moved = target.to(DEVICE) if on_the_cpu == "drafter" else drafter.to(DEVICE)
        assert isinstance(next(moved.parameters()), Elsewhere)
        assert tokens(loaded(target), CausalLM(drafter), method) == expected


@pytest.mark.parametrize(("sampler", "verifier", "tree"), [pair.values for pair in every_pair() if not pair.marks])
def test_every_method_and_its_verification_never_waits(tmp_path, monkeypatch, sampler, verifier, tree):
    method = make_method(tmp_path, sampler, verifier, tree)
    target, drafter = models("llama")
    expected = tokens(loaded(target), CausalLM(drafter), method)
    verified = []

    def watched(*arguments):
        before = len(waits)
        walk = decoding_verify(*arguments)
        # the slots of a tree are carried over once and then kept
        verified.append([wait for wait in waits[before:] if "lru_cache" not in wait])
        return walk

    decoding_verify = decoding.verify
    monkeypatch.setattr(decoding, "verify", watched)
    with elsewhere() as waits:
        assert tokens(loaded(target.to(DEVICE)), CausalLM(drafter.to(DEVICE)), method) == expected
    assert len(verified) > 1
    assert verified == [[]] * len(verified)


@pytest.mark.parametrize("sampler", ["with-replacement", "spechub"])
def test_a_verifier_of_the_host(sampler):
    method = Method.make("kary:2x2", Sampler(sampler), "canonical" if sampler == "with-replacement" else "transport")
    target, drafter = models("llama")
    expected = tokens(loaded(target), CausalLM(drafter), method)
    with elsewhere():
        assert tokens(loaded(target.to(DEVICE)), CausalLM(drafter.to(DEVICE)), method) == expected


def test_waits_do_not_grow_with_the_nodes():
    """A step waits for each level of the tree and each pass of a model, not for each node."""
    counts = []
    for spec in ("kary:2x2 without-replacement rrs", "kary:6x2 without-replacement rrs"):
        target, drafter = models("llama")
        with elsewhere() as waits:
            target, drafter = loaded(target.to(DEVICE)), CausalLM(drafter.to(DEVICE))
            steps = decode_batch(target, drafter, PROMPTS[:1], Method.parse(spec), max_tokens=20, eos=[])[0]
            first = len(waits)
            again = decode_batch(target, drafter, PROMPTS[:1], Method.parse(spec), max_tokens=20, eos=[])[0]
            counts.append((len(waits) - first) / again.target_passes)
        assert again.tokens == steps.tokens
    assert max(counts) < 40
    assert counts[1] < counts[0] + 5


@pytest.mark.parametrize("kind", KINDS)
def test_every_drafter(kind):
    method = Method.parse("kary:2x2 with-replacement rrs")
    target, _ = models("llama")
    expected = tokens(loaded(target), make_all(loaded(target))[kind], method)
    with elsewhere():
        moved = loaded(target.to(DEVICE))
        assert tokens(moved, make_all(moved)[kind], method) == expected


@pytest.mark.parametrize(("verifier", "spec"), self_check.VERIFIED)
def test_laws_and_bounds_never_wait(verifier, spec):
    generator = torch.Generator().manual_seed(0)
    p, q = (torch.randn(5, 300, generator=generator).mul(3).softmax(-1) for _ in range(2))
    u = torch.rand(5, 3, generator=generator, dtype=torch.float64)
    sampler = Sampler.parse(spec)
    law = verification.make(verifier, sampler, kary(3, 1))
    expected = law(p, sampler(q, 3, u), u[:, 0]), optimal_acceptance(p, q, 3, 1)
    with elsewhere() as waits:
        p, q, u = p.to(DEVICE), q.to(DEVICE), u.to(DEVICE)
        waits.clear()
        found = law(p, sampler(q, 3, u), u[:, 0]), optimal_acceptance(p, q, 3, 1)
        assert waits == []
    for there, here in zip(found, expected, strict=True):
        torch.testing.assert_close(there.held, here, rtol=0, atol=0)


def test_the_self_check_runs_there(tmp_path):
    size = dataclasses.replace(self_check.SMALL, texts=100)
    with elsewhere():
        self_check.copy_bandwidth(torch.device(DEVICE), size)
        figures = [
            part(torch.device(DEVICE), size, self_check.TimeLimit())
            for part in (self_check.lossless, self_check.throughput, self_check.speed)
        ]
    assert all(json.dumps(part) for part in figures)
    assert all(figure["p_value"] > self_check.P_VALUE for figure in figures[0][:-1])


def test_strays_are_found():
    """What the pretence is for: it must refuse what CUDA refuses, and see the host wait."""
    with elsewhere() as waits:
        there = torch.zeros(3, device=DEVICE)
        for wrong in (
            lambda: there + torch.ones(3),
            lambda: there[torch.tensor([0])],
            lambda: torch.ones(3)[there.long()],
        ):
            with pytest.raises(RuntimeError, match="tensors of the CPU"):
                wrong()
        with pytest.raises(TypeError, match="copy it to the host"):
            there.numpy()
        assert waits == []
        for look in (there.tolist, there.cpu, lambda: there[0].item(), lambda: there[there > 0], lambda: there[[0, 1]]):
            waits.clear()
            look()
            assert len(waits) == 1

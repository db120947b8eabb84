"""The GPU self-check's own code, on the CPU at tiny sizes; its figures are for a GPU."""

import json

import pytest
import torch

from gpu import self_check


def test_runs_and_tells_everything(tmp_path):
    out = tmp_path / "figures.json"
    self_check.main(out=out, device="cpu", small=True)
    figures = json.loads(out.read_text())
    assert figures["complete"]
    assert figures["left_out"] == []
    assert figures["copy_bytes_per_second"] > 0
    assert all(figure["positions_per_second"] > 0 for figure in figures["throughput"])
    assert {figure["what"].split(",")[0].split(" on ")[0] for figure in figures["throughput"]} >= {
        "alpha*", "naive", "rrs", "kseq", "greedy", "convex-minorant",
    }  # fmt: skip
    plain = [figure for figure in figures["speed"] if figure["method"] == "plain"]
    assert all(figure["block_efficiency"] == 1 and figure["speedup"] == 1 for figure in plain)
    assert all(sum(figure["split"].values()) == pytest.approx(1) for figure in figures["speed"])
    assert all(figure["p_value"] > self_check.P_VALUE for figure in figures["lossless"][:-1])


def test_what_would_start_too_late_is_left_out_and_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(self_check, "LAST_START", 0.0)
    out = tmp_path / "figures.json"
    self_check.main(out=out, device="cpu", small=True)
    figures = json.loads(out.read_text())
    assert figures["complete"]
    assert figures["lossless"] == figures["throughput"] == figures["speed"] == []
    size, parts = self_check.SMALL, ("losslessness of ", "drawing ", "alpha*, ", "noise 0.5, batch 1")
    assert all(any(part in name for name in figures["left_out"]) for part in parts)
    speeds = [name for name in figures["left_out"] if ", noise " in name]
    assert len(speeds) == 2 * len(size.batches) * len(self_check.SPEED_METHODS)
    printed = " ".join(capsys.readouterr().out.split())
    assert all(f"after 0 s: {name}" in printed for name in figures["left_out"])


def test_more_noise_is_less_acceptance():
    figures = self_check.speed(torch.device("cpu"), self_check.SMALL, self_check.TimeLimit(), noises=(0.1, 3.0))
    rates = {f["drafter"]: f["acceptance"] for f in figures if f["method"].startswith("with-replacement")}
    assert rates["table with noise 0.1"] > 0.8 > 0.5 > rates["table with noise 3.0"]


@pytest.mark.slow
def test_losslessness_at_full_size():
    """Six tests at level 1e-9; the planted fault among them."""
    figures = self_check.lossless(torch.device("cpu"), self_check.FULL, self_check.TimeLimit())
    assert all(figure["as_it_should"] for figure in figures)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_losslessness_on_the_gpu():
    figures = self_check.lossless(torch.device("cuda"), self_check.FULL, self_check.TimeLimit())
    assert all(figure["as_it_should"] for figure in figures)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_gpu_laws_are_the_cpus():
    from gpu.samplers import Sampler
    from gpu.trees import kary
    from gpu.verification import make

    generator = torch.Generator().manual_seed(0)
    p, q = (torch.randn(5, 3000, generator=generator).mul(3).double().softmax(-1) for _ in range(2))
    u = torch.rand(5, 3, generator=generator, dtype=torch.float64)
    for verifier, spec in self_check.VERIFIED:
        sampler = Sampler.parse(spec)
        law = make(verifier, sampler, kary(3, 1))
        here = law(p, sampler(q, 3, u), u[:, 0])
        there = law(p.cuda(), sampler(q.cuda(), 3, u.cuda()), u[:, 0].cuda())
        assert (there.cpu() - here).abs().max() < 1e-9

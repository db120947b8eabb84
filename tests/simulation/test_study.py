"""Studies: right numbers, the same whoever computes them, resumed after a kill, refused when they cannot be."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import simulation.study
from mdsd_theory import drafts, optimal_acceptance, probabilities, verifiers
from simulation.results import Results
from simulation.study import Study, measure
from simulation.traces import Trace, TraceWriter

ROOT = Path(__file__).parents[2]
SMALL = str(ROOT / "tests" / "data" / "trace_small")
GRID = {
    "sources": ["synthetic:zipf,V=200,entropy=2,distance=0.4,positions=40"],
    "samplers": ["with-replacement", "without-replacement", "greedy"],
    "verifiers": ["rrs", "kseq", "greedy", "naive"],
    "n": [1, 3],
    "temperatures": [0.0, 1.0],
    "skip_impossible": True,
    "draws": 16,
}


def cell_bytes(folder):
    return {path.name: path.read_bytes() for path in sorted((folder / "cells").iterdir())}


def test_rates_and_bounds_are_those_of_the_theory_layer():
    study = Study.from_dict({**GRID, "sources": [SMALL], "temperatures": [0.7], "n": [3], "top_k": [None, 50]})
    results = study.run()
    trace = Trace(SMALL)
    exact = [row for row in results.rows if row["exact"]]
    assert {(row["sampler"], row["verifier"]) for row in exact} >= {
        ("with-replacement", "rrs"),
        ("with-replacement", "kseq"),
        ("greedy", "greedy"),
    }
    for row in results.rows:
        rates, optima = [], []
        for i in range(12):
            p, q = (probabilities(x, temperature=0.7, top_k=row["top_k"]) for x in trace.logits(i))
            draft = drafts.make(row["sampler"], q, n=3)
            optima.append(optimal_acceptance(p, draft).rate)
            if row["exact"]:
                rates.append(verifiers.make(row["verifier"]).acceptance_rate(p, draft))
        assert row["optimum"] == pytest.approx(np.mean(optima), abs=1e-12)
        if row["exact"]:
            assert row["rate"] == pytest.approx(np.mean(rates), abs=1e-12)
            assert row["gap"] == pytest.approx(np.mean(optima) - np.mean(rates), abs=1e-12)
        assert row["rate_low"] <= row["rate"] <= row["rate_high"]
        assert (row["positions"], row["prompts"]) == (12, 4)


def test_no_lossless_verifier_is_flagged():
    assert Study.from_dict(GRID).run().flagged == []


def test_a_planted_wrong_verifier_is_flagged(monkeypatch):
    class Eager:
        """Keeps the first draft always: the draft's distribution, not the target's."""

        def check(self, p, draft):
            pass

        def prepare(self, p, draft):
            return None

        def closed_form_rate(self, p, draft):
            return None

        def acceptance_rate(self, p, draft):
            return 1.0

        def acceptance(self, p, draft, tokens, state=None):
            return 1.0

    right = verifiers.make
    monkeypatch.setattr(verifiers, "names", lambda: (*verifiers.NAMES, "eager"))
    monkeypatch.setattr(verifiers, "make", lambda name: Eager() if name == "eager" else right(name))
    study = Study.from_dict({**GRID, "verifiers": ["rrs", "eager"], "temperatures": [1.0]})
    assert {row["verifier"] for row in study.run().flagged} == {"eager"}


def test_results_are_ready_for_tables_of_ones_own():
    results = Study.from_dict(GRID).run()
    first = results.rows[0]
    assert all(value is None or isinstance(value, (str, int, float)) for value in first.values())
    positions = list(results.positions())
    assert len(positions) == sum(row["positions"] for row in results.rows)
    mine = [one["rate"] for one in positions if all(one[k] == first[k] for k in ("sampler", "verifier", "n"))]
    assert np.mean(mine[: first["positions"]]) == pytest.approx(first["rate"])
    one, other = (
        next(row for row in results.rows if (row["verifier"], row["n"], row["temperature"]) == (name, 3, 1.0))
        for name in ("rrs", "kseq")
    )
    difference = results.difference(one, other)
    assert difference.mean == pytest.approx(one["rate"] - other["rate"])
    assert difference.high - difference.low < one["rate_high"] - one["rate_low"]


@pytest.mark.parametrize("vocabulary", ["small", "real"])
def test_worker_processes_change_no_bit(tmp_path, vocabulary):
    settings = GRID if vocabulary == "small" else {**GRID, "sources": [SMALL], "temperatures": [1.0], "n": [3]}
    Study.from_dict(settings).run(tmp_path / "one")
    Study.from_dict(settings).run(tmp_path / "two", workers=2)
    assert cell_bytes(tmp_path / "one") == cell_bytes(tmp_path / "two")
    assert Results.load(tmp_path / "one").rows == Results.load(tmp_path / "two").rows


def test_a_different_seed_changes_monte_carlo_and_nothing_exact():
    one, other = (Study.from_dict({**GRID, "seed": seed}).run().rows for seed in (0, 1))
    for a, b in zip(one, other, strict=True):
        assert (a["rate"] == b["rate"]) or not a["exact"]
    assert any(a["rate"] != b["rate"] for a, b in zip(one, other, strict=True))


def test_more_verifiers_or_temperatures_do_not_change_a_cell():
    few = Study.from_dict({**GRID, "verifiers": ["rrs"], "temperatures": [1.0]}).run()
    many = Study.from_dict(GRID).run()
    for row in few.rows:
        [same] = [r for r in many.rows if all(r[k] == row[k] for k in ("sampler", "verifier", "n", "temperature"))]
        assert same["rate"] == row["rate"]


SLOW_STUDY = {
    **GRID,
    "sources": ["synthetic:dirichlet,V=5000,entropy=4,distance=0.4,positions=48"],
    "verifiers": ["rrs"],
    "n": [2, 3, 4],
    "temperatures": [0.5, 1.0, 1.5],
    "draws": 64,
}
RUN = "import json, sys; from simulation.study import Study; Study.from_dict(json.loads(sys.argv[1])).run(sys.argv[2])"


def test_a_killed_study_goes_on_where_it_stopped(tmp_path, monkeypatch):
    Study.from_dict(SLOW_STUDY).run(tmp_path / "whole")
    expected = cell_bytes(tmp_path / "whole")

    process = subprocess.Popen([sys.executable, "-c", RUN, json.dumps(SLOW_STUDY), str(tmp_path / "cut")], cwd=ROOT)
    deadline = time.monotonic() + 120
    while len(list((tmp_path / "cut").glob("cells/*.json"))) < 3:
        assert process.poll() is None, "the study ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    finished = {path: path.stat().st_mtime_ns for path in (tmp_path / "cut").glob("cells/*.json")}
    assert 3 <= len(finished) < len(expected), "killed too late"
    with pytest.raises(ValueError, match=r"not finished \(\d+ of 18 cells are missing\)"):
        Results.load(tmp_path / "cut")

    measured = []
    monkeypatch.setattr(simulation.study, "measure", lambda task: measured.append(task.cell) or measure(task))
    Study.from_dict(SLOW_STUDY).run(tmp_path / "cut")
    assert len(set(measured)) == len(expected) - len(finished)
    assert all(path.stat().st_mtime_ns == when for path, when in finished.items())
    assert cell_bytes(tmp_path / "cut") == expected
    assert Results.load(tmp_path / "cut").rows == Results.load(tmp_path / "whole").rows


def test_a_dask_worker_that_is_killed_changes_nothing(tmp_path):
    from distributed import Client, LocalCluster

    Study.from_dict(SLOW_STUDY).run(tmp_path / "here")
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=50
        ) as cluster,
        Client(cluster) as client,
    ):
        victims = client.run(os.getpid)
        assert len(set(victims.values())) == 2
        killed = []

        def kill_one(done, total):
            if not killed and done >= total // 4:
                killed.append(done)
                os.kill(next(iter(victims.values())), signal.SIGKILL)

        Study.from_dict(SLOW_STUDY).run(tmp_path / "dask", dask=cluster.scheduler_address, progress=kill_one)
    assert killed
    assert cell_bytes(tmp_path / "here") == cell_bytes(tmp_path / "dask")


@pytest.mark.parametrize(
    "change", [{"draws": 17}, {"temperatures": [1.0]}, {"seed": 1}, {"verifiers": ["rrs"]}, {"confidence": 0.9}]
)
def test_a_folder_of_another_study_is_refused(tmp_path, change):
    Study.from_dict(GRID).run(tmp_path / "out")
    before = cell_bytes(tmp_path / "out")
    with pytest.raises(ValueError, match=rf"other settings \(.*{next(iter(change))}"):
        Study.from_dict({**GRID, **change}).run(tmp_path / "out")
    assert cell_bytes(tmp_path / "out") == before


def test_a_folder_whose_trace_was_recorded_anew_is_refused(tmp_path):
    def record(value):
        with TraceWriter(
            tmp_path / f"trace{value}", target_model="a", draft_model="b", prompts=["x"], temperature=1.0
        ) as writer:
            writer.append(np.full(9, value, np.float16), np.zeros(9, np.float16), prompt=0, position=0)

    record(1)
    record(2)
    (tmp_path / "trace1").rename(tmp_path / "trace")
    settings = {**GRID, "sources": [str(tmp_path / "trace")]}
    Study.from_dict(settings).run(tmp_path / "out")
    (tmp_path / "trace").rename(tmp_path / "old")
    (tmp_path / "trace2").rename(tmp_path / "trace")
    with pytest.raises(ValueError, match=r"other settings \(fingerprints\)"):
        Study.from_dict(settings).run(tmp_path / "out")


def test_a_folder_of_someone_elses_is_refused(tmp_path):
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(ValueError, match="holds no study"):
        Study.from_dict(GRID).run(tmp_path)


def test_impossible_pairs_are_listed_before_any_work(monkeypatch, tmp_path):
    monkeypatch.setattr(simulation.study, "measure", None)
    settings = {**GRID, "n": [3], "skip_impossible": False}
    with pytest.raises(ValueError, match="impossible pairs") as caught:
        Study.from_dict(settings).run(tmp_path / "out")
    listed = str(caught.value).splitlines()
    pairs = {line.split(",")[0].strip() for line in listed if " x " in line}
    assert pairs == {
        "without-replacement x kseq",
        "without-replacement x greedy",
        "with-replacement x greedy",
        "greedy x rrs",
        "greedy x kseq",
    }
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"samplers": ["beam"]}, r"samplers: found 'beam'; allowed are with-replacement"),
        ({"verifiers": ["rrs", "psychic"]}, r"verifiers: found 'psychic'; allowed are"),
        ({"samplers": ["top-then-sample:x"]}, r"what follows the colon"),
        ({"n": [0]}, r"n: found 0"),
        ({"n": [1.5]}, r"n: found 1.5"),
        ({"n": []}, r"n is empty"),
        ({"n": [2, 2]}, r"n has a value twice"),
        ({"temperatures": [-0.1]}, r"temperatures: found -0.1"),
        ({"temperatures": [float("nan")]}, r"temperatures: found nan"),
        ({"temperatures": ["hot"]}, r"temperatures: found 'hot'"),
        ({"top_p": [0]}, r"top_p: found 0"),
        ({"top_p": [1.1]}, r"top_p: found 1.1"),
        ({"top_k": [0]}, r"top_k: found 0"),
        ({"positions": 0}, r"positions: found 0"),
        ({"draws": 1}, r"draws: found 1"),
        ({"confidence": 1}, r"confidence: found 1"),
        ({"seed": -1}, r"seed: found -1"),
        ({"verifier": ["rrs"]}, r"unknown settings verifier; known are sources"),
        ({"sources": []}, r"sources is empty"),
        ({"sources": {"a": 1}, "n": None}, r"n: found None"),
    ],
)
def test_wrong_settings_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        Study.from_dict({**GRID, **change})


def test_a_missing_trace_is_named():
    with pytest.raises(ValueError, match="nowhere is not a trace folder"):
        Study.from_dict({**GRID, "sources": ["nowhere"]}).run()


def test_vocabularies_of_different_size_are_padded_on_request(tmp_path):
    with TraceWriter(
        tmp_path / "t", target_model="a", draft_model="b", prompts=["x"], temperature=1.0, dtype="float32"
    ) as writer:
        p, q = np.array([0.5, 0.25, 0.125, 0.125]), np.array([0.5, 0.25, 0.25])
        writer.append(np.log(p).astype(np.float32), np.log(q).astype(np.float32), prompt=0, position=0)
    settings = {**GRID, "sources": [str(tmp_path / "t")], "temperatures": [1.0], "samplers": ["with-replacement"]}
    with pytest.raises(ValueError, match="--pad-vocab"):
        Study.from_dict(settings).run()
    rows = Study.from_dict({**settings, "pad_vocab": True}).run().rows
    assert [row["optimum"] for row in rows] == pytest.approx([7 / 8] * len(rows), abs=1e-7)  # logits are float32


@pytest.mark.parametrize("suffix", [".yaml", ".toml", ".json"])
def test_a_study_file_gives_the_same_study(tmp_path, suffix):
    settings = {name: value for name, value in GRID.items() if name != "top_p"}
    if suffix == ".toml":
        text = "\n".join(f"{name} = {json.dumps(value)}" for name, value in settings.items())
    else:
        text = json.dumps(settings)  # JSON is YAML
    (tmp_path / f"study{suffix}").write_text(text)
    assert Study.from_file(tmp_path / f"study{suffix}") == Study.from_dict(GRID)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.yaml", "n: [1", r"study file .*a\.yaml"),
        ("a.toml", "n = ", r"study file .*a\.toml"),
        ("a.yaml", "- 1", r"holds a list"),
        ("a.txt", "n: 1", r"end in \.yaml"),
        ("a.yaml", "n: 1", r"sources is missing"),
    ],
)
def test_an_unreadable_study_file_is_named(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=message):
        Study.from_file(tmp_path / name)


def test_positions_are_spread_evenly():
    results = Study.from_dict({**GRID, "sources": [SMALL], "positions": 4, "n": [1], "temperatures": [0]}).run()
    assert results.cells[0]["row"] == [0, 4, 7, 11]
    assert results.rows[0]["prompts"] == 4

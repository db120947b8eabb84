"""`mdsd study` and `mdsd plot`: what a person types and gets."""

import csv
import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from mdsd_theory import verifiers
from simulation import commands, tables
from simulation.results import Results
from simulation.traces import TraceWriter

ROOT = Path(__file__).parents[2]
SMALL = str(ROOT / "tests" / "data" / "trace_small")
ZIPF = "synthetic:zipf,V=64,entropy=2,distance=0.4,positions=12"
GRID = ["--samplers", "with-replacement,greedy", "--verifiers", "rrs,greedy", "--n", "1,3", "--skip-impossible"]
PLOTS = ("temperature", "gap", "n", "gap-histogram")


@pytest.fixture
def mdsd():
    app = typer.Typer()
    app.command("study")(commands.study)
    app.command("plot")(commands.plot)
    return lambda *arguments: CliRunner().invoke(app, [str(a) for a in arguments], env={"COLUMNS": "80"})


def test_a_study_prints_and_writes_everything(mdsd, tmp_path):
    out = tmp_path / "out"
    done = mdsd("study", ZIPF, *GRID, "--temperatures", "0.5,1", "--top-k", "none,20", "--draws", 8, "--out", out)
    assert done.exit_code == 0, done.output
    assert max(map(len, done.output.splitlines())) <= 80
    rows = Results.load(out).rows
    assert len(rows) == 2 * 2 * 6  # temperatures x top-k x (both verifiers at n = 1, one at n = 3, for each sampler)

    with (out / "table.csv").open() as file:
        read = list(csv.DictReader(file))
    assert [float(row["rate"]) for row in read] == [row["rate"] for row in rows]  # full precision
    assert {row["top_k"] for row in read} == {"", "20"}
    content = json.loads((out / "table.json").read_text())
    assert [row["gap"] for row in content["rows"]] == [row["gap"] for row in rows]
    assert content["settings"]["study"]["draws"] == 8
    text = (out / "table.md").read_text()
    assert text.count("\n| with-replacement | rrs |") == 8
    latex = (out / "table.tex").read_text()
    assert latex.count(r"\begin{tabular}") == latex.count(r"\bottomrule") == 1
    widths = {line.count(" & ") for line in latex.splitlines() if line.endswith(r"\\")}
    assert len(widths) == 1
    for name in PLOTS:
        for number in (0, 1):  # a picture for each truncation
            assert (out / "plots" / f"{name}-{number}.png").read_bytes().startswith(b"\x89PNG")
            ET.parse(out / "plots" / f"{name}-{number}.svg")
    assert not list(out.rglob("*.part"))


def test_plot_makes_the_same_files_again(mdsd, tmp_path):
    out = tmp_path / "out"
    mdsd("study", ZIPF, *GRID, "--temperatures", "0.5,1", "--draws", 8, "--out", out)
    before = {path: path.read_bytes() for path in out.rglob("*.*") if path.parent.name != "cells"}
    assert len(before) == 4 + 1 + 2 * len(PLOTS)
    for path in before:
        if path.name != "settings.json":
            path.unlink()
    assert mdsd("plot", out).exit_code == 0
    assert {path: path.read_bytes() for path in before} == before


def test_the_default_study_runs(mdsd, tmp_path):
    done = mdsd("study", ZIPF, "--out", tmp_path / "out", "--draws", 4)
    assert done.exit_code == 0, done.exception
    assert "impossible" in done.output


def test_options_win_over_the_study_file(mdsd, tmp_path):
    (tmp_path / "s.toml").write_text(f'sources = ["{ZIPF}"]\nsamplers = ["greedy"]\nverifiers = ["greedy"]\nn = [2]\n')
    assert mdsd("study", "-f", tmp_path / "s.toml", "--n", "3", "--out", tmp_path / "out").exit_code == 0
    assert {row["n"] for row in Results.load(tmp_path / "out").rows} == {3}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "sources is missing"),
        (("nowhere",), "nowhere is not a trace folder"),
        ((ZIPF, "--n", "two"), r"--n: found 'two'"),
        ((ZIPF, "--temperatures", "-1"), r"temperatures: found -1"),
        ((ZIPF, "--samplers", "psychic"), r"samplers: found 'psychic'; allowed are with-replacement"),
        ((ZIPF, "--samplers", "greedy", "--verifiers", "kseq"), r"impossible pairs .*\n.*kseq cannot serve greedy"),
        ((ZIPF, "--file", "missing.yaml"), r"missing\.yaml"),
        ((ZIPF, "--dask", "tcp://127.0.0.1:9", "--workers", "2"), r"workers or dask, not both"),
    ],
)
def test_bad_input_is_one_clear_error(mdsd, tmp_path, arguments, message):
    done = mdsd("study", *arguments, "--out", tmp_path / "out")
    assert isinstance(done.exception, (ValueError, OSError))
    assert re.search(message, str(done.exception))


def test_plot_of_a_folder_without_a_study_says_so(mdsd, tmp_path):
    assert "holds no finished study" in str(mdsd("plot", tmp_path).exception)


def test_nan_in_a_trace_names_the_position(mdsd, tmp_path):
    with TraceWriter(tmp_path / "t", target_model="a", draft_model="b", prompts=["x"], temperature=1.0) as writer:
        writer.append(np.zeros(9, np.float16), np.zeros(9, np.float16), prompt=0, position=4)
        writer.append(np.full(9, np.nan, np.float16), np.zeros(9, np.float16), prompt=0, position=5)
    done = mdsd("study", tmp_path / "t", *GRID, "--out", tmp_path / "out")
    assert re.search(r"row 1 \(prompt 0, position 5\): the target logits hold NaN", str(done.exception))


def test_a_verifier_above_the_bound_fails_the_command_after_writing_the_table(mdsd, tmp_path, monkeypatch):
    right = verifiers.make
    greedy = type(right("greedy"))
    boastful = type("Boastful", (greedy,), {"closed_form_rate": lambda self, p, draft: 1.0})
    monkeypatch.setattr(verifiers, "make", lambda name: boastful() if name == "greedy" else right(name))
    done = mdsd("study", ZIPF, *GRID, "--out", tmp_path / "out")
    assert "significantly above alpha*" in str(done.exception)
    assert "SIGNIFICANTLY ABOVE" in done.output
    assert " 1.000 ! |" in (tmp_path / "out" / "table.md").read_text()


def test_trees_get_their_own_table(mdsd, tmp_path):
    rng = np.random.default_rng(0)
    with TraceWriter(
        tmp_path / "t",
        target_model="a",
        draft_model="b",
        prompts=["x", "y"],
        temperature=1.0,
        tree={"sampler": "with-replacement", "temperature": 1.0},
    ) as writer:
        for step in range(20):
            first, second = rng.integers(0, 6, 2)
            tokens = [first] if first == second else [first, second]
            nodes = 1 + len(tokens)
            writer.append(
                rng.normal(size=(nodes, 6)).astype(np.float16),
                np.zeros((nodes, 6), np.float16),
                prompt=step % 2,
                position=step,
                sequence=step % 2,
                step=step // 2,
                parent=np.array([-1] + [0] * (nodes - 1)),
                depth=np.array([0] + [1] * (nodes - 1)),
                child_rank=np.arange(nodes) - 1,
                token=np.array([0, *tokens]),
                drafts=np.array([[first, second]] + [[-1, -1]] * (nodes - 1)),
            )
    done = mdsd("study", tmp_path / "t", *GRID, "--out", tmp_path / "out")
    assert done.exit_code == 0, done.exception
    [row] = Results.load(tmp_path / "out").trees
    assert (row["verifier"], row["n"], row["steps"], row["prompts"], row["exact"]) == ("rrs", 2, 20, 2, True)
    assert 1 < row["low"] <= row["block_efficiency"] <= row["high"] <= 2
    assert "Tokens per target pass" in done.output
    assert "block efficiency" in (tmp_path / "out" / "table.md").read_text()
    assert {r["positions"] for r in Results.load(tmp_path / "out").rows} == {20}  # the roots alone
    assert (tmp_path / "out" / "trees.csv").read_text().count("\n") == 2


def test_latex_escapes_what_it_must():
    assert tables._latex("a_b & 50 % ~ alpha*") == r"a\_b \& 50 \% $\sim$ $\alpha^\star$"

"""What the commands share: one line and exit 2 for bad input, questions without room, an import that costs little."""

import json

import pytest
import torch

from simulation.traces import Trace
from tests.gpu.questions import EARLY, with_early_ends


def test_importing_commands_needs_no_torch():
    import subprocess
    import sys

    code = "import sys, gpu.commands; assert 'torch' not in sys.modules and 'matplotlib' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    assert torch is not None


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["decode"], "--prompt, --prompts"),
        (["decode", "--prompt", " "], "--prompt is empty"),
        (["decode", "--draft", "draft", "--prompt", "a\udc80"], "prompt: character 2 is half of a surrogate pair"),
        (
            ["decode", "--draft", "draft", "--prompt", "a\udc80", "--raw"],
            "prompt: character 2 is half of a surrogate pair",
        ),
        (["decode", "--draft", "draft", "--prompt", "a", "--stop", ""], "stop: ''"),
        (["decode", "--draft", "draft", "--prompt", "a", "--stop", "\udc80"], "stop: character 1"),
        (["decode", "--prompt", "a", "--seed", "-1"], "--seed"),
        (["bench", "--prompts", "q.txt", "--seed", "4294967296"], "--seed"),
        (["decode", "--prompt", "a", "--sampler", "beam"], "known: with-replacement"),
        (["decode", "--prompt", "a", "--verifier", "magic"], "known: naive"),
        (["decode", "--prompt", "a", "--tree", "kary:0x3"], "at least 1"),
        (["decode", "--prompt", "a", "--tree", "none.json"], "none.json"),
        (["decode", "--prompt", "a", "--sampler", "greedy", "--verifier", "kseq"], "kseq"),
        (["decode", "--prompt", "a", "--draft-top-p", "0"], "top_p"),
        (["record", "--out", "t", "--tree", "plain"], "nothing to record"),
        (["record", "--out", "t", "--batch", "0"], "--batch"),
        (["record", "--out", "t", "--keep-top", "0"], "--keep-top"),
        (["record", "--out", "t", "--whole-trees", "--draft-temperature", "0.5"], "whole trees"),
        (["bench", "--prompts", "gone.jsonl"], "gone.jsonl"),
        (["bench", "--prompts", "q.txt", "--method", "kary:2x2 greedy"], "give a tree, a sampler and a verifier"),
        (["bench", "--prompts", "q.txt", "--limit", "0"], "--limit"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(tiny, mdsd, tmp_path, monkeypatch, arguments, says):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "q.txt").write_text("a question\n")
    status, out, err = mdsd(*arguments)
    assert status == 2
    assert says in err
    assert err.count("\n") == 1
    assert "Traceback" not in out + err
    assert {path.name for path in tmp_path.iterdir()} <= {"q.txt"}


@pytest.mark.parametrize(
    "command",
    [["demo"], ["decode"], ["decode", "--raw"], ["record"], ["bench", "--method", "chain:2 with-replacement rrs"]],
)
def test_when_no_question_has_room_nothing_is_begun(tiny, mdsd, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "q.jsonl").write_text(json.dumps(EARLY[0]) + "\n")
    out = [] if command[0] == "decode" else ["--out", "out"]
    status, _, err = mdsd(*command, "--prompts", "q.jsonl", "--draft", "draft", *out)
    assert (status, err.count("\n")) == (2, 1)
    assert "no question leaves room for an answer; question 7: turn 1 of 2 has a prompt of 128 tokens" in err
    assert {path.name for path in tmp_path.iterdir()} == {"q.jsonl"}


@pytest.mark.parametrize("command", ["demo", "decode", "record"])
def test_a_question_without_room_is_left_out_and_named(tiny, mdsd, questions, tmp_path, command):
    """The others go on as if it were not there."""
    file, seen = with_early_ends(questions, tmp_path), []
    (tmp_path / "fitting.jsonl").write_text("".join(file.read_text().splitlines(keepends=True)[1:]))
    for prompts in (file, tmp_path / "fitting.jsonl"):
        out = tmp_path / f"out-{prompts.stem}"
        extra = [] if command == "decode" else ["--out", out]
        status, shown, err = mdsd(command, "--prompts", prompts, "--draft", "draft", "--max-tokens", 5, *extra)
        assert status == 0
        named = "mdsd: left out: question 7: turn 1 of 2 has a prompt of 128 tokens; the models read at most 128 in all"
        assert err.splitlines().count(named) == (prompts == file)
        if command == "decode":
            seen.append(shown)
            continue
        if command == "demo":
            told = json.loads((out / "results.json").read_text())
            assert [entry["question"]["id"] for entry in told["unanswered"]] == ["7"] * (prompts == file)
        else:
            assert "of 4 prompts" in " ".join(shown.split())
        trace = Trace(out / "trace" if command == "demo" else out)
        seen.append([trace.header["prompts"], [trace.logits(row)[0].tolist() for row in range(len(trace))]])
    assert seen[0] == seen[1]

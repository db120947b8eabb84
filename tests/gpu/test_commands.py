"""The commands from the outside: one line and exit 2 for bad input, whole results for good."""

import json

import pytest
import torch
import typer

from gpu import commands, drafters, models
from gpu.drafters.causal_lm import CausalLM
from mdsd_theory import cli
from simulation.traces import Trace
from tests.gpu.tiny_models import tiny_model


class Words:
    """A tokenizer that counts the letters of words."""

    eos_token_id = None
    bos_token_id = 1
    chat_template = None

    def __call__(self, text):
        return {"input_ids": [3 + len(word) for word in text.split()]}

    def decode(self, tokens, skip_special_tokens=True):
        return "".join(chr(64 + token) for token in tokens)


@pytest.fixture
def tiny(monkeypatch):
    """Every model name loads a tiny random model."""

    def load(source=None, **how):
        seed = 1 if source == "draft" else 0
        return models.LoadedModel(tiny_model("llama", 32, seed, scale=1.2), Words(), source or "tiny")

    monkeypatch.setattr(models, "load_target", load)
    make = drafters.make
    monkeypatch.setattr(
        drafters, "make", lambda spec, target, *a: CausalLM(load(spec).model) if spec == "draft" else make(spec, target)
    )


@pytest.fixture
def mdsd(monkeypatch, capsys):
    """Run the command line: (exit status, standard output, standard error)."""

    def run(*arguments):
        app = typer.Typer()
        app.callback()(lambda: None)
        for name in commands.COMMANDS:
            app.command(name)(getattr(commands, name))
        monkeypatch.setattr(cli, "build", lambda: app)
        monkeypatch.setattr("sys.argv", ["mdsd", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            cli.main()
        out, err = capsys.readouterr()
        return end.value.code, out, err

    return run


def test_demo_writes_everything_and_repeats_itself(tiny, mdsd, tmp_path):
    tables = []
    for name in ("a", "b"):
        status, out, err = mdsd("demo", "--out", tmp_path / name, "--draft", "draft", "--max-tokens", 6, "--seed", 3)
        assert (status, err) == (0, "")
        results = json.loads((tmp_path / name / "results.json").read_text())
        assert results["settings"]["seed"] == 3
        for method in results["methods"]:
            method.pop("seconds")
            assert method.pop("tokens_per_second") > 0
        tables.append(results)
        assert (tmp_path / name / "acceptance.png").read_bytes().startswith(b"\x89PNG")
        assert not list((tmp_path / name).rglob("*.part*"))
        assert "kary:2x4" in out
    assert tables[0] == tables[1]
    methods = tables[0]["methods"]
    assert methods[0]["block_efficiency"]["value"] == 1
    assert {(m["sampler"], m["verifier"]) for m in methods[1:]} >= {
        ("with-replacement", "single-draft"),
        ("with-replacement", "rrs"),
        ("with-replacement", "kseq"),
        ("without-replacement", "rrs"),
        ("greedy", "greedy"),
        ("top-then-sample", "convex-minorant"),
    }
    for method in methods[1:]:
        assert 0 < method["bound"] <= 1
        assert method["gap"]["value"] == pytest.approx(method["bound"] - method["acceptance"]["value"])
    trace = Trace(tmp_path / "a" / "trace")
    assert trace.vocab_size == 32
    assert len(trace) > 10
    target, draft = trace.logits(0)
    assert target.shape == draft.shape == (32,)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--temperature", "-1"], "temperature"),
        (["--top-p", "1.5"], "top_p"),
        (["--top-k", "0"], "top_k"),
        (["--max-tokens", "0"], "max_tokens"),
        (["--prompts", "missing.jsonl"], "missing.jsonl"),
        (["--draft", "early-exit:0"], "the model has 2 layers"),
        (["--draft", "early-exit:x"], "number of layers"),
        (["--target", "mine"], "--draft"),
        (["--nonsense"], "No such option"),
    ],
)
def test_demo_refuses_bad_input_in_one_line(tiny, mdsd, tmp_path, monkeypatch, arguments, says):
    monkeypatch.chdir(tmp_path)
    status, out, err = mdsd("demo", *arguments)
    assert status == 2
    assert says in err
    assert err.count("\n") == 1
    assert "Traceback" not in out + err
    assert not list(tmp_path.iterdir())


def test_demo_leaves_existing_results_alone(tiny, mdsd, tmp_path):
    (tmp_path / "mine.txt").write_text("precious")
    status, _, err = mdsd("demo", "--out", tmp_path)
    assert status == 2
    assert "exists already" in err


def test_an_empty_prompt_file_is_refused(tiny, mdsd, tmp_path):
    (tmp_path / "empty.jsonl").write_text("")
    assert mdsd("demo", "--prompts", tmp_path / "empty.jsonl", "--out", tmp_path / "o")[0] == 2


def test_importing_commands_needs_no_torch():
    import subprocess
    import sys

    code = "import sys, gpu.commands; assert 'torch' not in sys.modules and 'matplotlib' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    assert torch is not None

"""What the tests of this folder share: one thread, the command line on tiny models, and tiny drafters."""

import json

import pytest
import torch
import typer

from gpu import commands, drafters, models
from gpu.drafters.causal_lm import CausalLM
from mdsd_theory import cli
from tests.gpu.decoded_texts import VOCABULARY
from tests.gpu.questions import QUESTIONS
from tests.gpu.tiny_drafters import make_all
from tests.gpu.tiny_models import Words, loaded, tiny_model


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    """Tiny models run faster on one thread, far faster where other work shares the cores."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


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


@pytest.fixture
def questions(tmp_path):
    file = tmp_path / "questions.jsonl"
    file.write_text("".join(json.dumps(question) + "\n" for question in QUESTIONS))
    return file


@pytest.fixture(scope="module")
def target():
    """What the tiny drafters draft for."""
    return loaded(tiny_model("llama", VOCABULARY, 0, scale=1.5))


@pytest.fixture(scope="module")
def every(target):
    """A drafter of each kind, by its name."""
    return make_all(target)

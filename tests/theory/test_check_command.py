"""`mdsd check`: verdicts on a user's module or a name of ours, and one line for bad input."""

import functools
import sys

import pytest

from mdsd_theory import cli, commands, conformance

SOURCE = """
import numpy as np

def lossless(p, q, tokens, rng):
    r = p
    for x in tokens:
        if rng.random() * q[x] < r[x]:
            return x
        r = np.maximum(r - q, 0)
        r = r / r.sum() if r.sum() > 0 else p
    return rng.choice(p.size, p=r)

def wrong(p, q, tokens, rng):
    return tokens[0]

class Exact:
    def kernel(self, p, draft, tokens):
        return p

class Needs:
    def __init__(self, argument):
        pass

number = 3
"""


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Runs `mdsd check ...` in a folder that holds user_module.py; returns exit status, output and errors."""
    (tmp_path / "user_module.py").write_text(SOURCE)
    (tmp_path / "exits.py").write_text("raise SystemExit(0)")
    (tmp_path / "fails_to_import.py").write_text("import module_that_is_not_there")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr(conformance, "suite", functools.partial(conformance.suite, resolution=0.3))

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["mdsd", "check", *arguments])
        with pytest.raises(SystemExit) as exit:
            cli.main()
        monkeypatch.delitem(sys.modules, "user_module", raising=False)
        return exit.value.code, *capsys.readouterr()

    def build():
        import typer

        app = typer.Typer()
        app.callback()(lambda: None)
        app.command("check")(commands.check)
        return app

    monkeypatch.setattr(cli, "build", build)
    return run


def test_command_passes_a_lossless_function(run):
    status, out, err = run("user_module:lossless", "--sampler", "with-replacement", "--n", "1")
    assert (status, err) == (0, "")
    assert "LOSSLESS in 17 cases as far as counting tells" in out
    assert "1e-09" in out


def test_command_tells_what_is_wrong(run):
    status, out, err = run("user_module:wrong", "--n", "2")
    assert (status, err) == (1, "")
    assert "reference pair, n = 2: token 0 came with frequency 0." in out
    assert "where p has 0.3" in out
    assert "NOT LOSSLESS: " in out


def test_command_takes_objects_and_names(run):
    status, out, _ = run("user_module:Exact", "--sampler", "joint", "--n", "1,2")
    assert status == 0
    assert "exactly by enumeration" in out
    status, out, _ = run("greedy", "--sampler", "spechub")
    assert status == 0
    status, out, _ = run("single-draft", "--n", "1,2")
    assert status == 0
    assert "not served: n = 2: it verifies exactly one token" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["no_such_module:f"], "importing no_such_module raised ModuleNotFoundError"),
        (["fails_to_import:f"], "importing fails_to_import raised ModuleNotFoundError: No module named 'module_that"),
        (["user_module:missing"], "user_module has no missing"),
        (["user_module:number"], "found a int; allowed are a callable"),
        (["user_module:Needs"], "Needs() raised TypeError"),
        (["user_module"], "unknown name 'user_module'"),
        (["user_module:"], "allowed are module:attribute"),
        (["./user_module.py:lossless"], "allowed are module:attribute, the module as Python imports it"),
        (["user_module.py:lossless"], "'user_module' is not a package"),
        (["exits:f"], "importing exits raised SystemExit"),
        (["kseq", "--sampler", "greedy", "--n", "2"], "kseq cannot serve greedy drafts"),
        (["kseq", "--sampler", "urn"], "unknown name 'urn'"),
        (["kseq", "--n", "0"], "--n: found '0'"),
        (["kseq", "--n", "two"], "--n: found 'two'"),
        (["kseq", "--seed", "-1"], "--seed"),
        ([], "Missing argument"),
    ],
)
def test_command_refuses_bad_input_in_one_line(run, arguments, message):
    status, out, err = run(*arguments)
    assert (status, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_importing_the_package_does_not_import_scipy_stats():
    import subprocess

    code = "import sys, mdsd_theory.commands, mdsd_theory; print('scipy.stats' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"

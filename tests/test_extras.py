"""What works without the optional dependencies, and what a command that needs one says before it does any work."""

import json
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
COMMANDS = sorted(entry.name for entry in entry_points(group="mdsd.commands"))

EXTRAS = {
    "lp": ["cvxpy", "highspy"],
    "study": ["matplotlib", "joblib", "safetensors", "yaml"],
    "cluster": ["distributed", "dask"],
    "decode": ["torch", "transformers", "gguf"],
}
EVERYTHING = [module for modules in EXTRAS.values() for module in modules]
STUDY = ["study", "synthetic:zipf,V=8,positions=2", "--samplers", "with-replacement", "--verifiers", "rrs", "--n", "1"]

MAIN = """
import sys

class Missing:
    def find_spec(name, path=None, target=None):
        if name in {missing!r}:
            raise ModuleNotFoundError("No module named " + name, name=name)

sys.argv[0] = "mdsd"
sys.path.insert(0, {root!r})
sys.meta_path.insert(0, Missing)
from mdsd_theory.cli import main
main()
"""


@pytest.fixture
def mdsd_without(tmp_path):
    """Run `mdsd` in `tmp_path` as on a machine that lacks these modules."""

    def run(missing, *arguments):
        code = MAIN.format(root=str(ROOT), missing=missing)
        return subprocess.run(
            [sys.executable, "-c", code, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
        )

    return run


def test_bounds_and_checks_need_no_extra(mdsd_without, tmp_path):
    (tmp_path / "p.json").write_text("[0.3, 0.4, 0.3]")
    (tmp_path / "q.json").write_text("[0.6, 0.3, 0.1]")
    done = mdsd_without(EVERYTHING, "bound", "--target", "p.json", "--draft", "q.json", "--n", "2", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["bounds"][0]["alpha_star"] == pytest.approx(0.89, abs=1e-12)
    assert "LOSSLESS" in mdsd_without(EVERYTHING, "check", "rrs", "--n", "1").stdout


@pytest.mark.parametrize("command", [None, *COMMANDS])
def test_help_needs_no_extra(mdsd_without, command):
    done = mdsd_without(EVERYTHING, *[command] * (command is not None), "--help")
    assert done.returncode == 0, done.stderr
    assert "Usage: mdsd" in done.stdout


@pytest.mark.parametrize(
    ("missing", "extra", "arguments"),
    [
        ("matplotlib", "study", STUDY),
        ("joblib", "study", [*STUDY, "--workers", "2"]),
        ("distributed", "cluster", [*STUDY, "--dask", "tcp://127.0.0.1:1"]),
        ("matplotlib", "study", ["demo"]),
        ("torch", "decode", ["demo"]),
        ("torch", "decode", ["decode", "--prompt", "Hi"]),
        ("torch", "decode", ["record", "--out", "trace"]),
        ("torch", "decode", ["bench", "--prompts", "q.jsonl"]),
        ("torch", "decode", ["train-drafter", "--out", "d.safetensors"]),
    ],
)
def test_a_missing_extra_is_named_before_any_work(mdsd_without, tmp_path, missing, extra, arguments):
    if arguments[0] not in COMMANDS:
        pytest.skip(f"the installed package is older than `mdsd {arguments[0]}`: pip install -e . again")
    done = mdsd_without([missing], *arguments)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == (
        f"mdsd: this needs {missing}, which is not installed: pip install 'mdsd[{extra}]'"
    )
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "settings.json"]

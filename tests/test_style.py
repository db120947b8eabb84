"""Lint, format and import direction: the rules of the house, as part of the test run."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("arguments", [["check"], ["format", "--check"]], ids=["lint", "format"])
def test_ruff_is_clean(arguments):
    done = subprocess.run(
        [sys.executable, "-m", "ruff", *arguments, "--no-cache", "."], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("package", "forbidden"),
    [
        ("mdsd_theory", ["torch", "cvxpy", "matplotlib", "simulation", "gpu"]),
        ("simulation", ["torch", "transformers", "gpu"]),
    ],
)
def test_importing_a_layer_does_not_pull_in_the_layers_above(package, forbidden):
    code = f"import {package}, sys; print(sorted(set(sys.modules) & set({forbidden!r})))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

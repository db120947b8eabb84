"""Decoding off the CPU, checked without a GPU: see elsewhere.py."""

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__)


def test_on_another_device():
    backends = pytest.importorskip("torch.utils.backend_registration")
    if not hasattr(backends, "_setup_privateuseone_for_python_backend"):
        pytest.skip("this PyTorch does not let Python pretend to be a device")
    run = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-x",
            "-p",
            "no:cacheprovider",
            str(HERE.with_name("on_another_device.py")),
        ],
        capture_output=True,
        text=True,
        cwd=HERE.parents[2],
    )
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-2000:]

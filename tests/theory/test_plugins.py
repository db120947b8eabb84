"""A package of someone else's brings a verifier and a sampler: installed with pip, found by their names."""

import functools
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import typer

from mdsd_theory import commands, conformance, drafts, optimal_acceptance, verifiers

PLUGIN = Path(__file__).parents[1] / "data" / "example_plugin"


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The folder that the example package is installed in."""
    folder = tmp_path_factory.mktemp("site")
    source = folder / "source"
    source.mkdir()
    for file in PLUGIN.glob("*.*"):
        (source / file.name).write_bytes(file.read_bytes())
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index"]
    command += ["--no-deps", "--no-build-isolation", "--target", str(folder / "packages"), str(source)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / "packages"


@pytest.fixture
def plugin(installed, monkeypatch):
    before = set(sys.modules)
    monkeypatch.syspath_prepend(installed)
    yield
    for name in set(sys.modules) - before:
        if name.startswith("mdsd_example"):
            del sys.modules[name]


def test_without_the_package_its_names_are_unknown():
    with pytest.raises(ValueError, match="unknown name 'example-first-draft'"):
        verifiers.make("example-first-draft")
    with pytest.raises(ValueError, match="unknown name 'example-copies'"):
        drafts.make("example-copies", [0.5, 0.5], n=2)


@pytest.mark.usefixtures("plugin")
def test_names_of_an_installed_package_are_known():
    assert "example-first-draft" in verifiers.names()
    assert "example-copies" in drafts.names()
    assert type(verifiers.make("example-first-draft")).__name__ == "FirstDraft"
    draft = drafts.make("example-copies", [0.6, 0.3, 0.1], n=3)
    assert (type(draft).__name__, draft.n) == ("Copies", 3)
    with pytest.raises(ValueError, match=r"known are naive, .*, example-first-draft, "):
        verifiers.make("nonsense")


@pytest.mark.usefixtures("plugin")
def test_a_package_cannot_take_over_our_names():
    assert isinstance(verifiers.make("rrs"), verifiers.RecursiveRejection)
    assert isinstance(drafts.make("greedy", [0.5, 0.5], n=2), drafts.Greedy)
    assert verifiers.names().count("rrs") == 1
    assert drafts.names().count("greedy") == 1


@pytest.mark.usefixtures("plugin")
def test_they_work_like_ours():
    p, q = np.array([0.3, 0.4, 0.3]), np.array([0.6, 0.3, 0.1])
    draft = drafts.make("example-copies", q, n=3)
    # Copies of one draw are worth one draw: alpha* = sum min(p, q), and the first draft is all there is to verify.
    assert optimal_acceptance(p, draft).rate == pytest.approx(0.7, abs=1e-12)
    assert verifiers.make("example-first-draft").acceptance_rate(p, draft) == pytest.approx(0.7, abs=1e-12)
    assert verifiers.make("naive").acceptance_rate(p, draft) == pytest.approx((p * q).sum(), abs=1e-12)
    with pytest.raises(ValueError, match="rrs cannot serve example-copies drafts"):
        verifiers.make("rrs").check(p, draft)


@pytest.mark.usefixtures("plugin")
def test_the_kit_takes_them():
    for verifier in ("example-first-draft", "naive"):
        report = conformance.suite(verifiers.make(verifier), "example-copies", resolution=0.3)
        assert report.lossless, str(report)
        assert all(run.verdict.exact for run in report.runs)
    assert conformance.suite(verifiers.make("example-first-draft"), "without-replacement", resolution=0.5).lossless


@pytest.mark.usefixtures("plugin")
@pytest.mark.parametrize(("name", "status"), [("example-first-draft", 0), ("example-forgets", 1)])
def test_the_command_takes_them(name, status, capsys, monkeypatch):
    monkeypatch.setattr(conformance, "suite", functools.partial(conformance.suite, resolution=0.1))
    with pytest.raises(typer.Exit) as exit:
        commands.check(name, "example-copies", "2", 0)
    assert exit.value.exit_code == status
    assert ("NOT LOSSLESS" in capsys.readouterr().out) == bool(status)


@pytest.mark.usefixtures("plugin")
def test_a_name_that_cannot_be_loaded_is_bad_input():
    with pytest.raises(ValueError, match=r"example-gone: mdsd_example:NotThere cannot be loaded: .*NotThere"):
        verifiers.make("example-gone")

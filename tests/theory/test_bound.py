"""`mdsd bound`: the numbers, and one line with exit status 2 for every kind of bad input."""

import json

import numpy as np
import pytest

from mdsd_theory import cli

P, Q = [0.3, 0.4, 0.3], [0.6, 0.3, 0.1]


@pytest.fixture
def run(monkeypatch, capsys):
    def call(*arguments):
        monkeypatch.setattr("sys.argv", ["mdsd", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        out, err = capsys.readouterr()
        return stop.value.code, out, err

    return call


@pytest.fixture
def files(tmp_path):
    np.save(tmp_path / "p.npy", P)
    np.save(tmp_path / "q.npy", Q)
    np.savez(tmp_path / "both.npz", p=P, q=Q)
    np.savez(tmp_path / "one.npz", q=Q)
    (tmp_path / "q.json").write_text(json.dumps(Q))
    np.save(tmp_path / "logits_p.npy", np.log(P).astype(np.float32))
    np.save(tmp_path / "logits_q.npy", np.log(Q).astype(np.float32))
    return tmp_path


def test_reference_pair(run, files):
    status, out, _ = run(
        "bound", "--target", files / "p.npy", "--draft", files / "q.npy", "--n", "1,2,3", "--json",
        "--sampler", "with-replacement,without-replacement,greedy,spechub,top-then-sample:1",
    )  # fmt: skip
    assert status == 0
    found = {(r["sampler"], r["n"]): r["alpha_star"] for r in json.loads(out)["bounds"]}
    expected = {
        ("with-replacement", 1): 0.7, ("with-replacement", 2): 0.89, ("with-replacement", 3): 0.971,
        ("without-replacement", 2): 139 / 140, ("without-replacement", 3): 1, ("greedy", 2): 0.95, ("greedy", 3): 1,
        ("spechub", 2): 0.95, ("top-then-sample:1", 2): 0.95,
    }  # fmt: skip
    for key, rate in expected.items():
        assert found[key] == pytest.approx(rate, abs=1e-12)
    assert len([k for k in found if k[0] == "spechub"]) == 1


@pytest.mark.parametrize("draft", ["q.npy", "one.npz", "both.npz:q", "q.json"])
def test_every_format(run, files, draft):
    status, out, _ = run("bound", "--target", files / "both.npz:p", "--draft", files / draft, "--n", "2")
    assert status == 0
    assert "0.890000" in out


def test_logits(run, files):
    files = ("--target", files / "logits_p.npy", "--draft", files / "logits_q.npy")
    for extra in (("--logits",), ("--temperature", "1")):
        status, out, _ = run("bound", *files, "--n", "2", *extra)
        assert status == 0
        assert "0.890000" in out


def test_independent_drafters(run, files):
    status, out, _ = run(
        "bound",
        "--target",
        files / "p.npy",
        "--draft",
        files / "q.npy",
        "--draft",
        files / "p.npy",
        "--sampler",
        "independent",
    )
    assert status == 0
    assert "1.000000" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--n", "0"], "--n: '0'"),
        (["--n", "two"], "--n: 'two'"),
        (["--sampler", "greed"], "known are with-replacement"),
        (["--sampler", "top-then-sample"], "top"),
        (["--sampler", "top-then-sample:9"], "top: 9"),
        (["--sampler", "top-then-sample:x"], "certain tokens"),
        (["--temperature", "-1"], "temperature: -1.0"),
        (["--top-p", "1.5"], "top_p: 1.5"),
        (["--top-k", "0"], "top_k: 0"),
        (["--draft", "missing.npy"], "no file missing.npy"),
        (["--nonsense"], "nonsense"),
    ],
)
def test_bad_input_is_one_line(run, files, arguments, message):
    status, out, err = run("bound", "--target", files / "p.npy", "--draft", files / "q.npy", *arguments)
    if "missing.npy" in arguments:
        status, out, err = run("bound", "--target", files / "p.npy", *arguments)
    assert status == 2
    assert out == ""
    assert err.count("\n") == 1
    assert message in err


def test_unreadable_and_ambiguous_files(run, files):
    (files / "bad.npy").write_text("not an array")
    (files / "bad.json").write_text("{")
    (files / "deep.json").write_text("[" * 100_000)
    (files / "huge.json").write_text(f"[1{'0' * 400}]")
    (files / "empty.npy").touch()
    (files / "short.npy").write_bytes((files / "p.npy").read_bytes()[:-4])
    (files / "boundless.npy").write_bytes((files / "p.npy").read_bytes().replace(b"(3,)", b"(3000000000000,)"))
    whole = (files / "one.npz").read_bytes()
    (files / "short.npz").write_bytes(whole[: len(whole) // 2])
    at = whole.index(np.float64(Q[0]).tobytes())
    (files / "flipped.npz").write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    np.savez(files / "none.npz")
    names = {path.name: path.name for path in files.iterdir() if path.stem in (
        "bad", "deep", "huge", "empty", "short", "boundless", "flipped"
    )}  # fmt: skip
    assert len(names) == 9
    for name, message in (names | {"both.npz": "holds p, q", "none.npz": "holds nothing"}).items():
        status, out, err = run("bound", "--target", files / name, "--draft", files / "q.npy")
        assert (status, out, err.count("\n")) == (2, "", 1), (name, err)
        assert message in err


def test_different_vocabularies(run, files):
    np.save(files / "long.npy", [0.5, 0.2, 0.2, 0.1])
    status, _, err = run("bound", "--target", files / "long.npy", "--draft", files / "q.npy")
    assert status == 2
    assert "4 entries where its partner has 3" in err

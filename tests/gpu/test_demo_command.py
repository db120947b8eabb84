"""`mdsd demo`: results, picture and trace, the same for the same seed."""

import json

import pytest

from simulation.traces import Trace


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
        ("top-then-sample:1", "convex-minorant"),
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
        (["--max-tokens", "0"], "--max-tokens"),
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

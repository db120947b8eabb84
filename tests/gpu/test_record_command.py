"""`mdsd record`: a row for every token, whole trees, compression, and going on after a kill."""

import pytest
import torch

from gpu import drafters, models
from gpu.drafters.causal_lm import CausalLM
from simulation.traces import UNFINISHED, Trace
from tests.gpu.questions import QUESTIONS
from tests.gpu.tiny_models import Words, tiny_model


def recorded_texts(max_tokens, *method, drafter=None, **sampling):
    from gpu import decode_batch
    from gpu.method import Method

    target, drafter = models.load_target(), drafter or CausalLM(tiny_model("llama", 32, 1, scale=1.2))
    prompts = [question["turns"][0] for question in QUESTIONS]
    records = decode_batch(target, drafter, prompts, Method.make(*method, **sampling), max_tokens=max_tokens)
    return [record.prompt + record.tokens for record in records]


def assert_every_token_has_a_row(trace, texts):
    """No position is left out, such as those after accepted drafts."""
    lengths = [len(Words()(question["turns"][0])["input_ids"]) for question in QUESTIONS]
    wanted = [(k, at) for k, text in enumerate(texts) for at in range(lengths[k], len(text))]
    columns = (trace.column(name).tolist() for name in ("prompt", "position"))
    assert sorted(zip(*columns, strict=True)) == wanted


def test_record_writes_what_the_models_said(tiny, mdsd, questions, tmp_path):
    status, out, err = mdsd(
        "record", "--prompts", questions, "--out", tmp_path / "t", "--draft", "draft", "--max-tokens", 9, "--batch", 2
    )
    assert (status, err) == (0, "")
    trace = Trace(tmp_path / "t")
    assert trace.header["dtype"] == "F32"
    assert f"{len(trace)} positions of 3 prompts" in " ".join(out.split())
    assert not (tmp_path / "t" / UNFINISHED).exists()
    target, draft = models.load_target().model, tiny_model("llama", 32, 1, scale=1.2)
    texts = recorded_texts(9, "chain:4", "with-replacement", "single-draft")
    assert_every_token_has_a_row(trace, texts)
    for row in range(len(trace)):
        prompt, position = trace.column("prompt")[row], trace.column("position")[row]
        before = torch.tensor([texts[prompt][:position]])
        for stored, model in zip(trace.logits(row), (target, draft), strict=True):
            assert (torch.from_numpy(stored) - model(input_ids=before).logits[0, -1]).abs().max() < 1e-4


@pytest.mark.parametrize("tree", ["chain:1", "chain:4", "kary:2x2"])
@pytest.mark.parametrize("draft", ["draft", "ngram:2", "early-exit:1"])
def test_record_skips_no_position(tiny, mdsd, questions, tmp_path, tree, draft):
    """A drafter that is often right accepts whole paths, after which there are no drafts but there is a position."""
    how = ["--tree", tree, "--sampler", "with-replacement", "--verifier", "naive", "--temperature", 0.3]
    out = tmp_path / "t"
    assert mdsd("record", "--prompts", questions, "--out", out, "--draft", draft, "--max-tokens", 12, *how)[0] == 0
    trace = Trace(out)
    drafter = drafters.make(draft, models.load_target())
    texts = recorded_texts(12, tree, "with-replacement", "naive", temperature=0.3, drafter=drafter)
    assert_every_token_has_a_row(trace, texts)


@pytest.mark.parametrize("extra", [[], ["--whole-trees", "--tree", "kary:2x2", "--verifier", "rrs"], ["--keep-top", 8]])
def test_a_recording_that_was_killed_goes_on(tiny, mdsd, questions, tmp_path, monkeypatch, extra):
    from gpu import recording

    class Killed(BaseException):
        pass

    arguments = ["record", "--prompts", questions, "--draft", "draft", "--max-tokens", 9, "--batch", 1, *extra]
    assert mdsd(*arguments, "--out", tmp_path / "whole")[0] == 0
    stream, decoded = recording.stream, []

    def counted(target, drafter, prompts, *a, **how):
        decoded.append(prompts)
        for step, records in enumerate(stream(target, drafter, prompts, *a, **how)):
            if len(decoded) == 3 and step == 2:
                raise Killed
            yield records

    monkeypatch.setattr(recording, "stream", counted)
    out = tmp_path / "cut"
    with pytest.raises(Killed):
        mdsd(*arguments, "--out", out)
    with pytest.raises(ValueError, match="is not finished"):
        Trace(out)
    (out / "shard-00002.part.safetensors").write_bytes(b"half a shard")
    for other, says in (
        (["--max-tokens", 8], "max_tokens 9, not 8"),
        (["--temperature", 0.5], "temperature 1.0, not 0.5"),
        (["--batch", 2], "batch 1, not 2"),
        (["--draft", "ngram:2"], "draft_model"),
        (["--top-k", 3], "top_k null, not 3"),
    ):
        status, _, err = mdsd(*arguments, *other, "--out", out)
        assert (status, err.count("\n")) == (2, 1)
        assert "unfinished trace of another run" in err
        assert says in err
    status, shown, err = mdsd(*arguments, "--out", out)
    assert (status, err) == (0, "")
    assert len(decoded) == 4  # two prompts before the kill, the third once more
    whole = {path.name: path.read_bytes() for path in (tmp_path / "whole").iterdir()}
    assert {path.name: path.read_bytes() for path in out.iterdir()} == whole
    assert len([name for name in whole if name.startswith("shard")]) == 3
    assert f"{len(Trace(out))} positions" in " ".join(shown.split())
    status, _, err = mdsd(*arguments, "--out", out)
    assert status == 2
    assert "already holds a finished trace" in err


def test_recorded_whole_trees_feed_the_simulation(tiny, mdsd, questions, tmp_path):
    """Expected block efficiency over the recorded trees is what decoding had, up to chance."""
    from simulation.trees import block_efficiency

    status, _, err = mdsd(
        "record", "--prompts", questions, "--out", tmp_path / "t", "--draft", "draft", "--max-tokens", 60,
        "--whole-trees", "--tree", "kary:2x2", "--verifier", "rrs",
    )  # fmt: skip
    assert (status, err) == (0, "")
    trace = Trace(tmp_path / "t")
    steps = list(trace.steps())
    expected = [block_efficiency(trace, rows, "rrs")[0] for rows in steps]
    assert trace.tree["sampler"] == "with-replacement"
    texts = recorded_texts(60, "kary:2x2", "with-replacement", "rrs")
    target = models.load_target().model
    for rows in steps[::7]:
        assert trace.column("parent")[rows.start] == -1
        root = rows.start
        text = texts[trace.column("prompt")[root]][: trace.column("position")[root]]
        assert trace.column("token")[root] == text[-1]
        for row in rows:
            path, at = [], row
            while at != root:
                path.insert(0, int(trace.column("token")[at]))
                at = root + trace.column("parent")[at]
            logits = target(input_ids=torch.tensor([text + path])).logits[0, -1]
            assert (torch.from_numpy(trace.logits(row)[0]) - logits).abs().max() < 1e-4
    emitted = sum(len(t) for t in texts) - sum(
        len(Words()(question["turns"][0])["input_ids"]) for question in QUESTIONS
    )
    # each step emits 1 to 3 tokens: its standard deviation is below 1; 6 of them
    assert abs(sum(expected) - emitted) < 6 * len(steps) ** 0.5


def test_record_compressed_keeps_the_tail(tiny, mdsd, questions, tmp_path):
    for name, extra in (("full", []), ("top", ["--keep-top", 8])):
        status, _, err = mdsd("record", "--prompts", questions, "--out", tmp_path / name, "--draft", "draft",
                              "--max-tokens", 6, "--temperature", 0.7, *extra)  # fmt: skip
        assert (status, err) == (0, "")
    full, top = Trace(tmp_path / "full"), Trace(tmp_path / "top")
    for row in range(len(full)):
        for whole, kept in zip(full.logits(row), top.logits(row, 0.7), strict=True):
            whole, kept = (torch.from_numpy(x).double().div(0.7).softmax(-1).sort().values for x in (whole, kept))
            assert (whole[-8:] - kept[-8:]).abs().max() < 1e-6

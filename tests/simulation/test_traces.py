"""Traces: what is written is read back, bit for bit; what is not whole is refused, naming the file."""

import json
import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from scipy.special import logsumexp, softmax

from simulation.traces import HEADER, UNFINISHED, Trace, TraceWriter

ROOT = Path(__file__).parents[2]
SMALL = ROOT / "tests" / "data" / "trace_small"
NAMES = {"target_model": "big", "draft_model": "small", "prompts": ["one", "two"], "temperature": 1.0}


def logits(rows, vocab, dtype=np.float32, seed=0):
    return np.random.default_rng(seed).normal(scale=3, size=(rows, vocab)).astype(dtype)


def write(folder, target, draft, **options):
    with TraceWriter(folder, **NAMES, **options) as writer:
        for i in range(len(target)):
            writer.append(target[i], draft[i], prompt=i % 2, position=10 + i)
    return folder


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_rows_and_columns_come_back_bit_for_bit_over_many_shards(tmp_path, dtype):
    target, draft = logits(23, 50, seed=1), logits(23, 50, seed=2)
    if dtype == "bfloat16":
        tensors = [torch.tensor(a).to(torch.bfloat16) for a in (target, draft)]
        stored = [t.view(torch.uint16).numpy() for t in tensors]
        expected = [t.float().numpy() for t in tensors]
    else:
        stored = [a.astype(dtype) for a in (target, draft)]
        expected = [a.astype(np.float32) for a in stored]
    folder = write(tmp_path / "t", *stored, dtype=dtype, shard_bytes=900)
    trace = Trace(folder)
    assert len(trace) == 23
    assert len(trace.header["shards"]) > 3
    for i in np.random.default_rng(0).permutation(23):
        got = trace.logits(i)
        assert got[0].dtype == np.float32
        assert np.array_equal(got[0], expected[0][i])
        assert np.array_equal(got[1], expected[1][i])
    assert trace.column("prompt").tolist() == [i % 2 for i in range(23)]
    assert trace.column("position").tolist() == list(range(10, 33))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_shards_are_what_the_safetensors_library_reads(tmp_path, dtype):
    target = torch.tensor(logits(5, 40)).to(dtype)
    raw = target.view(torch.uint16).numpy() if dtype == torch.bfloat16 else target.numpy()
    write(tmp_path / "t", raw, raw, dtype=str(dtype).removeprefix("torch."))
    with safe_open(tmp_path / "t" / "shard-00000.safetensors", framework="pt") as shard:
        assert torch.equal(shard.get_tensor("target"), target)
        assert shard.get_tensor("position").tolist() == [10, 11, 12, 13, 14]


def test_blocks_and_single_rows_write_the_same_trace(tmp_path):
    target, draft = logits(6, 30, np.float16), logits(6, 30, np.float16, seed=1)
    write(tmp_path / "rows", target, draft)
    with TraceWriter(tmp_path / "block", **NAMES) as writer:
        writer.append(target, draft, prompt=np.arange(6) % 2, position=np.arange(10, 16))
    assert Trace(tmp_path / "rows").fingerprint == Trace(tmp_path / "block").fingerprint


def test_fingerprint_sees_one_changed_logit(tmp_path):
    target, draft = logits(3, 30, np.float16), logits(3, 30, np.float16, seed=1)
    write(tmp_path / "a", target, draft)
    target[2, 7] += 1
    write(tmp_path / "b", target, draft)
    assert Trace(tmp_path / "a").fingerprint != Trace(tmp_path / "b").fingerprint


@pytest.mark.parametrize("temperature", [0.5, 1.0])
def test_compression_keeps_the_top_and_the_mass_of_the_rest_exactly(tmp_path, temperature):
    target, draft = logits(4, 200), logits(4, 200, seed=1)
    target[0, 50:] = -np.inf  # an empty tail
    folder = write(tmp_path / "t", target, draft, dtype="float32", keep_top=60, tail_temperatures=[0.5, 1.0])
    trace = Trace(folder)
    for i in range(4):
        for got, full in zip(trace.logits(i, temperature), (target[i], draft[i]), strict=True):
            top = np.argsort(-full, kind="stable")[:60]
            assert np.array_equal(got[top].astype(np.float32), full[top])
            exact, kept = softmax(full.astype(float) / temperature), softmax(got / temperature)
            assert np.allclose(kept[top], exact[top], rtol=1e-12, atol=0)
            rest = np.setdiff1d(np.arange(200), top)
            assert np.ptp(kept[rest]) < 1e-15
            assert np.isclose(
                logsumexp(got / temperature), logsumexp(full.astype(float) / temperature), rtol=1e-13, atol=0
            )
    assert trace.logits(1, 0.0)[0].argmax() == target[1].argmax()
    with pytest.raises(ValueError, match=r"temperature 0.7 needs a full trace"):
        trace.logits(0, 0.7)


def test_vocabularies_of_different_size_are_refused_or_padded_on_request(tmp_path):
    folder = write(tmp_path / "t", logits(2, 30, np.float16), logits(2, 25, np.float16))
    with pytest.raises(ValueError, match=r"target has 30 tokens and the draft 25.*--pad-vocab"):
        Trace(folder)
    target, draft = Trace(folder, pad_vocab=True).logits(1)
    assert target.shape == draft.shape == (30,)
    assert np.isneginf(draft[25:]).all()
    assert np.isfinite(draft[:25]).all()


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_nan_names_the_position(tmp_path, value):
    target = logits(3, 30, np.float16)
    target[1, 4] = value
    folder = write(tmp_path / "t", target, logits(3, 30, np.float16))
    Trace(folder).logits(0)
    with pytest.raises(ValueError, match=r"row 1 \(prompt 1, position 11\): the target logits hold NaN"):
        Trace(folder).logits(1)


def test_tree_rows_are_grouped_by_step(tmp_path):
    with TraceWriter(tmp_path / "t", **NAMES, tree={"sampler": "with-replacement", "n": 2}) as writer:
        for step, nodes in enumerate((3, 1, 4)):
            writer.append(
                logits(nodes, 10, np.float16),
                logits(nodes, 10, np.float16),
                prompt=0,
                position=step,
                sequence=0,
                step=step,
                parent=np.arange(-1, nodes - 1),
                depth=np.arange(nodes),
                child_rank=0,
                token=5,
                drafts=np.full((nodes, 2), -1),
            )
    trace = Trace(tmp_path / "t")
    assert list(trace.steps()) == [range(3), range(3, 4), range(4, 8)]
    assert trace.column("drafts").shape == (8, 2)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: os.truncate(f / "shard-00001.safetensors", 100), r"shard-00001.*has 100 bytes and should have"),
        (lambda f: (f / "shard-00000.safetensors").unlink(), r"shard-00000.*is missing"),
        (lambda f: (f / HEADER).unlink(), r"is not finished"),
        (lambda f: (f / HEADER).write_text("{"), r"trace.json is not readable JSON"),
        (lambda f: (f / HEADER).write_text("{}"), r"is not the header of a trace"),
        (
            lambda f: (f / "shard-00000.safetensors").write_bytes(
                b"\xff" * (f / "shard-00000.safetensors").stat().st_size
            ),
            r"shard-00000.*not a readable safetensors",
        ),
    ],
)
def test_damage_is_refused_naming_the_file(tmp_path, damage, message):
    folder = write(tmp_path / "t", logits(8, 30, np.float16), logits(8, 30, np.float16), shard_bytes=500)
    Trace(folder)
    damage(folder)
    with pytest.raises(ValueError, match=message):
        Trace(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"target": np.zeros(10)}, r"target is float64"),
        ({"target": np.zeros((2, 10), np.float16)}, r"draft is float16 \(1, 10\)"),
        ({"prompt": 2}, r"prompt is 2; the header has prompts 0..1"),
        ({"position": 1.5}, r"position is float64"),
        ({"position": None, "token": 3}, r"columns are"),
        ({"target": np.zeros(11, np.float16)}, r"vocabularies are \(11, 10\)"),
    ],
)
def test_wrong_appends_are_refused(tmp_path, change, message):
    writer = TraceWriter(tmp_path / "t", **NAMES)
    row = {"target": np.zeros(10, np.float16), "draft": np.zeros(10, np.float16), "prompt": 0, "position": 0}
    writer.append(**row)
    with pytest.raises(ValueError, match=message):
        writer.append(**{name: value for name, value in (row | change).items() if value is not None})


def test_a_finished_trace_and_a_strangers_folder_are_not_overwritten(tmp_path):
    write(tmp_path / "t", logits(2, 9, np.float16), logits(2, 9, np.float16))
    with pytest.raises(ValueError, match="already holds a finished trace"):
        TraceWriter(tmp_path / "t", **NAMES)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").touch()
    with pytest.raises(ValueError, match=r"thesis\.tex"):
        TraceWriter(tmp_path / "mine", **NAMES)


def test_a_writer_that_was_killed_leaves_no_trace_and_can_start_again(tmp_path):
    code = f"""
import numpy as np, time
from simulation.traces import TraceWriter
writer = TraceWriter({str(tmp_path / "t")!r}, target_model="a", draft_model="b", prompts=["x"], temperature=1.0,
                     shard_bytes=1000)
for i in range(50):
    writer.append(np.zeros(100, np.float16), np.zeros(100, np.float16), prompt=0, position=i)
print("ready", flush=True)
time.sleep(60)
"""
    process = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert any((tmp_path / "t").glob("shard-*"))
    with pytest.raises(ValueError, match="is not finished"):
        Trace(tmp_path / "t")
    write(tmp_path / "t", logits(2, 9, np.float16), logits(2, 9, np.float16))
    assert len(Trace(tmp_path / "t")) == 2
    listed = {shard["file"] for shard in Trace(tmp_path / "t").header["shards"]}
    assert {path.name for path in (tmp_path / "t").iterdir()} == listed | {HEADER}


KILLED_AFTER_CHECKPOINTS = """
import numpy as np, time
from simulation.traces import TraceWriter
writer = TraceWriter({folder!r}, target_model="a", draft_model="b", prompts=["x", "y", "z"], temperature=1.0,
                     shard_bytes=1000)
for prompt in range(3):
    for i in range(7):
        row = np.random.default_rng([prompt, i]).normal(size=(2, 100)).astype(np.float16)
        writer.append(*row, prompt=prompt, position=i)
    if prompt == {last}:
        print("ready", flush=True)
        time.sleep(60)
    writer.checkpoint(prompt + 1)
writer.close()
print("ready", flush=True)
"""


def killed_writer(folder, last):
    """Runs a writer of three prompts up to where `last` is about to be secured, or to the end."""
    code = KILLED_AFTER_CHECKPOINTS.format(folder=str(folder), last=last)
    process = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGKILL)
    process.wait()


@pytest.mark.parametrize("last", [0, 1, 2])
def test_a_writer_that_was_killed_goes_on_from_its_checkpoint(tmp_path, last):
    killed_writer(tmp_path / "whole", None)
    killed_writer(tmp_path / "cut", last)
    assert (tmp_path / "cut" / UNFINISHED).exists() == (last > 0)
    how = {"target_model": "a", "draft_model": "b", "prompts": ["x", "y", "z"], "shard_bytes": 1000}
    if last:
        with pytest.raises(ValueError, match=r"unfinished trace of another run \(temperature 1.0, not 0.5\)"):
            TraceWriter(tmp_path / "cut", **how, temperature=0.5)
        with pytest.raises(ValueError, match=r"\(other prompts; target_model \"a\", not \"c\"\)"):
            TraceWriter(tmp_path / "cut", **(how | {"prompts": ["x" * 99], "target_model": "c"}), temperature=1.0)
    writer = TraceWriter(tmp_path / "cut", **how, temperature=1.0)
    assert (writer.done, writer.rows) == (last, 7 * last)
    for prompt in range(writer.done, 3):
        for i in range(7):
            row = np.random.default_rng([prompt, i]).normal(size=(2, 100)).astype(np.float16)
            writer.append(*row, prompt=prompt, position=i)
        writer.checkpoint(prompt + 1)
    writer.close()
    files = [{path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in ("whole", "cut")]
    assert files[0] == files[1]
    assert len(Trace(tmp_path / "cut")) == 21


def test_a_checkpoint_whose_shard_was_damaged_is_refused(tmp_path):
    killed_writer(tmp_path / "t", 2)
    os.truncate(tmp_path / "t" / "shard-00001.safetensors", 100)
    with pytest.raises(ValueError, match=r"shard-00001.*has 100 bytes and should have"):
        TraceWriter(tmp_path / "t", target_model="a", draft_model="b", prompts=["x", "y", "z"], temperature=1.0)
    (tmp_path / "t" / UNFINISHED).write_text("{")
    with pytest.raises(ValueError, match=r"unfinished\.json is not readable"):
        TraceWriter(tmp_path / "t", target_model="a", draft_model="b", prompts=["x", "y", "z"], temperature=1.0)


def test_an_exception_while_recording_leaves_no_trace(tmp_path):
    def record():
        with TraceWriter(tmp_path / "t", **NAMES) as writer:
            writer.append(np.zeros(9, np.float16), np.zeros(9, np.float16), prompt=0, position=0)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        record()
    assert not (tmp_path / "t" / HEADER).exists()


def test_workers_can_be_sent_a_trace():
    trace = pickle.loads(pickle.dumps(Trace(SMALL)))
    assert len(trace) == 12


def test_the_shipped_trace_is_whole():
    trace = Trace(SMALL)
    assert (len(trace), trace.vocab_size, len(trace.prompts)) == (12, 49152, 4)
    assert trace.column("position").tolist() == [61, 66, 71, 90, 95, 100, 66, 71, 76, 96, 101, 106]
    overlap = [np.minimum(*(softmax(x.astype(float)) for x in trace.logits(i))).sum() for i in range(12)]
    # sum of min(p, q) at T = 1, computed from the original arrays
    assert np.allclose(overlap[:4], [0.185, 0.295, 0.101, 0.254], atol=6e-4)
    assert json.loads((SMALL / HEADER).read_text())["rows"] == 12

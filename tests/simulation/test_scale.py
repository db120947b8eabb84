"""Size and speed that a study must stand: a trace larger than the memory, and the grid of a real vocabulary."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from simulation.study import Study

ROOT = Path(__file__).parents[2]

BIG_TRACE = """
import resource, sys
import numpy as np
GIB = 2**30
resource.setrlimit(resource.RLIMIT_AS, (3 * GIB, 3 * GIB))
from simulation.study import Study
from simulation.traces import Trace, TraceWriter

try:
    np.ones(4 * GIB, dtype=np.uint8)
except MemoryError:
    pass
else:
    sys.exit("the limit does not bite")
V, rows = 152_064, 3600
models = {"target_model": "a", "draft_model": "b", "prompts": ["x"], "temperature": 1.0}
logits = np.random.default_rng(0).normal(scale=3, size=(8, V)).astype(np.float32)
with TraceWriter(sys.argv[1], **models, dtype="float32") as out:
    for row in range(0, rows, 4):
        out.append(logits[:4], logits[4:], prompt=0, position=np.arange(row, row + 4))
assert sum(shard["bytes"] for shard in Trace(sys.argv[1]).header["shards"]) > 4 * GIB
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
results = Study(sources=(sys.argv[1],), samplers=("with-replacement",), verifiers=("single-draft",), n=(1,)).run()
assert results.rows[0]["positions"] == rows
rates = np.array(results.cells[0]["verifiers"]["single-draft"]["rate"]).reshape(-1, 4)
assert (rates == rates[0]).all()
print(before, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.slow
def test_memory_stays_flat_on_a_trace_of_four_gibibytes(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", BIG_TRACE, str(tmp_path / "big")], cwd=ROOT, capture_output=True, text=True
    )
    for shard in (tmp_path / "big").glob("*"):
        shard.unlink()
    assert done.returncode == 0, done.stderr
    after_writing, after_the_study = map(int, done.stdout.split())  # KiB
    assert after_writing < 1.5 * 2**20
    assert after_the_study < 1.5 * 2**20


@pytest.mark.slow
def test_the_real_grid_takes_less_than_five_minutes_on_two_cores(tmp_path):
    study = Study(
        sources=("synthetic:zipf,V=49152,entropy=3,distance=0.4,positions=256",),
        samplers=("with-replacement", "without-replacement", "greedy", "top-then-sample:2"),
        verifiers=("rrs", "kseq", "greedy", "convex-minorant"),
        n=(4,),
        temperatures=(0.2, 0.4, 0.7, 1.0, 1.2),
        skip_impossible=True,
    )
    start = time.monotonic()
    results = study.run(tmp_path / "out", workers=2)
    assert time.monotonic() - start < 300
    assert len(results.rows) == 5 * (3 + 1 + 2 + 1)
    assert not results.flagged

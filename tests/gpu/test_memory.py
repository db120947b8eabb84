import sys

import numpy as np
import pytest
import torch

from gpu import memory
from gpu.memory import Peak, PeakMemory

SIZE = 200 * 2**20


def peak_of(work):
    measured = PeakMemory(torch.device("cpu"))
    measured.reset()
    work()
    return measured.read()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux lets the peak be reset")
def test_each_piece_of_work_has_its_own_peak():
    base = peak_of(lambda: None)
    if base.of == memory.RESIDENT_SO_FAR:
        pytest.skip("this system does not let the peak be reset")
    large = peak_of(lambda: np.ones(SIZE, np.uint8).sum())
    after = peak_of(lambda: None)
    assert {base.of, large.of, after.of} == {memory.RESIDENT}
    assert large.bytes - base.bytes > 0.9 * SIZE
    assert large.bytes - after.bytes > 0.9 * SIZE


@pytest.mark.skipif(sys.platform == "win32", reason="no peak there")
def test_a_peak_that_cannot_be_reset_is_called_what_it_is(monkeypatch):
    def forbidden(path, text):
        raise PermissionError

    monkeypatch.setattr(memory.Path, "write_text", forbidden)
    first = peak_of(lambda: np.ones(SIZE, np.uint8).sum())
    second = peak_of(lambda: None)
    assert first.of == second.of == memory.RESIDENT_SO_FAR
    assert second.bytes >= first.bytes > SIZE


def test_on_gpus_it_is_the_sum_of_their_tensors(monkeypatch):
    peaks, reset = [7, 5], []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda gpu: peaks[gpu])
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", reset.append)
    measured = PeakMemory(torch.device("cuda"))
    measured.reset()
    assert reset == [0, 1]
    assert measured.read() == Peak(12, memory.ON_GPUS)


@pytest.mark.cuda
def test_cuda_peak_of_one_piece_of_work():
    measured = PeakMemory(torch.device("cuda"))
    torch.empty(4 * SIZE, dtype=torch.uint8, device="cuda")
    measured.reset()
    before = measured.read().bytes
    torch.empty(SIZE, dtype=torch.uint8, device="cuda")
    assert 0.9 * SIZE < measured.read().bytes - before < 1.5 * SIZE

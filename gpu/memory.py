"""Peak memory of a piece of work, as near as the system tells it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

import torch

ON_GPUS = "tensors on the GPUs"
RESIDENT = "resident memory of the process"
RESIDENT_SO_FAR = "resident memory of the process since its start"


class Peak(NamedTuple):
    """The most bytes in use, and of what: ON_GPUS, RESIDENT (both since `PeakMemory.reset`) or RESIDENT_SO_FAR."""

    bytes: int
    of: str


class PeakMemory:
    """Measures what happens between `reset` and `read`.

    With a model on CUDA, PyTorch's own peak summed over all GPUs. Else the process's resident memory, model and all;
    Linux lets its peak be reset, elsewhere it is the peak since the process began (`Peak.of` says which).
    """

    def __init__(self, device: torch.device) -> None:
        self.gpus = range(torch.cuda.device_count()) if device.type == "cuda" else ()
        self.was_reset = False

    def reset(self) -> None:
        for gpu in self.gpus:
            torch.cuda.reset_peak_memory_stats(gpu)
        try:
            Path("/proc/self/clear_refs").write_text("5")  # proc(5): resets VmHWM to what is in use now
            self.was_reset = True
        except OSError:
            self.was_reset = False

    def read(self) -> Peak | None:
        """None where the system does not say."""
        if self.gpus:
            return Peak(sum(torch.cuda.max_memory_allocated(gpu) for gpu in self.gpus), ON_GPUS)
        if self.was_reset and (peak := _high_water_mark()):
            return Peak(peak, RESIDENT)
        try:
            import resource
        except ModuleNotFoundError:  # Windows
            return None
        used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return Peak(used if sys.platform == "darwin" else used * 1024, RESIDENT_SO_FAR)


def _high_water_mark() -> int | None:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024  # kB
    return None

"""A device that only pretends to be one, to find on a CPU what would go wrong, or wait, on another device.

Its tensors are computed on the CPU. They refuse to meet tensors of the CPU where CUDA would, and every time the host
has to wait for the device (a value read, a copy either way, a shape that depends on values) is noted with the line of
`gpu` that asked. It stands for any device that is not the CPU; what is particular to CUDA (its kernels, its memory,
its streams) it cannot show.

PyTorch keeps the registration for the life of a process, so whoever imports this wants a process of his own.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

DEVICE = "elsewhere"
_aten = torch.ops.aten
_READS = {_aten._local_scalar_dense.default, _aten.nonzero.default, _aten.masked_select.default, _aten.equal.default}
_INDEXED = {_aten.index.Tensor, _aten.index_put.default, _aten.index_put_.default}
_COPIES = {_aten._to_copy.default, _aten.copy_.default}

_setup_privateuseone_for_python_backend(DEVICE)
# torch.tensor(data, device=...) then goes the way of every other operation: made on the CPU, then moved.
torch._C._set_only_lift_cpu_tensors(True)

waits: list[str] = []


class Elsewhere(Tensor):
    """A tensor of that device; `held` is the one that is computed with."""

    @staticmethod
    def __new__(cls, held: Tensor) -> Elsewhere:
        return torch.Tensor._make_wrapper_subclass(
            cls,
            held.shape,
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            device=DEVICE,
        )

    def __init__(self, held: Tensor) -> None:
        self.held = held

    def tolist(self) -> list:
        _wait("tolist")
        return self.held.tolist()

    def numpy(self) -> None:
        raise TypeError(f"numpy() of a tensor {DEVICE}; copy it to the host first")

    @classmethod
    def __torch_dispatch__(cls, operation, types, args=(), kwargs=None):
        return _run(operation, args, kwargs or {})


class _Everything(TorchDispatchMode):
    """Operations without a tensor of the device among their arguments, such as torch.zeros(device=...)."""

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        return _run(operation, args, kwargs or {})


@contextmanager
def elsewhere() -> Iterator[list[str]]:
    """Within it the device exists. Yields the waits so far, a line of source each, oldest first."""
    waits.clear()
    generator = torch.Generator
    torch.Generator = _Generator
    try:
        with _Everything(), torch.no_grad():
            yield waits
    finally:
        torch.Generator = generator


class _Generator(torch.Generator):
    """A generator of any device draws what the CPU's would."""

    def __new__(cls, device: object = None) -> _Generator:
        return super().__new__(cls)


def _wait(what: object) -> None:
    frames = [
        frame for frame in traceback.extract_stack() if "/gpu/" in frame.filename and "/tests/" not in frame.filename
    ]
    waits.append(f"{what}: {frames[-1].line}" if frames else str(what))


def _run(operation, args: tuple, kwargs: dict):
    tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
    there = [x for x in tensors if isinstance(x, Elsewhere)]
    here = [x for x in tensors if not isinstance(x, Elsewhere)]
    asked = None if kwargs.get("device") is None else torch.device(kwargs["device"]).type
    if operation in _COPIES:
        goes = asked == DEVICE if asked else isinstance(args[0], Elsewhere)
        comes = args[-1] if operation is _aten.copy_.default else args[0]
        if goes != isinstance(comes, Elsewhere):
            _wait("copy")
    else:
        goes = asked == DEVICE or (bool(there) and asked is None)
        # A number without dimensions may come along from the host; an index may not, as it would be copied each time.
        strays = [tuple(x.shape) for x in here if x.dim()]
        if there and strays:
            raise RuntimeError(f"{operation}: tensors of the CPU, of shapes {strays}, meet tensors {DEVICE}")
    if there and (operation in _READS or (operation in _INDEXED and _is_mask(args[1]))):
        _wait(operation)
    if operation is _aten._fused_sdp_choice.default:
        return 0  # attention written out in plain operations
    plain = {**kwargs, "device": torch.device("cpu")} if asked else kwargs
    out = operation(*tree_map(_held, args), **tree_map(_held, plain))
    if goes:
        out = tree_map(lambda x: Elsewhere(x) if isinstance(x, Tensor) and not isinstance(x, Elsewhere) else x, out)
    return return_and_correct_aliasing(operation, args, kwargs, out) if there or goes else out


def _held(x: object) -> object:
    return x.held if isinstance(x, Elsewhere) else x


def _is_mask(indices: list) -> bool:
    return any(index is not None and index.dtype == torch.bool for index in indices)

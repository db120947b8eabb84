"""One shard of a trace: a safetensors file written whole, and where its tensors lie, for mapping."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from mdsd_theory.files import written_whole

STORED = {"F16": np.float16, "BF16": np.uint16, "F32": np.float32, "F64": np.float64, "I32": np.int32}


def write(path: Path, tensors: dict[str, np.ndarray], logits_dtype: str) -> tuple[str, int]:
    """Write one shard under a temporary name, rename it; return its sha256 and size.

    Written here rather than with safetensors.numpy, which has no bfloat16 without a further package; the tests read the
    shards back with the safetensors library.
    """
    names = {np.dtype(np.int32): "I32", np.dtype(np.float64): "F64"}
    layout, offset = {}, 0
    tensors = dict(sorted(tensors.items(), key=lambda item: -item[1].itemsize))  # every tensor aligned to its own dtype
    for name, array in tensors.items():
        end = offset + array.nbytes
        dtype = names.get(array.dtype, logits_dtype)
        layout[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [offset, end]}
        offset = end
    header = json.dumps(layout).encode()
    header += b" " * (-len(header) % 8)  # data starts aligned
    digest = hashlib.sha256()
    with written_whole(path) as temporary, temporary.open("wb") as out:
        for data in [len(header).to_bytes(8, "little"), header, *(np.ascontiguousarray(a) for a in tensors.values())]:
            digest.update(data)
            out.write(data)
        size = out.tell()
    return digest.hexdigest(), size


def read_layout(path: Path, size: int) -> dict[str, tuple[Any, int, tuple[int, ...]]]:
    """name -> (NumPy dtype, byte offset in the file, shape) of a safetensors file that must have `size` bytes."""
    if not path.is_file():
        raise ValueError(f"shard {path} is missing")
    if (found := path.stat().st_size) != size:
        raise ValueError(f"shard {path} has {found} bytes and should have {size}: it is truncated or was changed")
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            entries = json.loads(file.read(length))
        layout = {
            name: (STORED[entry["dtype"]], 8 + length + entry["data_offsets"][0], tuple(entry["shape"]))
            for name, entry in entries.items()
            if name != "__metadata__"
        }
        ends = [offset + np.dtype(dtype).itemsize * int(np.prod(shape)) for dtype, offset, shape in layout.values()]
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError) as error:
        raise ValueError(f"shard {path} is not a readable safetensors file: {error!r}") from None
    if max(ends, default=0) > size:
        raise ValueError(f"shard {path} is shorter than its own header says")
    return layout

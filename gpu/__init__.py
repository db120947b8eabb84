"""Multi-draft speculative decoding of transformers models: any tree, any sampler, any verifier, measured and lossless.

from gpu import decode, load_target, drafters
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpu.decoding import decode, decode_batch, stream
    from gpu.distributions import Sampling
    from gpu.method import Method
    from gpu.models import load_target
    from gpu.records import Record

_HOME = {
    "Method": "method",
    "Record": "records",
    "Sampling": "distributions",
    "decode": "decoding",
    "decode_batch": "decoding",
    "load_target": "models",
    "stream": "decoding",
}

__all__ = ["Method", "Record", "Sampling", "decode", "decode_batch", "load_target", "stream"]


def __getattr__(name: str) -> object:
    """Import torch only when something that needs it is asked for: the command line lists commands without."""
    if name not in _HOME:
        raise AttributeError(f"module gpu has no attribute {name!r}")
    return getattr(import_module(f"gpu.{_HOME[name]}"), name)

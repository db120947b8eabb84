"""Drafters by name: `make("early-exit:26", target)`. Adding a kind is one file here and one line in KINDS."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpu.drafters.base import Drafter
    from gpu.models import LoadedModel

KINDS = {
    "bundled": "gpu.drafters.bundled:from_spec",
    "eagle": "gpu.drafters.eagle:from_spec",
    "early-exit": "gpu.drafters.early_exit:from_spec",
    "layers": "gpu.drafters.lens:from_spec",
    "lens": "gpu.drafters.lens:from_spec",
    "mixture": "gpu.drafters.mixture:from_spec",
    "ngram": "gpu.drafters.ngram:from_spec",
}
"""kind -> "module:function", a function (target, argument, pad_vocab) -> Drafter for the spec "kind:argument"."""


def make(spec: str, target: LoadedModel, pad_vocab: bool = False) -> Drafter:
    """The drafter for a target from its command-line name: "kind:argument" with a kind of KINDS, else a model by Hub
    id, folder or GGUF file.

    Raises ValueError for arguments that make no sense or a model with another vocabulary, OSError for one that is not
    there.
    """
    kind, _, argument = spec.partition(":")
    if kind not in KINDS:
        from gpu.drafters.causal_lm import from_spec

        return from_spec(target, spec, pad_vocab)
    module, function = KINDS[kind].split(":")
    return getattr(import_module(module), function)(target, argument, pad_vocab)

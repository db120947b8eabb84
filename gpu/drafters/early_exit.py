"""The target's own first layers as drafter: its final norm and head on the hidden states of layer k, weights shared."""

from __future__ import annotations

import copy
from functools import partial, update_wrapper
from types import MethodType

from torch import nn
from transformers import PreTrainedModel

from gpu.drafters.causal_lm import CausalLM
from gpu.models import LoadedModel


class EarlyExit(CausalLM):
    """First `layers` layers of the target, then its final norm and head; nothing is trained or copied."""

    def __init__(self, target: PreTrainedModel, layers: int) -> None:
        super().__init__(cut(target, layers), f"early exit after layer {layers}")


def cut(model: PreTrainedModel, layers: int) -> PreTrainedModel:
    """The model with its first `layers` layers only, sharing all weights with the original, which is left as it is.

    Raises ValueError unless 1 <= layers < the model's number, or when the stack of layers cannot be found.
    """
    config = model.config.get_text_config(decoder=True)
    total = config.num_hidden_layers
    if not 1 <= layers < total:
        raise ValueError(f"early exit after layer {layers}: the model has {total} layers; give 1 to {total - 1}")
    stacks = [name for name, part in model.named_modules() if isinstance(part, nn.ModuleList) and len(part) == total]
    if len(stacks) != 1:
        raise ValueError(f"{type(model).__name__}: found {len(stacks)} stacks of {total} layers; early exit needs one")
    short_config = copy.deepcopy(config)
    short_config.num_hidden_layers = layers
    if getattr(config, "layer_types", None):
        short_config.layer_types = config.layer_types[:layers]

    top = part = _shallow_copy(model, short_config)
    *path, last = stacks[0].split(".")
    for name in path:
        part._modules[name] = _shallow_copy(part._modules[name], short_config)
        part = part._modules[name]
    part._modules[last] = nn.ModuleList(part._modules[last][:layers])
    return top


def _shallow_copy(module: nn.Module, config: object) -> nn.Module:
    """A module of its own over the same parameters and sub-modules."""
    twin = copy.copy(module)
    twin._modules = dict(module._modules)
    if "_old_forward" in vars(twin):  # accelerate (device_map) has bound a wrapper of forward to the original
        twin._old_forward = MethodType(type(twin).forward, twin)
        twin.forward = update_wrapper(partial(twin.forward.func, twin), twin._old_forward)
    if hasattr(twin, "config"):
        twin.config = config
    return twin


def from_spec(target: LoadedModel, argument: str, pad_vocab: bool = False) -> EarlyExit:
    """Drafter "early-exit:K"."""
    if not argument.isdecimal():
        raise ValueError(f"drafter early-exit:{argument}: give the number of layers, as in early-exit:26")
    return EarlyExit(target.model, int(argument))

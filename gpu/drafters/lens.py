"""The target's first k layers as drafter, with a trained ending: a linear lens in closed form, or layers of their own.

Lens: the drafter's feature is A h + b, h the hidden state after layer k, where (A, b) is the ridge regression of the
target's last hidden state f (after its final norm) on h,

    min  sum ||A h + b - f||^2 + penalty * sum_j s_j ||A_j||^2,     s_j the second moment of h_j,

and the target's head turns it into logits ("tuned lens", Belrose et al., arXiv 2303.08112, with least squares in place
of gradient descent). One pass over the data: only h h^T and h f^T are summed, in float64, so the same data in the same
order give the same lens bit for bit.
"""

from __future__ import annotations

import copy
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from gpu.drafters.causal_lm import CausalLM
from gpu.drafters.eagle import check_tensors, read_tensors
from gpu.drafters.early_exit import cut
from gpu.models import LoadedModel

PENALTY = 1e-4


class Ridge:
    """Streaming ridge regression from hidden states (N, d) to features (N, d), with a constant."""

    def __init__(self, width: int) -> None:
        self.gram = torch.zeros(width + 1, width + 1, dtype=torch.float64)
        self.cross = torch.zeros(width + 1, width, dtype=torch.float64)

    def add(self, hidden: Tensor, features: Tensor) -> None:
        x = torch.nn.functional.pad(hidden.double().cpu(), (0, 1), value=1.0)
        self.gram += x.T @ x
        self.cross += x.T @ features.double().cpu()

    def solve(self) -> Tensor:
        """(d, d + 1), float32: A and then b. Raises ValueError when nothing was added."""
        if not self.gram[-1, -1] > 0:
            raise ValueError("no training text: the lens cannot be fitted")
        ridge = self.gram.clone()
        ridge.diagonal()[:-1] *= 1 + PENALTY
        ridge.diagonal()[:-1] += 1e-9
        return torch.linalg.solve(ridge, self.cross).T.float().contiguous()


class Lens(CausalLM):
    """First `layers` layers, then the lens in place of the final norm, then the target's head."""

    def __init__(self, target: PreTrainedModel, layers: int, matrix: Tensor) -> None:
        super().__init__(with_lens(target, layers, matrix), f"lens after layer {layers}")


def before_norm(target: PreTrainedModel, layers: int) -> PreTrainedModel:
    """The first layers without final norm."""
    return _with_norm(cut(target, layers), nn.Identity())


def with_lens(target: PreTrainedModel, layers: int, matrix: Tensor) -> PreTrainedModel:
    width = matrix.shape[0]
    short = cut(target, layers)
    device = next((p.device for p in getattr(short.base_model, "norm", short).parameters()), target.device)
    lens = nn.Linear(width, width, device=device, dtype=target.dtype)
    with torch.no_grad():
        lens.weight.copy_(matrix[:, :-1])
        lens.bias.copy_(matrix[:, -1])
    return _with_norm(short, lens.requires_grad_(False))


def hidden(short: PreTrainedModel, tokens: Tensor) -> Tensor:
    """Hidden states (T, d) of tokens (T,)."""
    with torch.no_grad():
        return short.base_model(input_ids=tokens[None].to(short.device), use_cache=False).last_hidden_state[0]


def own_copy(short: PreTrainedModel) -> PreTrainedModel:
    """A cut model whose layers and final norm are its own, to be trained; embedding and head stay shared and frozen.

    Raises ValueError for an architecture that names them otherwise than Llama does.
    """
    base = short.base_model
    for name in ("layers", "norm"):
        if not hasattr(base, name):
            raise ValueError(f"{type(short).__name__} has no `{name}`; a drafter of trained layers needs it")
        setattr(base, name, copy.deepcopy(getattr(base, name)))
    return short


def packed(matrix: Tensor, layers: int) -> dict[str, Tensor]:
    return {"lens": matrix, "layers": torch.tensor(layers)}


def packed_layers(model: PreTrainedModel, layers: int) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors (float16) and metadata of trained layers."""
    base = model.base_model
    tensors = {
        f"{part}.{name}": tensor.detach().half().contiguous()
        for part in ("layers", "norm")
        for name, tensor in getattr(base, part).state_dict().items()
    }
    return tensors | {"layers": torch.tensor(layers)}, {"kind": "layers"}


def load(path: str | Path, target: LoadedModel) -> CausalLM:
    """A drafter file of kind "lens" or "layers".

    Raises FileNotFoundError, or ValueError naming the tensor and the expected shape.
    """
    path = Path(path).expanduser()
    if not path.is_file():
        raise FileNotFoundError(f"no drafter at {path}")
    tensors, metadata = read_tensors(path)
    if metadata.get("kind") not in ("lens", "layers") or "layers" not in tensors:
        raise ValueError(f"{path} is no lens or layers drafter (its kind is {metadata.get('kind', 'not given')})")
    check_tensors(path, tensors, {"layers": ()})
    layers = int(tensors.pop("layers"))
    if metadata["kind"] == "lens":
        width = target.model.get_output_embeddings().weight.shape[1]
        check_tensors(path, tensors, {"lens": (width, width + 1)})
        return Lens(target.model, layers, tensors["lens"])
    short = own_copy(cut(target.model, layers))
    parts = {
        f"{part}.{n}": p for part in ("layers", "norm") for n, p in getattr(short.base_model, part).state_dict().items()
    }
    check_tensors(path, tensors, {name: tuple(tensor.shape) for name, tensor in parts.items()})
    with torch.no_grad():
        for name, tensor in parts.items():
            tensor.copy_(tensors[name])
    return CausalLM(short.requires_grad_(False).eval(), f"{layers} trained layers")


def _with_norm(short: PreTrainedModel, norm: nn.Module) -> PreTrainedModel:
    """A cut model (its modules are its own, their parameters the target's) with another final norm."""
    if not hasattr(short.base_model, "norm"):
        raise ValueError(f"{type(short).__name__} has no final norm called `norm`; a lens needs one")
    short.base_model._modules["norm"] = norm
    return short


def from_spec(target: LoadedModel, argument: str, pad_vocab: bool = False) -> CausalLM:
    """Drafter "lens:FILE" (also for trained layers)."""
    if not argument:
        raise ValueError("drafter lens: give the file, as in lens:drafter.safetensors")
    return load(argument, target)

"""Target and drafter models: from the Hub, a folder, a GGUF file, or the bundled default."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

DTYPES = ("float32", "bfloat16", "float16")


@dataclass(frozen=True)
class LoadedModel:
    """A causal language model ready to run (evaluation mode, no gradients) with its tokenizer."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    name: str

    @property
    def vocab_size(self) -> int:
        """Length of the logits, which may exceed the number of tokens the tokenizer knows."""
        return self.model.get_output_embeddings().weight.shape[0]


def load_target(
    source: str | Path | None = None,
    dtype: str | torch.dtype | None = None,
    device: str | torch.device | None = None,
    device_map: str | dict | None = None,
) -> LoadedModel:
    """Load a causal language model and its tokenizer.

    source: a Hub id, a folder in transformers' format, a path to a ``.gguf`` file, or None for the bundled
    SmolLM2-135M-Instruct. dtype: one of DTYPES, by default float32 on the CPU (16-bit arithmetic is slower there) and
    the checkpoint's own elsewhere. device: by default CUDA when there is one. device_map: handed to transformers (needs
    accelerate), instead of device; not for GGUF files.

    Raises ValueError for arguments that make no sense and OSError when the model is not there.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from gpu.bundled import NAME, bundled_folder, quiet_transformers

    if device is not None and device_map is not None:
        raise ValueError("device and device_map: give one of them, not both")
    if device_map is not None and find_spec("accelerate") is None:
        raise ValueError(f"device_map {device_map!r} needs accelerate: pip install accelerate")
    device = _device(device)
    dtype = _dtype(dtype, device if device_map is None else None)
    path, name = (bundled_folder(), NAME) if source is None else (Path(source).expanduser(), str(source))
    gguf = source is not None and (path.suffix == ".gguf" or path.is_file())
    if gguf and device_map is not None:
        raise ValueError(f"device_map {device_map!r}: a GGUF file is read onto one device; give device instead")
    if gguf and not path.is_file():
        raise FileNotFoundError(f"no GGUF file {path}")
    try:
        if gguf:
            model, tokenizer = _from_gguf(path, dtype)
        else:
            where = str(path) if path.exists() else name
            with quiet_transformers() if source is None else nullcontext():
                tokenizer = AutoTokenizer.from_pretrained(where)
                model = AutoModelForCausalLM.from_pretrained(where, dtype=dtype, device_map=device_map)
    except Exception as error:  # a damaged file shows as any of many, SafetensorError among them
        raise OSError(f"cannot load model {name!r}: {_one_line(error)}") from error
    if device_map is None:
        model = model.to(device)
    elif model.device.type == "meta":
        raise ValueError(f"device_map {device_map!r}: the input embedding of {name} must be on a device, not offloaded")
    model = model.eval().requires_grad_(False)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return LoadedModel(model, tokenizer, name)


def load_bundled(dtype: str | None = None, device: str | None = None) -> LoadedModel:
    """The bundled SmolLM2-135M-Instruct, fetched on first use (``gpu.bundled``)."""
    return load_target(None, dtype, device)


def common_vocabulary(target: LoadedModel, drafter: LoadedModel, pad_vocab: bool = False) -> int:
    """The vocabulary size both models draft and verify in.

    Equal sizes pass. Sizes that differ (a checkpoint padded for speed, a drafter without the newest special tokens) are
    refused unless pad_vocab, which gives the tokens the shorter one lacks probability zero (``pad_logits``). Tokenizers
    that give one text different ids are always refused: drafts would be noise.
    """
    theirs, ours = drafter.tokenizer.get_vocab(), target.tokenizer.get_vocab()
    differing = [token for token, index in theirs.items() if ours.get(token, index) != index]
    if differing or not theirs.keys() & ours.keys():
        example = f", {differing[0]!r} for one" if differing else ""
        raise ValueError(
            f"target {target.name} and drafter {drafter.name} have different tokenizers "
            f"({len(differing)} tokens with other ids{example})"
        )
    sizes = target.vocab_size, drafter.vocab_size
    if sizes[0] != sizes[1] and not pad_vocab:
        raise ValueError(
            f"target {target.name} and drafter {drafter.name} have vocabularies of {sizes[0]} and {sizes[1]} tokens; "
            "pad_vocab gives the missing ones probability zero"
        )
    return max(sizes)


def pad_logits(logits: torch.Tensor, vocab_size: int) -> torch.Tensor:
    """Logits (..., V) lengthened to (..., vocab_size) with -inf: probability zero at every temperature."""
    import torch

    if logits.shape[-1] > vocab_size:
        raise ValueError(f"logits have {logits.shape[-1]} entries, more than the vocabulary of {vocab_size}")
    return torch.nn.functional.pad(logits, (0, vocab_size - logits.shape[-1]), value=float("-inf"))


def _from_gguf(path: Path, dtype: torch.dtype | str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from gpu.gguf_reader import UnsupportedGGUF, read_llama

    folder, file = str(path.parent), path.name
    try:
        model = read_llama(path)
        model = model if dtype == "auto" else model.to(dtype)
    except UnsupportedGGUF as unsupported:
        try:
            model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=file, dtype=dtype)
        except Exception as error:
            raise OSError(f"{unsupported}; transformers: {_one_line(error)}") from error
    return model, AutoTokenizer.from_pretrained(folder, gguf_file=file)


def _device(device: str | torch.device | None) -> torch.device:
    import torch

    if device is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(device)
    except RuntimeError as error:
        raise ValueError(f"device {device!r}: {_one_line(error)}") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError("device 'cuda' asked for, but PyTorch finds no CUDA device here; use 'cpu'")
    return device


def _dtype(dtype: str | torch.dtype | None, device: torch.device | None) -> torch.dtype | str:
    import torch

    if dtype is None:
        return torch.float32 if device is not None and device.type == "cpu" else "auto"
    if isinstance(dtype, torch.dtype):
        return dtype
    if dtype not in DTYPES:
        raise ValueError(f"dtype {dtype!r} is not one of {', '.join(DTYPES)}")
    return getattr(torch, dtype)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]

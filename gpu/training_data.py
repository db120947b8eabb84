"""Text to train drafters on, with the target's last hidden state at every token: sampled from the target, or a file.

What a drafter meets while decoding is text the target wrote, so text sampled from the target at T = 1 is the best
training data there is for it, and needs nothing but the target.

A hidden state here (a *feature*) is the target's last one, after the final norm: what its head multiplies. Logits are
then features @ head.T, for the target and for a drafter that predicts features alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from rich.progress import Progress
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from gpu.attention import Reader
from gpu.models import LoadedModel
from gpu.training_prompts import Prompt, held_out_prompts, training_prompts
from mdsd_theory.files import read_text, written_whole

CHUNK_PROMPTS = 128
NEW_TOKENS = 112
HELD_OUT_TOKENS = 64


@dataclass(frozen=True)
class Corpus:
    """Texts laid end to end. N tokens in S texts.

    tokens    int64 (N,).
    features  (N, d), the target's hidden states at them, 16 bit for training, float32 for the held-out texts.
    lengths   int64 (S,), tokens in each text.
    starts    int64 (S,), where in each text the part to learn begins (the prompt is only read).
    """

    tokens: Tensor
    features: Tensor
    lengths: Tensor
    starts: Tensor

    def __len__(self) -> int:
        return len(self.lengths)

    def split(self) -> list[tuple[Tensor, Tensor, int]]:
        """Per text: tokens (T,), features (T, d), start."""
        sizes = self.lengths.tolist()
        return list(zip(self.tokens.split(sizes), self.features.split(sizes), self.starts.tolist(), strict=True))

    def save(self, path: Path) -> None:
        with written_whole(path) as temporary:
            save_file({name: getattr(self, name).contiguous() for name in self.__dataclass_fields__}, temporary)

    @classmethod
    def load(cls, path: Path) -> Corpus:
        """Raises ValueError for a file that is not a corpus."""
        try:
            with safe_open(path, "pt") as file:
                return cls(**{name: file.get_tensor(name) for name in cls.__dataclass_fields__})
        except SafetensorError as error:
            raise ValueError(f"{path} is not training data: {error}") from error


def encode(prompt: Prompt, tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """A prompt's token ids: as it stands, or as the user's message of the chat template where there is one."""
    if prompt.is_message and tokenizer.chat_template:
        message = [{"role": "user", "content": prompt.text}]
        return tokenizer.apply_chat_template(message, add_generation_prompt=True, return_dict=True)["input_ids"]
    return tokenizer(prompt.text).input_ids


def sample(
    target: LoadedModel, prompts: list[list[int]], new_tokens: int, seed: int, batch: int, progress: Progress | None
) -> Corpus:
    """Continue every prompt by up to new_tokens drawn from the target at T = 1, ending after EOS.

    Runs in the dtype of the target's weights; features are kept in that dtype.
    """
    generator = torch.Generator(target.model.device).manual_seed(seed)
    texts: list[tuple[list[int], Tensor, int]] = []
    task = progress and progress.add_task("sampling from the target", total=len(prompts) * new_tokens)
    for first in range(0, len(prompts), batch):
        chosen = prompts[first : first + batch]
        rows: dict[int, tuple[list[int], Tensor, int]] = {}
        for step, finished in enumerate(_continue(target, chosen, new_tokens, generator)):
            rows |= finished
            if progress:
                progress.update(task, completed=(first * new_tokens) + len(chosen) * min(step + 1, new_tokens))
        texts += [rows[row] for row in range(len(chosen))]
    return _corpus(texts)


def self_sampled(target: LoadedModel, index: int, seed: int, progress: Progress | None = None) -> Corpus:
    """The index-th piece of the target's own text: CHUNK_PROMPTS training prompts continued by NEW_TOKENS each."""
    prompts = training_prompts((index + 1) * CHUNK_PROMPTS, seed)[-CHUNK_PROMPTS:]
    encoded = [encode(prompt, target.tokenizer) for prompt in prompts]
    return sample(target, encoded, NEW_TOKENS, hash_seed(seed, index), CHUNK_PROMPTS, progress)


def held_out(target: LoadedModel, seed: int, progress: Progress | None = None) -> Corpus:
    """Continuations of the held-out prompts, HELD_OUT_TOKENS each, in the order of the kinds."""
    encoded = [encode(prompt, target.tokenizer) for prompt in held_out_prompts()]
    return sample(target, encoded, HELD_OUT_TOKENS, hash_seed(seed, -1), len(encoded), progress)


def hash_seed(*parts: int) -> int:
    """One seed for each use of a user's seed."""
    return int(np.random.SeedSequence([part % (1 << 32) for part in parts]).generate_state(1)[0])


def read(target: LoadedModel, files: list[Path], length: int, limit: int, progress: Progress | None) -> Corpus:
    """Cut text files into pieces of length tokens and run the target over them; at most limit tokens, spread evenly.

    Raises ValueError for a file that is empty or not UTF-8.
    """
    pieces = []
    for file in files:
        ids = target.tokenizer(read_text(file)).input_ids
        pieces += [ids[i : i + length] for i in range(0, len(ids), length) if len(ids[i : i + length]) > 1]
    if not pieces:
        raise ValueError(f"no text to learn from in {', '.join(map(str, files)) or 'the given files'}")
    wanted = max(1, limit // length)
    pieces = pieces[:: max(1, len(pieces) // wanted)][:wanted]
    texts = []
    for piece in progress.track(pieces, description="running the target over the text") if progress else pieces:
        tokens = torch.tensor([piece], device=target.model.device)
        with torch.no_grad():
            texts.append((piece, last_hidden(target.model, tokens)[0], 0))
    return _corpus(texts)


def last_hidden(model: PreTrainedModel, tokens: Tensor) -> Tensor:
    """Features (B, T, d) of tokens (B, T)."""
    return model.base_model(input_ids=tokens, use_cache=False).last_hidden_state


def _continue(
    target: LoadedModel, prompts: list[list[int]], new_tokens: int, generator: torch.Generator
) -> Iterator[dict]:
    """Yield, step after step, the texts that the step finished: row -> (tokens, features, start)."""
    device, eos = target.model.device, target.tokenizer.eos_token_id
    reader = Reader(target.model, len(prompts))
    prefix = reader.read_texts([prompt[:-1] for prompt in prompts], hidden=True)
    tokens = torch.tensor([[prompt[-1]] for prompt in prompts], device=device)
    written, features = [tokens], []
    unfinished = set(range(len(prompts)))

    def text(row: int) -> tuple[list[int], Tensor, int]:
        before = prompts[row][:-1]
        new = [column[row].item() for column in written[: len(features)]]
        seen = torch.stack([column[row] for column in features])
        if before:
            seen = torch.cat([prefix.hidden[row, : len(before)], seen])
        return before + new, seen, len(before)

    for step in range(new_tokens):
        depth = torch.full_like(tokens, step)
        visible = torch.ones((len(prompts), 1, step + 1), dtype=torch.bool, device=device)
        output = reader.read(tokens, depth, visible, hidden=True)
        features.append(output.hidden[:, 0])
        tokens = _draw(output.logits[:, 0], generator)
        written.append(tokens)
        ended = [row for row in unfinished if tokens[row] == eos and step > 0]
        unfinished -= set(ended)
        yield {row: text(row) for row in ended}
        if not unfinished:
            return
    yield {row: text(row) for row in unfinished}


def _draw(logits: Tensor, generator: torch.Generator) -> Tensor:
    """One token (B, 1) per row of logits (B, V), by inversion: one uniform number a row, not one a token."""
    cumulative = torch.softmax(logits.float(), -1).double().cumsum(-1)
    uniform = torch.rand((len(logits), 1), generator=generator, dtype=torch.float64, device=logits.device)
    return torch.searchsorted(cumulative, uniform * cumulative[:, -1:], right=True).clamp(max=logits.shape[-1] - 1)


def _corpus(texts: list[tuple[list[int], Tensor, int]]) -> Corpus:
    return Corpus(
        tokens=torch.tensor([token for tokens, _, _ in texts for token in tokens]),
        features=torch.cat([features.cpu() for _, features, _ in texts]),
        lengths=torch.tensor([len(tokens) for tokens, _, _ in texts]),
        starts=torch.tensor([start for _, _, start in texts]),
    )


def select(corpus: Corpus, texts: list[int]) -> Corpus:
    """Some of the texts."""
    split = corpus.split()
    return Corpus(
        tokens=torch.cat([split[i][0] for i in texts]),
        features=torch.cat([split[i][1] for i in texts]),
        lengths=corpus.lengths[texts],
        starts=corpus.starts[texts],
    )


def join(parts: list[Corpus]) -> Corpus:
    return Corpus(*(torch.cat([getattr(part, name) for part in parts]) for name in Corpus.__dataclass_fields__))

"""Text to train drafters on, with the target's last hidden state at every token: sampled from the target, or a file.

What a drafter meets while decoding is text the target wrote, so text sampled from the target at T = 1 is the best
training data there is for it, and needs nothing but the target.

A hidden state here (a *feature*) is the target's last one, after the final norm: what its head multiplies. Logits are
then features @ head.T, for the target and for a drafter that predicts features alike.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.progress import Progress
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from gpu.attention import Reader
from gpu.models import LoadedModel
from gpu.training_prompts import Prompt


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
        partial = path.with_name(path.name + ".partial")
        save_file({name: getattr(self, name).contiguous() for name in self.__dataclass_fields__}, partial)
        os.replace(partial, path)

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
    order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))  # like lengths together: little padding
    for first in range(0, len(order), batch):
        chosen = [prompts[i] for i in order[first : first + batch]]
        for step, finished in enumerate(_continue(target, chosen, new_tokens, generator)):
            texts += finished
            if progress:
                progress.update(task, completed=(first * new_tokens) + len(chosen) * min(step + 1, new_tokens))
    return _corpus(texts)


def read(target: LoadedModel, files: list[Path], length: int, limit: int, progress: Progress | None) -> Corpus:
    """Cut text files into pieces of length tokens and run the target over them; at most limit tokens, spread evenly.

    Raises ValueError for a file that is empty or not UTF-8.
    """
    pieces = []
    for file in files:
        try:
            ids = target.tokenizer(file.read_text(encoding="utf-8")).input_ids
        except UnicodeDecodeError as error:
            raise ValueError(f"{file} is not UTF-8 text: {error}") from error
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


def _continue(target: LoadedModel, prompts: list[list[int]], new_tokens: int, generator: torch.Generator):  # noqa: ANN202
    """Yield, step after step, the texts (tokens, features, start) that the step finished."""
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
        probabilities = torch.softmax(output.logits[:, 0].float(), -1)
        tokens = torch.multinomial(probabilities, 1, generator=generator)
        written.append(tokens)
        ended = [row for row in unfinished if tokens[row] == eos and step > 0]
        unfinished -= set(ended)
        yield [text(row) for row in ended]
        if not unfinished:
            return
    yield [text(row) for row in sorted(unfinished)]


def _corpus(texts: list[tuple[list[int], Tensor, int]]) -> Corpus:
    return Corpus(
        tokens=torch.tensor([token for tokens, _, _ in texts for token in tokens]),
        features=torch.cat([features.cpu() for _, features, _ in texts]),
        lengths=torch.tensor([len(tokens) for tokens, _, _ in texts]),
        starts=torch.tensor([start for _, _, start in texts]),
    )

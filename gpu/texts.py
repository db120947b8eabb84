"""Texts being decoded: from prompts to tokens, taking up what a step emitted, and when they end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Integral

import torch

from gpu.models import LoadedModel
from gpu.prompts import check_unicode
from gpu.records import Record, Visit


@dataclass
class Text:
    """A text being decoded."""

    tokens: list[int]  # the prompt and what was emitted
    record: Record
    generator: torch.Generator
    room: int  # tokens that may still be emitted
    finish_when_full: str  # "length" or "context"


def begin(
    target: LoadedModel,
    prompts: Sequence[str | list[int]],
    max_tokens: int,
    longest: int | None,
    generators: Sequence[torch.Generator | int],
) -> list[Text]:
    """One text per prompt; longest is the most tokens that the models can read, None without limit.

    Raises ValueError for prompts that are empty, too long or not in the vocabulary, and for a wrong number of tokens or
    generators.
    """
    if max_tokens < 1:
        raise ValueError(f"max_tokens must be at least 1, got {max_tokens}")
    if len(generators) != len(prompts):
        raise ValueError(f"generators: got {len(generators)} for {len(prompts)} prompts")
    texts = []
    for prompt, generator in zip(prompts, generators, strict=True):
        tokens = tokenize(target, prompt)
        left = max_tokens if longest is None else longest - len(tokens)
        if left < 1:
            raise ValueError(f"the prompt has {len(tokens)} tokens; the models read at most {longest} in all")
        if not isinstance(generator, torch.Generator):
            generator = _seeded(generator)
        full = "length" if max_tokens <= left else "context"
        texts.append(Text(tokens, Record(list(tokens)), generator, min(left, max_tokens), full))
    if not texts:
        raise ValueError("prompts is empty: there is nothing to decode")
    return texts


def _seeded(seed: int) -> torch.Generator:
    if not isinstance(seed, Integral) or not 0 <= seed < 2**64:
        raise ValueError(f"generators: seed {seed!r}; allowed are integers from 0 to 2**64 - 1 and torch.Generators")
    return torch.Generator().manual_seed(int(seed))


def stop_strings(stop: str | Sequence[str]) -> tuple[str, ...]:
    """One or several stop strings as a tuple. Raises ValueError for an empty one, which every text would contain."""
    stop = (stop,) if isinstance(stop, str) else tuple(stop)
    for end in stop:
        if not isinstance(end, str) or not end:
            raise ValueError(f"stop: {end!r}; allowed are non-empty strings")
        check_unicode(end, "stop")
    return stop


def take_up(
    target: LoadedModel,
    text: Text,
    new: list[int],
    visits: Iterable[tuple[int, int, float]],
    passes: int,
    eos: Sequence[int],
    stop: Sequence[str],
) -> int:
    """Append a step's tokens and say how many were kept; decide whether the text ends.

    visits: number of drafts, accepted child rank and probability of acceptance where each token was emitted. passes: of
    the drafter in this step.
    """
    record = text.record
    if stop:
        new, record.text = _up_to_stop(target, record.tokens, new, stop)
    for depth, (_, visit) in enumerate(zip(new, visits, strict=False)):
        record.visits.append(Visit(record.target_passes, depth, *visit))
    record.tokens += new
    text.tokens += new
    text.room -= len(new)
    record.target_passes += 1
    record.draft_passes += passes
    if record.text is not None:
        record.finish = "stop"
    elif new[-1] in eos:
        record.finish = "eos"
    elif text.room == 0:
        record.finish = text.finish_when_full
    if record.finish not in ("unfinished", "stop") and target.tokenizer is not None:
        record.text = target.tokenizer.decode(record.tokens, skip_special_tokens=True)
    return len(new)


def _up_to_stop(
    target: LoadedModel, before: list[int], new: list[int], stop: Sequence[str]
) -> tuple[list[int], str | None]:
    """The new tokens up to the one that completes a stop string, and the text before that string; else all and None."""
    if target.tokenizer is None:
        raise ValueError(f"stop: model {target.name} came without a tokenizer, so text cannot be searched")
    for k in range(1, len(new) + 1):
        text = target.tokenizer.decode(before + new[:k], skip_special_tokens=True)
        if found := [place for place in (text.find(end) for end in stop) if place >= 0]:
            return new[:k], text[: min(found)]
    return new, None


def tokenize(target: LoadedModel, prompt: str | list[int]) -> list[int]:
    """Token ids of a prompt; the beginning-of-text token alone when it is the empty string and there is such a token.

    Raises ValueError for a prompt without tokens or with ids outside the vocabulary.
    """
    if isinstance(prompt, str):
        if target.tokenizer is None:
            raise ValueError(f"model {target.name} came without a tokenizer: give token ids, not text")
        check_unicode(prompt, "prompt")
        tokens = list(target.tokenizer(prompt)["input_ids"]) or [target.tokenizer.bos_token_id]
    else:
        tokens = [int(token) for token in prompt]
    if not tokens or tokens == [None]:
        raise ValueError("the prompt is empty")
    if outside := [token for token in tokens if not 0 <= token < target.vocab_size]:
        raise ValueError(f"prompt token {outside[0]} is outside the vocabulary of {target.vocab_size} tokens")
    return tokens


def eos_tokens(target: LoadedModel) -> list[int]:
    """The tokens that end a text, from the model's generation settings and the tokenizer."""
    eos = getattr(target.model.generation_config, "eos_token_id", None)
    tokens = {*eos} if isinstance(eos, (list, tuple)) else {eos}
    if target.tokenizer is not None:
        tokens.add(target.tokenizer.eos_token_id)
    return sorted(tokens - {None})

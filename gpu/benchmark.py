"""The job behind `mdsd bench`: every method answers every question, beside plain decoding in the same run."""

from __future__ import annotations

import json
import os
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch

from gpu.comparison import Row, Turn, compare_all
from gpu.decoding import decode_batch, first_turns, longest_text
from gpu.drafters.base import Drafter
from gpu.drafters.causal_lm import CausalLM
from gpu.memory import Peak, PeakMemory
from gpu.method import Method
from gpu.models import LoadedModel
from gpu.prompts import Question, Unanswered, chat_tokens, without_room
from gpu.recording import Bounds
from gpu.records import Record, Visit
from gpu.summaries import summarise
from mdsd_theory.files import read_text, write_text

if TYPE_CHECKING:
    from rich.progress import Progress


class Conversation(NamedTuple):
    """What became of a question: every method's answers, turn by turn, and where it ended early, if it did."""

    question: Question
    turns: list[Turn]
    unanswered: Unanswered | None = None


def answer(
    target: LoadedModel,
    drafter: Drafter | None,
    questions: Sequence[Question],
    compared: Sequence[Method],
    max_tokens: int,
    seed: int,
    bounds: bool = True,
    assisted: Callable[[list[int]], Record] | None = None,
    pad_vocab: bool = False,
) -> Iterator[Conversation]:
    """Every method's answers to a question, methods interleaved turn by turn so that all see the same machine.

    All methods read the same conversation: a turn's history holds the first method's answers, so their prompts are
    equal. It ends, for all of them, before a turn whose prompt leaves no room for an answer. One short warm-up per
    method comes first. `assisted` is one more contestant: a function from prompt to record. The peak memory of a turn
    is that of its decoding alone, the model included.
    """
    memory, longest = PeakMemory(target.model.device), longest_text(target, drafter)
    warm = False
    for question in questions:
        history: list[str] = []
        turns: list[Turn] = []
        unanswered = None
        for turn, text in enumerate(question.turns):
            history.append(text)
            prompt = chat_tokens(target, history)
            if unanswered := without_room(question, turn, prompt, longest):
                break
            if not warm:
                for method in compared:
                    decode_batch(target, drafter, [prompt], method, max_tokens=4, pad_vocab=pad_vocab)
                if assisted:
                    assisted(prompt)
                warm = True
            generator = zlib.crc32(f"{seed} {question.id} {turn}".encode())
            for method in compared:
                memory.reset()
                record = decode_batch(
                    target, drafter, [prompt], method, max_tokens=max_tokens, generators=[generator],
                    pad_vocab=pad_vocab, observe=Bounds(method) if bounds else None,
                )[0]  # fmt: skip
                turns.append(Turn(question, turn, method.name, record, memory.read()))
                if method is compared[0]:
                    reply = record.text
            if assisted:
                memory.reset()
                turns.append(Turn(question, turn, "assisted", assisted(prompt), memory.read()))
            history.append(reply)
        yield Conversation(question, turns, unanswered)


def assisted_generation(
    target: LoadedModel, drafter: CausalLM, method: Method, draft_length: int, max_tokens: int, seed: int
) -> Callable[[list[int]], Record]:
    """transformers' own assisted generation as a contestant, same drafter, sampling and draft length.

    Its record has tokens, passes and decoding time; it does not tell what was accepted. Prompts must leave room for an
    answer.
    """
    model, assistant, sampling, longest = target.model, drafter.model, method.sampling, longest_text(target, drafter)
    config = assistant.generation_config
    config.num_assistant_tokens = draft_length
    config.num_assistant_tokens_schedule = "constant"
    config.assistant_confidence_threshold = 0.0
    how = {"do_sample": False} if sampling.temperature == 0 else {
        "do_sample": True, "temperature": sampling.temperature, "top_k": sampling.top_k or 0,
        "top_p": sampling.top_p or 1.0,
    }  # fmt: skip

    def run(prompt: list[int]) -> Record:
        torch.manual_seed(seed)
        record = Record(list(prompt))
        room = max_tokens if longest is None else min(max_tokens, longest - len(prompt))
        passes, draft_passes = CountPasses(model), CountPasses(assistant)
        ids = torch.tensor([prompt], device=model.device)
        start = time.perf_counter()
        with passes, draft_passes, _no_warnings(), torch.no_grad():
            out = model.generate(
                ids, attention_mask=torch.ones_like(ids), assistant_model=assistant, max_new_tokens=room,
                pad_token_id=0, **how,  # a batch of one is never padded
            )  # fmt: skip
        if model.device.type == "cuda":
            torch.cuda.synchronize()
        spent = time.perf_counter() - start
        record.tokens = out[0, len(prompt) :].tolist()
        record.text = target.tokenizer.decode(record.tokens, skip_special_tokens=True)
        # its first pass reads the prompt and the first drafts together: the time of a prompt's pass is not separable
        record.target_passes, record.draft_passes = passes.count, draft_passes.count
        record.seconds["target"] = spent
        full = "length" if room == max_tokens else "context"
        record.finish = full if len(record.tokens) == room else "eos"
        return record

    return run


@contextmanager
def _no_warnings() -> Iterator[None]:
    """transformers warns about the arguments with which it calls its own assistant."""
    from transformers.utils import logging

    before = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(before)


class CountPasses:
    """Counts a model's forward passes."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.model, self.count = model, 0

    def __enter__(self) -> CountPasses:
        self.hook = self.model.register_forward_hook(self._add)
        return self

    def _add(self, module: torch.nn.Module, *_: object) -> None:
        self.count += module is self.model  # an early-exit drafter shares the target's hooks

    def __exit__(self, *_: object) -> None:
        self.hook.remove()


def to_json(conversation: Conversation) -> Iterator[dict]:
    """The JSON lines: of every turn the record, its sums and its peak memory; then where the conversation ended early,
    if it did."""
    question = conversation.question._asdict()
    for turn in conversation.turns:
        yield {
            "question": question, "turn": turn.turn, "method": turn.method, "record": asdict(turn.record),
            "sums": summarise([turn.record]).as_dict(), "peak_memory": turn.peak_memory and turn.peak_memory._asdict(),
        }  # fmt: skip
    if conversation.unanswered:
        yield {"unanswered": conversation.unanswered.as_dict()}


def from_json(lines: Iterable[dict]) -> list[Conversation]:
    """What `to_json` wrote of many."""
    found: dict[Question, Conversation] = {}
    for line in lines:
        entry = line.get("unanswered", line)
        question = Question(**{**entry["question"], "turns": tuple(entry["question"]["turns"])})
        conversation = found.setdefault(question, Conversation(question, []))
        if "unanswered" in line:
            found[question] = conversation._replace(unanswered=Unanswered(**{**entry, "question": question}))
            continue
        record = Record(**{**line["record"], "visits": [Visit(*visit) for visit in line["record"]["visits"]]})
        peak = line["peak_memory"] and Peak(**line["peak_memory"])
        conversation.turns.append(Turn(question, line["turn"], line["method"], record, peak))
    return list(found.values())


def run(
    out: Path,
    target: LoadedModel,
    drafter: Drafter,
    questions: Sequence[Question],
    compared: Sequence[Method],
    *,
    max_tokens: int,
    seed: int,
    bounds: bool,
    assisted: int | None,
    pad_vocab: bool,
    progress: Progress,
) -> tuple[list[Row], list[Unanswered]]:
    """Answer all questions, writing each as soon as it is answered; a run that was interrupted goes on where it was.

    Lines go to `out`.part, renamed when the last is there. Its first line is the settings, and only a run with the same
    settings continues it. After the turns come the sums over the run, a line for every row returned. Conversations that
    ended early, for want of room, are returned too. Raises ValueError, before any work, when no question can be asked.
    """
    contestant = None
    if assisted:
        if not isinstance(drafter, CausalLM):
            raise ValueError(f"--assisted: transformers cannot use drafter {drafter.name}, which is no causal model")
        sampled = next(method for method in compared if method.tree.depth)
        contestant = assisted_generation(target, drafter, sampled, assisted, max_tokens, seed)
    settings = {
        "target": target.name, "drafter": drafter.name, "methods": [method.name for method in compared],
        "sampling": asdict(compared[-1].sampling), "draft_sampling": asdict(compared[-1].draft_sampling),
        "max_tokens": max_tokens, "seed": seed, "assisted": assisted, "bounds": bounds,
        "questions": [question.id for question in questions],
    }  # fmt: skip
    first_turns(target, drafter, questions)  # refuses a run that could answer nothing
    part = out.with_name(out.name + ".part")
    conversations = _resume(part, settings)
    done = {conversation.question.id for conversation in conversations}
    task = progress.add_task("questions", total=len(questions), completed=len(done))
    left = [question for question in questions if question.id not in done]
    for conversation in answer(
        target, drafter, left, compared, max_tokens, seed, bounds=bounds, assisted=contestant, pad_vocab=pad_vocab
    ):
        conversations.append(conversation)
        _append(part, to_json(conversation))
        progress.advance(task)
    unanswered = [conversation.unanswered for conversation in conversations if conversation.unanswered]
    rows = compare_all([turn for conversation in conversations for turn in conversation.turns], unanswered)
    _append(part, ({"run": row.as_dict()} for row in rows))
    os.replace(part, out)
    return rows, unanswered


def _append(file: Path, lines: Iterable[dict]) -> None:
    with file.open("a", encoding="utf-8") as out:
        out.write("".join(json.dumps(line) + "\n" for line in lines))


def _resume(part: Path, settings: dict) -> list[Conversation]:
    """The conversations already in the file, which is begun when it is not there."""
    if not part.exists():
        write_text(part, json.dumps({"settings": settings}) + "\n")
        return []
    lines = read_text(part).splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):  # killed while writing a question's lines
        lines.pop()
    try:
        entries = [json.loads(line) for line in lines]
        if not entries or entries[0] != {"settings": settings}:
            raise ValueError(f"{part} is from a run with other settings; finish that one, or remove it")
        conversations = from_json(entry for entry in entries[1:] if "run" not in entry)
    except (json.JSONDecodeError, LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"{part} is damaged ({error!r}); remove it to begin anew") from None
    # a question's lines are written together, but a kill may have come between them
    contestants = len(settings["methods"]) + bool(settings["assisted"])
    complete = [conversation for conversation in conversations if _is_complete(conversation, contestants)]
    kept = (json.dumps(line) + "\n" for conversation in complete for line in to_json(conversation))
    write_text(part, "".join([lines[0], *kept]))
    return complete


def _is_complete(conversation: Conversation, contestants: int) -> bool:
    question, turns, unanswered = conversation
    return len(turns) == contestants * (unanswered.turn if unanswered else len(question.turns))


def plain_beside(compared: Sequence[Method]) -> list[Method]:
    """Plain decoding first, with the same target sampling, then the others."""
    plain = replace(Method.make("plain", "with-replacement", "naive"), sampling=compared[0].sampling)
    return [plain, *(method for method in compared if method.tree.depth)]

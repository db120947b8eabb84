"""Questions in, block efficiency, acceptance and speed out, every method beside plain decoding in the same run."""

from __future__ import annotations

import json
import math
import os
import resource
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch

from gpu.decoding import Method, decode_batch
from gpu.drafters.base import Drafter
from gpu.drafters.causal_lm import CausalLM
from gpu.models import LoadedModel
from gpu.prompts import Question, chat_tokens
from gpu.recording import Bounds
from gpu.records import PHASES, Record, Visit
from gpu.summaries import Estimate, Summary, ratio, summarise
from mdsd_theory.files import write_text

if TYPE_CHECKING:
    from rich.progress import Progress
    from rich.table import Table


class Turn(NamedTuple):
    """One answered turn of a question by one method."""

    question: Question
    turn: int
    method: str
    record: Record


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
) -> Iterator[list[Turn]]:
    """Every method's answers to a question, methods interleaved turn by turn so that all see the same machine.

    All methods read the same conversation: a turn's history holds the first method's answers, so their prompts are
    equal. One short warm-up per method comes first. `assisted` is one more contestant: a function from prompt to
    record.
    """
    if not questions:
        return
    warm_up = chat_tokens(target, [questions[0].turns[0]])
    for method in compared:
        decode_batch(target, drafter, [warm_up], method, max_tokens=4, pad_vocab=pad_vocab)
    if assisted:
        assisted(warm_up)
    for question in questions:
        history: list[str] = []
        turns: list[Turn] = []
        for turn, text in enumerate(question.turns):
            history.append(text)
            prompt = chat_tokens(target, history)
            generator = zlib.crc32(f"{seed} {question.id} {turn}".encode())
            for method in compared:
                record = decode_batch(
                    target, drafter, [prompt], method, max_tokens=max_tokens, generators=[generator],
                    pad_vocab=pad_vocab, observe=Bounds(method) if bounds else None,
                )[0]  # fmt: skip
                turns.append(Turn(question, turn, method.name, record))
                if method is compared[0]:
                    reply = record.text
            if assisted:
                turns.append(Turn(question, turn, "assisted", assisted(prompt)))
            history.append(reply)
        yield turns


def assisted_generation(
    target: LoadedModel, assistant: object, method: Method, draft_length: int, max_tokens: int, seed: int
) -> Callable[[list[int]], Record]:
    """transformers' own assisted generation as a contestant, same drafter, sampling and draft length.

    Its record has tokens, passes and decoding time; it does not tell its draft passes or acceptance.
    """
    model, sampling = target.model, method.sampling
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
        passes = _CountPasses(model)
        ids = torch.tensor([prompt], device=model.device)
        start = time.perf_counter()
        with passes, torch.no_grad():
            out = model.generate(
                ids, attention_mask=torch.ones_like(ids), assistant_model=assistant, max_new_tokens=max_tokens,
                pad_token_id=0, **how,  # a batch of one is never padded
            )  # fmt: skip
        if model.device.type == "cuda":
            torch.cuda.synchronize()
        spent = time.perf_counter() - start
        record.tokens = out[0, len(prompt) :].tolist()
        record.text = target.tokenizer.decode(record.tokens, skip_special_tokens=True)
        # its first pass reads the prompt and the first drafts together: the time of a prompt's pass is not separable
        record.target_passes = passes.count
        record.seconds["target"] = spent
        record.finish = "length" if len(record.tokens) == max_tokens else "eos"
        return record

    return run


class _CountPasses:
    """Counts a model's forward passes."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.model, self.count = model, 0

    def __enter__(self) -> _CountPasses:
        self.hook = self.model.register_forward_hook(self._add)
        return self

    def _add(self, *_: object) -> None:
        self.count += 1

    def __exit__(self, *_: object) -> None:
        self.hook.remove()


class Row(NamedTuple):
    """One line of a benchmark table."""

    method: str
    category: str
    summary: Summary
    speedup: Estimate


def compare(turns: Sequence[Turn], by_category: bool) -> list[Row]:
    """Per method (and category) the sums, and the speed-up over the method named "plain".

    The speed-up is the ratio of seconds per token, prompt pass included in both, paired question by question; its
    interval treats questions as the independent units.
    """
    categories = sorted({turn.question.category for turn in turns}) if by_category else [None]
    rows = []
    for category in categories:
        chosen = [turn for turn in turns if category is None or turn.question.category == category]
        plain = _pace([turn for turn in chosen if turn.method == "plain"])
        for method in dict.fromkeys(turn.method for turn in chosen):
            own = [turn for turn in chosen if turn.method == method]
            pace = _pace(own)
            pairs = [(plain[key], pace[key]) for key in pace if key in plain]
            name = "all questions" if category is None else category or "no category"
            rows.append(Row(method, name, summarise([turn.record for turn in own]), ratio(pairs)))
    return rows


def _pace(turns: Sequence[Turn]) -> dict[str, float]:
    """Seconds per emitted token of each question."""
    spent: dict[str, list[float]] = {}
    for turn in turns:
        seconds, tokens = spent.setdefault(turn.question.id, [0.0, 0.0])
        spent[turn.question.id] = [seconds + sum(turn.record.seconds.values()), tokens + len(turn.record.tokens)]
    return {question: seconds / tokens for question, (seconds, tokens) in spent.items() if tokens}


def to_json(turn: Turn) -> dict:
    """One JSON line: the record and its sums."""
    sums = summarise([turn.record]).as_dict()
    return {
        "question": turn.question._asdict(), "turn": turn.turn, "method": turn.method, "record": asdict(turn.record),
        "sums": sums,
    }  # fmt: skip


def from_json(line: dict) -> Turn:
    """What `to_json` wrote."""
    question = Question(**{**line["question"], "turns": tuple(line["question"]["turns"])})
    record = Record(**{**line["record"], "visits": [Visit(*visit) for visit in line["record"]["visits"]]})
    return Turn(question, line["turn"], line["method"], record)


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
) -> list[Turn]:
    """Answer all questions, writing each as soon as it is answered; a run that was interrupted goes on where it was.

    Lines go to `out`.part, renamed when the last is there. Its first line is the settings, and only a run with the same
    settings continues it.
    """
    contestant = None
    if assisted:
        if not isinstance(drafter, CausalLM):
            raise ValueError(f"--assisted: transformers cannot use drafter {drafter.name}, which is no causal model")
        sampled = next(method for method in compared if method.tree.depth)
        contestant = assisted_generation(target, drafter.model, sampled, assisted, max_tokens, seed)
    settings = {
        "target": target.name, "drafter": drafter.name, "methods": [method.name for method in compared],
        "sampling": asdict(compared[-1].sampling), "draft_sampling": asdict(compared[-1].draft_sampling),
        "max_tokens": max_tokens, "seed": seed, "assisted": assisted, "bounds": bounds,
        "questions": [question.id for question in questions],
    }  # fmt: skip
    part = out.with_name(out.name + ".part")
    turns = _resume(part, settings)
    done = {turn.question.id for turn in turns}
    task = progress.add_task("questions", total=len(questions), completed=len(done))
    left = [question for question in questions if question.id not in done]
    for answered in answer(
        target, drafter, left, compared, max_tokens, seed, bounds=bounds, assisted=contestant, pad_vocab=pad_vocab
    ):
        turns += answered
        with part.open("a", encoding="utf-8") as file:
            file.write("".join(json.dumps(to_json(turn)) + "\n" for turn in answered))
        progress.advance(task)
    os.replace(part, out)
    return turns


def _resume(part: Path, settings: dict) -> list[Turn]:
    """The turns already in the file, which is begun when it is not there."""
    if not part.exists():
        write_text(part, json.dumps({"settings": settings}) + "\n")
        return []
    lines = part.read_text(encoding="utf-8").splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):  # killed while writing a question's lines
        lines.pop()
    entries = [json.loads(line) for line in lines]
    if not entries or entries[0] != {"settings": settings}:
        raise ValueError(f"{part} is from a run with other settings; finish that one, or remove it")
    turns = [from_json(entry) for entry in entries[1:]]
    # a question's lines are written together, but a kill may have come between them
    complete = [turn for turn in turns if _is_complete(turn.question, turns, settings)]
    kept = "".join([lines[0], *(json.dumps(to_json(turn)) + "\n" for turn in complete)])
    write_text(part, kept)
    return complete


def _is_complete(question: Question, turns: list[Turn], settings: dict) -> bool:
    expected = len(question.turns) * (len(settings["methods"]) + bool(settings["assisted"]))
    return sum(turn.question.id == question.id for turn in turns) == expected


def tables(turns: Sequence[Turn]) -> list[Table]:
    """One table over everything, then one per category when there are several."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    made = {}
    for row in compare(turns, False) + (compare(turns, True) if len({t.question.category for t in turns}) > 1 else []):
        if row.category not in made:
            table = made[row.category] = Table(title=row.category, box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
            table.add_column("method", min_width=12, overflow="fold")
            for name in ("alpha*", "acceptance", "block\neff.", "tokens\nper s", "speed-up"):
                table.add_column(name, justify="right", no_wrap=True)
            table.add_column("% draft/\ntarget/rest", justify="right", no_wrap=True)
        made[row.category].add_row(row.method, *_cells(row))
    return list(made.values())


def _cells(row: Row) -> list[str]:
    s = row.summary
    total = sum(s.seconds[phase] for phase in PHASES) or float("nan")
    share = [s.seconds["draft"] / total, s.seconds["target"] / total]
    drafted = bool(s.by_depth)
    return [
        "-" if math.isnan(s.bound) else f"{s.bound:.3f}", _shown(s.acceptance) if drafted else "-",
        _shown(s.block_efficiency, 2), f"{s.tokens_per_second:.1f}", _shown(row.speedup, 2),
        "/".join(f"{100 * part:.0f}" for part in (*share, 1 - sum(share))),
    ]  # fmt: skip


def _shown(estimate: Estimate, digits: int = 3) -> str:
    reach = "" if math.isnan(estimate.half_width) else f" ±{estimate.half_width:.{digits}f}"
    return f"{estimate.value:.{digits}f}{reach}"


def peak_memory() -> int:
    """Most bytes ever in use: of the process on the CPU, of tensors on CUDA."""
    if torch.cuda.is_available() and torch.cuda.max_memory_allocated():
        return torch.cuda.max_memory_allocated()
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used if sys.platform == "darwin" else used * 1024


def plain_beside(compared: Sequence[Method]) -> list[Method]:
    """Plain decoding first, with the same target sampling, then the others."""
    plain = replace(Method.make("plain", "with-replacement", "naive"), sampling=compared[0].sampling)
    return [plain, *(method for method in compared if method.tree.depth)]

"""What real models say at the nodes that verification visited: their optimal acceptance rates, and traces of them.

Observers for `gpu.decoding.stream`: called after each step, not part of its time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from gpu.decoding import Step, first_turns, stream
from gpu.drafters.base import Drafter
from gpu.method import Method
from gpu.models import LoadedModel
from gpu.prompts import Question, Unanswered
from gpu.records import Record

if TYPE_CHECKING:
    from rich.progress import Progress

    from simulation.traces import TraceWriter

TRACE_DTYPES = {torch.float16: "float16", torch.bfloat16: "bfloat16", torch.float32: "float32"}


class VisitedNode(NamedTuple):
    """A verified node, at which one token was emitted: where it is, and both models' logits (V,) there."""

    row: int  # of the step's texts
    visit: int  # index into that record's visits
    drafts: int  # 0 at a leaf and where the text had no room for one
    target: Tensor
    draft: Tensor | None  # None at a leaf that the drafter was not run on
    q: Tensor | None  # (V,), what the drafts were drawn from


def visited(step: Step) -> Iterator[VisitedNode]:
    """The step's verified nodes, text by text from the root down."""
    drafted = step.drafted
    column = {slot: index for index, slot in enumerate(step.slots)}
    expanded = {slot: index for index, slot in enumerate(drafted.numbers)}
    for row, (record, kept) in enumerate(zip(step.records, step.kept, strict=True)):
        for depth in range(kept):
            slot, drafts = int(step.walk.nodes[row, depth]), int(step.walk.drafts[row, depth])
            yield VisitedNode(
                row, len(record.visits) - kept + depth, drafts, step.logits[row, column[slot]],
                drafted.logits[expanded[slot]][row] if slot in expanded else None,
                drafted.q[row, drafted.layout.row_of_slot[slot]] if drafts else None,
            )  # fmt: skip


class Bounds:
    """Fills in `Visit.bound`: alpha* of target, drafter and sampler at every visited node."""

    def __init__(self, method: Method) -> None:
        self.method = method

    def __call__(self, step: Step) -> None:
        from mdsd_theory import optimal_acceptance

        for node in visited(step):
            if not node.drafts:
                continue
            p = unit_sum(self.method.sampling(node.target))
            draft = self.method.sampler.theory(unit_sum(node.q), node.drafts)
            visits = step.records[node.row].visits
            visits[node.visit] = visits[node.visit]._replace(bound=float(optimal_acceptance(p, draft).rate))


class Recorder:
    """Appends every visited node's logits to a trace, as the models gave them or rounded to `dtype`.

    One recorder sees one batch, whose texts are the header's prompts from number `first` on. Where the drafter is run
    on leaves too, every emitted token has its row; without, tokens that follow a whole accepted path have none.
    """

    def __init__(self, writer: TraceWriter, dtype: torch.dtype, first: int = 0) -> None:
        self.writer, self.dtype, self.first = writer, dtype, first
        self.records: list[Record] = []

    def prompt_of(self, record: Record) -> int:
        """Index of the record's prompt in the header."""
        return self.first + next(index for index, known in enumerate(self.records) if known is record)

    def __call__(self, step: Step) -> None:
        self.records = self.records or list(step.records)  # no text ends before its first step
        self.append(step)

    def append(self, step: Step) -> None:
        for node in visited(step):
            if node.draft is not None:
                record = step.records[node.row]
                self.writer.append(
                    raw(node.target, self.dtype), raw(node.draft, self.dtype), prompt=self.prompt_of(record),
                    position=len(record.prompt) + node.visit,
                )  # fmt: skip


def unit_sum(p: Tensor) -> np.ndarray:
    """float64 copy on the host, its sum 1 to the last bit that matters."""
    p = p.double().cpu().numpy()
    return p / p.sum()


def raw(logits: Tensor, dtype: torch.dtype) -> np.ndarray:
    """Logits as a trace stores them: bfloat16 as its bits in uint16. Rounding a row is done relative to its maximum."""
    if dtype == torch.float16 and logits.dtype != dtype:
        logits = logits - logits.amax(-1, keepdim=True)
    logits = logits.to(dtype).cpu()
    return logits.view(torch.uint16).numpy() if dtype == torch.bfloat16 else logits.numpy()


def record_questions(
    folder: Path,
    target: LoadedModel,
    drafter: Drafter,
    questions: Sequence[Question],
    method: Method,
    *,
    max_tokens: int,
    seed: int,
    batch: int,
    keep_top: int | None = None,
    whole_trees: bool = False,
    pad_vocab: bool = False,
    progress: Progress | None = None,
) -> tuple[int, list[Unanswered]]:
    """Decode every question's first turn and write the trace `folder`; returns its number of rows, and the questions
    left out because they leave no room for an answer. Raises ValueError when those are all.

    A row for every emitted token: the drafter is run on leaves too, so that no position is left out because the drafts
    before it were accepted. Logits are stored in the target's dtype. keep_top keeps that many of each row and the exact
    mass of the rest at both models' temperatures. whole_trees records every node of every draft tree with its drafts.

    Questions are decoded `batch` at a time, and what is done of them is secured after each batch: a recording that was
    killed goes on there, with the batches, and so the very logits, that it would have had.
    """
    from simulation.traces import TraceWriter

    questions, prompts, unanswered = first_turns(target, drafter, questions)
    dtype = target.model.dtype if target.model.dtype in TRACE_DTYPES else torch.float32
    temperatures = {s.temperature for s in (method.sampling, method.draft_sampling)} - {0.0}
    writer = TraceWriter(
        folder, target_model=target.name, draft_model=drafter.name,
        prompts=[question.turns[0] for question in questions], temperature=method.sampling.temperature,
        dtype=TRACE_DTYPES[dtype], keep_top=keep_top, tail_temperatures=sorted(temperatures) or [1.0],
        tree=tree_settings(method) if whole_trees else None,
        extra={
            "method": method.name, "sampling": asdict(method.sampling), "draft_sampling": asdict(method.draft_sampling),
            "max_tokens": max_tokens, "seed": seed, "batch": batch, "device": target.model.device.type,
        },
    )  # fmt: skip
    task = progress.add_task("recording", total=len(prompts) * max_tokens) if progress else None
    with writer:
        for first in range(writer.done, len(prompts), batch):
            rows = range(first, min(first + batch, len(prompts)))
            recorder = (TreeRecorder if whole_trees else Recorder)(writer, dtype, first)
            for records in stream(
                target, drafter, [prompts[row] for row in rows], method, max_tokens=max_tokens,
                generators=[seed + row for row in rows], pad_vocab=pad_vocab, observe=recorder, expand_leaves=True,
            ):  # fmt: skip
                if progress:
                    done = first * max_tokens + sum(len(record.tokens) for record in records)
                    progress.update(task, completed=done)
            writer.checkpoint(rows.stop)
            if progress:
                progress.update(task, completed=rows.stop * max_tokens)
    return writer.rows, unanswered


def tree_settings(method: Method) -> dict:
    """What a tree trace's header says about how its trees were drawn.

    Raises ValueError for methods that the format has no words for.
    """
    if method.draft_sampling != method.sampling:
        raise ValueError("whole trees are recorded with one temperature, top-k and top-p for target and drafter")
    sampler, widths = str(method.sampler), {len(children) for children in method.tree.children} - {0}
    if sampler == "deterministic":
        if len(widths) > 1:
            raise ValueError(f"whole trees, deterministic: {method.tree.name} has nodes with {sorted(widths)} children")
        sampler = f"top-then-sample:{method.tree.width}"
    return {
        "topology": [list(path) for path in method.tree.paths[1:]], "sampler": sampler, "n": method.tree.width,
        "temperature": method.sampling.temperature, "top_k": method.sampling.top_k, "top_p": method.sampling.top_p,
    }  # fmt: skip


class TreeRecorder(Recorder):
    """Appends every node of every step's draft tree, roots first; needs the drafter run at leaves too."""

    def append(self, step: Step) -> None:
        drafted, tree = step.drafted, step.drafted.layout.tree
        column = {slot: index for index, slot in enumerate(step.slots)}
        expanded = {slot: index for index, slot in enumerate(drafted.numbers)}
        for row, (record, kept) in enumerate(zip(step.records, step.kept, strict=True)):
            tokens = drafted.tokens[row].tolist()
            nodes = [slot for slot in step.slots if drafted.alive[row, slot]]
            number = {slot: index for index, slot in enumerate(nodes)}
            prompt = self.prompt_of(record)
            drafts = np.full((len(nodes), tree.width), -1)
            for slot in nodes:
                count = int(drafted.count[row, drafted.layout.row_of_slot[slot]]) if tree.children[slot] else 0
                drafts[number[slot], :count] = [tokens[child] for child in tree.children[slot][:count]]
            self.writer.append(  # rows of one step: the root, then its descendants
                np.stack([raw(step.logits[row, column[slot]], self.dtype) for slot in nodes]),
                np.stack([raw(drafted.logits[expanded[slot]][row], self.dtype) for slot in nodes]),
                prompt=prompt,
                position=np.array([len(record.prompt) + len(record.tokens) - kept + tree.depths[s] for s in nodes]),
                sequence=prompt,
                step=record.target_passes - 1,
                parent=np.array([number.get(tree.parents[slot], -1) for slot in nodes]),
                depth=np.array([tree.depths[slot] for slot in nodes]),
                child_rank=np.array([tree.paths[slot][-1] if slot else 0 for slot in nodes]),
                token=np.array([tokens[slot] for slot in nodes]),
                drafts=drafts,
            )

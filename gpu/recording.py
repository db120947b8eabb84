"""What real models say at the nodes that verification visited: their optimal acceptance rates, and traces of them.

Observers for `gpu.decoding.stream`: called after each step, not part of its time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from gpu.decoding import Method, Step

if TYPE_CHECKING:
    from simulation.traces import TraceWriter

TRACE_DTYPES = {torch.float16: "float16", torch.bfloat16: "bfloat16", torch.float32: "float32"}


class VisitedNode(NamedTuple):
    """A verified node with drafts: where it is, and both models' logits (V,) there."""

    row: int  # of the step's texts
    visit: int  # index into that record's visits
    slot: int
    drafts: int
    target: Tensor
    draft: Tensor
    q: Tensor  # (V,), what the drafts were drawn from


def visited(step: Step) -> Iterator[VisitedNode]:
    """The step's verified nodes that had drafts, text by text from the root down."""
    drafted = step.drafted
    column = {slot: index for index, slot in enumerate(step.slots)}
    expanded = {slot: index for index, slot in enumerate(drafted.numbers)}
    for row, (record, kept) in enumerate(zip(step.records, step.kept, strict=True)):
        for depth in range(kept):
            slot, drafts = int(step.walk.nodes[row, depth]), int(step.walk.drafts[row, depth])
            if drafts:
                q = drafted.q[row, drafted.layout.row_of_slot[slot]]
                yield VisitedNode(
                    row, len(record.visits) - kept + depth, slot, drafts, step.logits[row, column[slot]],
                    drafted.logits[expanded[slot]][row], q,
                )  # fmt: skip


class Bounds:
    """Fills in `Visit.bound`: alpha* of target, drafter and sampler at every visited node."""

    def __init__(self, method: Method) -> None:
        self.method = method

    def __call__(self, step: Step) -> None:
        from mdsd_theory import optimal_acceptance

        for node in visited(step):
            p = unit_sum(self.method.sampling(node.target))
            draft = self.method.sampler.theory(unit_sum(node.q), node.drafts)
            visits = step.records[node.row].visits
            visits[node.visit] = visits[node.visit]._replace(bound=float(optimal_acceptance(p, draft).rate))


class Recorder:
    """Appends every visited node's logits to a trace, as the models gave them or rounded to `dtype`.

    prompts  index of each record's prompt in the trace's header, by the record's identity.
    """

    def __init__(self, writer: TraceWriter, dtype: torch.dtype) -> None:
        self.writer, self.dtype = writer, dtype
        self.prompts: dict[int, int] = {}
        self.rows = 0

    def __call__(self, step: Step) -> None:
        for node in visited(step):
            record = step.records[node.row]
            self.writer.append(
                raw(node.target, self.dtype), raw(node.draft, self.dtype),
                prompt=self.prompts.setdefault(id(record), len(self.prompts)),
                position=len(record.prompt) + node.visit,
            )  # fmt: skip
            self.rows += 1


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

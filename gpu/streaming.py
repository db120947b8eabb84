"""Printing text while it is decoded."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.text import Text

from gpu.decoding import stream
from gpu.drafters.base import Drafter
from gpu.method import Method
from gpu.models import LoadedModel
from gpu.records import Record
from gpu.summaries import summarise

if TYPE_CHECKING:
    from rich.console import Console

DRAFTED, OWN = "green", "yellow"


def print_decoding(
    target: LoadedModel,
    drafter: Drafter | None,
    prompt: str | list[int],
    method: Method,
    console: Console,
    show_drafts: bool = False,
    **how,
) -> bool:
    """Decode one prompt, its text to standard output as it is accepted and the summary to `console`.

    With show_drafts, accepted drafts are green and the target's own tokens yellow. Returns False when interrupted; the
    summary of what there is comes then too.
    """
    from rich.console import Console

    page = Console(highlight=False, soft_wrap=True)
    record, finished = Record([]), True
    printed = Pieces(target, how.get("stop", ()))
    try:
        for (record,) in stream(target, drafter, [prompt], method, **how):
            for piece, drafted in printed.new(record):
                page.print(Text(piece, style=(DRAFTED if drafted else OWN) if show_drafts else ""), end="")
            sys.stdout.flush()
    except KeyboardInterrupt:
        finished, record.finish = False, "interrupted"
    page.print()
    if show_drafts:
        console.print(Text("drafted and accepted", style=DRAFTED), Text("from the target", style=OWN))
    console.print(summary_line(record))
    return finished


class Pieces:
    """Cuts a growing record into printable pieces, one per token that completes characters.

    A token may end inside a character, and a stop string may reach over several tokens: text that could still turn
    out to be the beginning of one is held back until more is known.
    """

    def __init__(self, target: LoadedModel, stop: tuple[str, ...] = ()) -> None:
        self.tokenizer, self.stop = target.tokenizer, stop
        self.tokens = self.shown = 0

    def new(self, record: Record) -> Iterator[tuple[str, bool]]:
        """(text, whether a draft) of what the record has beyond the last call."""
        for count in range(self.tokens + 1, len(record.tokens) + 1):
            text = self.tokenizer.decode(record.tokens[:count], skip_special_tokens=True)
            last = count == len(record.tokens) and record.finish != "unfinished"
            if last:
                text = record.text
            else:
                text = text.removesuffix("\ufffd")
                text = text[: len(text) - _overlap(text, self.stop)]
            if len(text) > self.shown:
                yield text[self.shown :], record.visits[count - 1].rank >= 0
                self.shown = len(text)
        self.tokens = len(record.tokens)


def _overlap(text: str, stop: tuple[str, ...]) -> int:
    """Length of the longest end of the text that begins (or is) a stop string."""
    return max((k for end in stop for k in range(1, len(end) + 1) if text.endswith(end[:k])), default=0)


def summary_line(record: Record) -> str:
    """One line about a record."""
    s = summarise([record])
    parts = [f"{s.tokens} tokens ({record.finish})", f"{s.target_passes} target passes"]
    if s.target_passes:
        parts += [f"block efficiency {s.block_efficiency.value:.2f}"]
    if s.by_depth:
        parts += [f"acceptance {s.acceptance.value:.2f}"]
    if s.tokens:
        parts += [f"{s.tokens_per_second:.1f} tokens/s"]
    return ", ".join(parts)

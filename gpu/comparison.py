"""What a benchmark's answers add up to: per method (and category) sums, intervals, speed-up, and the tables of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from gpu.memory import Peak
from gpu.prompts import Question, Unanswered
from gpu.records import PHASES, Record
from gpu.summaries import Estimate, Summary, as_json, ratio, summarise

if TYPE_CHECKING:
    from rich.table import Table


class Turn(NamedTuple):
    """One answered turn of a question by one method."""

    question: Question
    turn: int
    method: str
    record: Record
    peak_memory: Peak | None = None


class Row(NamedTuple):
    """One method on all questions, or on those of a category (category None: all).

    unanswered  turns that no method answered, for want of room in the models' context.
    """

    method: str
    category: str | None
    summary: Summary
    speedup: Estimate
    peak_memory: Peak | None
    unanswered: int

    def as_dict(self) -> dict:
        """Everything, as JSON takes it."""
        peak = self.peak_memory and self.peak_memory._asdict()
        return {
            "method": self.method, "category": self.category, "sums": self.summary.as_dict(),
            "speedup": as_json(self.speedup), "peak_memory": peak, "unanswered_turns": self.unanswered,
        }  # fmt: skip


def compare(turns: Sequence[Turn], by_category: bool, unanswered: Sequence[Unanswered] = ()) -> list[Row]:
    """Per method (and category) the sums, the speed-up over the method named "plain", and the largest peak memory.

    The speed-up is the ratio of seconds per token, prompt pass included in both, paired question by question; its
    interval treats questions as the independent units.
    """
    categories = sorted({turn.question.category for turn in turns}) if by_category else [None]
    rows = []
    for category in categories:
        chosen = [turn for turn in turns if category is None or turn.question.category == category]
        missing = sum(u.turns for u in unanswered if category is None or u.question.category == category)
        plain = _pace([turn for turn in chosen if turn.method == "plain"])
        for method in dict.fromkeys(turn.method for turn in chosen):
            own = [turn for turn in chosen if turn.method == method]
            pace = _pace(own)
            pairs = [(plain[key], pace[key]) for key in pace if key in plain]
            peak = max((turn.peak_memory for turn in own if turn.peak_memory), default=None)
            summary = summarise([turn.record for turn in own])
            rows.append(Row(method, category, summary, ratio(pairs), peak, missing))
    return rows


def compare_all(turns: Sequence[Turn], unanswered: Sequence[Unanswered] = ()) -> list[Row]:
    """Over everything, then by category when there are several."""
    several = len({turn.question.category for turn in turns}) > 1
    return compare(turns, False, unanswered) + (compare(turns, True, unanswered) if several else [])


def _pace(turns: Sequence[Turn]) -> dict[str, float]:
    """Seconds per emitted token of each question."""
    spent: dict[str, list[float]] = {}
    for turn in turns:
        seconds, tokens = spent.setdefault(turn.question.id, [0.0, 0.0])
        spent[turn.question.id] = [seconds + sum(turn.record.seconds.values()), tokens + len(turn.record.tokens)]
    return {question: seconds / tokens for question, (seconds, tokens) in spent.items() if tokens}


def tables(rows: Sequence[Row]) -> list[Table]:
    """From `compare_all`: acceptance and speed over everything and per category, then costs, then where drafts are
    accepted."""
    titles = dict.fromkeys(row.category for row in rows)
    overall = [row for row in rows if row.category is None]
    made = []
    for category in titles:
        title = "all questions" if category is None else category or "no category"
        heads = ["alpha*", "acceptance", "block\neff.", "tokens\nper s", "speed-up"]
        own = [row for row in rows if row.category == category]
        made.append(_table(title, heads, [(row, _rates(row)) for row in own]))
        if missing := own[0].unanswered:
            made[-1].caption = f"{missing} turn{'s' * (missing > 1)} not answered: no room in the context"
    heads = ["target\npasses", "draft\npasses", "draft\n%", "target\n%", "verify\n%", "book-\nkeep.%", "peak\nGiB"]
    made.append(_table("costs", heads, [(row, _costs(row)) for row in overall]))
    depths = max(len(row.summary.by_depth) for row in overall)
    ranks = max(len(row.summary.by_rank) for row in overall)
    if depths:
        heads = [f"depth\n{d}" if d == 0 else f"\n{d}" for d in range(depths)]
        heads += [f"rank\n{r}" if r == 0 else f"\n{r}" for r in range(ranks)]
        cells = [(row, _where(row.summary, depths, ranks)) for row in overall if row.summary.by_depth]
        made.append(_table("acceptance at nodes of each depth; of the child of each rank", heads, cells))
    return made


def _table(title: str, heads: list[str], rows: list[tuple[Row, list[str]]]) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(title=title, box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("method", min_width=19, overflow="fold")
    for head in heads:
        table.add_column(head, justify="right", no_wrap=True)
    for row, cells in rows:
        table.add_row(row.method, *cells)
    return table


def _rates(row: Row) -> list[str]:
    s = row.summary
    return [
        _number(s.bound, 3), _shown(s.acceptance) if s.by_depth else "-", _shown(s.block_efficiency, 2),
        _number(s.tokens_per_second, 1), _shown(row.speedup, 2),
    ]  # fmt: skip


def _costs(row: Row) -> list[str]:
    s = row.summary
    total = sum(s.seconds[phase] for phase in PHASES) or float("nan")
    return [
        str(s.target_passes), str(s.draft_passes) if s.draft_passes else "-",
        *(_number(100 * s.seconds[phase] / total, 1) if s.seconds[phase] else "-" for phase in PHASES),
        f"{row.peak_memory.bytes / 2**30:.2f}" if row.peak_memory else "-",
    ]  # fmt: skip


def _where(s: Summary, depths: int, ranks: int) -> list[str]:
    cells = []
    for estimates, size in ((s.by_depth, depths), (s.by_rank, ranks)):
        cells += [_number(estimate.value, 2) for estimate in estimates] + ["-"] * (size - len(estimates))
    return cells


def _number(value: float, digits: int) -> str:
    return "-" if math.isnan(value) else f"{value:.{digits}f}"


def _shown(estimate: Estimate, digits: int = 3) -> str:
    reach = "" if math.isnan(estimate.half_width) else f" ±{estimate.half_width:.{digits}f}"
    return _number(estimate.value, digits) + reach

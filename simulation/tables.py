"""The table of a study as people take it away: terminal (rich), Markdown, CSV, LaTeX (booktabs), JSON."""

import csv
import io
import json
import math
from collections.abc import Sequence
from itertools import groupby
from typing import Any, NamedTuple

from rich.box import SIMPLE_HEAD
from rich.table import Table

from simulation.results import Results

INTRODUCTION = {
    "rate": "acceptance rate, mean over positions",
    "interval": "{percent:g} % interval of the rate, prompts resampled",
    "alpha*": "largest rate of any lossless verifier",
    "gap": "alpha* - rate, paired by position, with its interval",
}


class Column(NamedTuple):
    """One column of a printed table: its head, the text in a row, and whether it is a number."""

    head: str
    text: Any
    number: bool = True


def columns(rows: Sequence[dict[str, Any]]) -> list[Column]:
    """The columns of an acceptance table; those of the grid that never vary from "unset" are left out."""
    optional = [
        Column("source", lambda row: row["source"], False) if len({row["source"] for row in rows}) > 1 else None,
        Column("top-p", lambda row: _plain(row["top_p"])) if any(row["top_p"] is not None for row in rows) else None,
        Column("top-k", lambda row: _plain(row["top_k"])) if any(row["top_k"] is not None for row in rows) else None,
    ]
    grid = [
        Column("sampler", lambda row: row["sampler"], False),
        Column("verifier", lambda row: row["verifier"], False),
        Column("n", lambda row: _plain(row["n"])),
        Column("T", lambda row: _plain(row["temperature"])),
    ]
    numbers = [
        Column("rate", lambda row: f"{row['rate']:.3f}" + ("" if row["exact"] else " ~") + " !" * row["above_optimum"]),
        Column("interval", lambda row: interval(row["rate_low"], row["rate_high"])),
        Column("alpha*", lambda row: f"{row['optimum']:.3f}"),
        Column("gap", lambda row: f"{_unsigned_zero(row['gap']):.3f}"),
        Column("gap interval", lambda row: interval(row["gap_low"], row["gap_high"])),
    ]
    return [*filter(None, optional[:1]), *grid, *filter(None, optional[1:]), *numbers]


def tree_columns() -> list[Column]:
    """The columns of a block-efficiency table."""
    return [
        Column("source", lambda row: row["source"], False),
        Column("sampler", lambda row: row["sampler"], False),
        Column("verifier", lambda row: row["verifier"], False),
        Column("n", lambda row: _plain(row["n"])),
        Column("T", lambda row: _plain(row["temperature"])),
        Column("steps", lambda row: _plain(row["steps"])),
        Column("block efficiency", lambda row: f"{row['block_efficiency']:.3f}" + ("" if row["exact"] else " ~")),
        Column("interval", lambda row: interval(row["low"], row["high"])),
    ]


def rich_tables(results: Results) -> list[Table]:
    """For the terminal, at least 80 columns wide: one table for each source and sampler."""
    tables = []
    for title, heads, rows in _parts(results):
        several = len({row["source"] for row in rows}) > 1
        for k, ((source, sampler), group) in enumerate(groupby(rows, key=lambda row: (row["source"], row["sampler"]))):
            shown = [column for column in heads if column.head not in ("source", "sampler")]
            name = f"{source}: {sampler}" if several else sampler
            table = Table(title=f"{title}\n{name}" if k == 0 else name, box=SIMPLE_HEAD, padding=0)
            for column in shown:
                table.add_column(column.head, justify="right" if column.number else "left", no_wrap=True)
            for row in group:
                style = "bold red" if row.get("above_optimum") else None
                table.add_row(*(column.text(row) for column in shown), style=style)
            tables.append(table)
    return tables


def markdown(results: Results) -> str:
    """GitHub Markdown: heading, table and the meaning of its columns."""
    parts = []
    for title, heads, rows in _parts(results):
        lines = [
            f"### {title}",
            "",
            "| " + " | ".join(column.head for column in heads) + " |",
            "|" + "|".join("---:" if column.number else "---" for column in heads) + "|",
            *("| " + " | ".join(column.text(row).replace("|", "\\|") for column in heads) + " |" for row in rows),
        ]
        parts.append("\n".join(lines))
    return "\n\n".join([*parts, caption(results)]) + "\n"


def latex(results: Results) -> str:
    r"""LaTeX tabulars for \usepackage{booktabs}; text is escaped."""
    parts = []
    for title, heads, rows in _parts(results):
        lines = [
            f"% {title}",
            r"\begin{tabular}{" + "".join("r" if column.number else "l" for column in heads) + "}",
            r"\toprule",
            " & ".join(_latex(column.head) for column in heads) + r" \\",
            r"\midrule",
            *(" & ".join(_latex(column.text(row)) for column in heads) + r" \\" for row in rows),
            r"\bottomrule",
            r"\end{tabular}",
        ]
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def to_csv(rows: Sequence[dict[str, Any]]) -> str:
    """Full precision, one line a row; unset values are empty."""
    out = io.StringIO()
    writer = csv.DictWriter(out, fieldnames=list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def to_json(results: Results) -> str:
    """Settings and both tables, full precision; intervals that do not exist are null."""
    content = {"settings": results.settings, "rows": _no_nan(results.rows), "trees": _no_nan(results.trees)}
    return json.dumps(content, indent=1, allow_nan=False) + "\n"


def interval(low: float, high: float) -> str:
    """[0.123, 0.456]; a dash where there is none."""
    return "–" if math.isnan(low) else f"[{_unsigned_zero(low):.3f}, {_unsigned_zero(high):.3f}]"


def _parts(results: Results) -> list[tuple[str, list[Column], list[dict[str, Any]]]]:
    parts = []
    if results.rows:
        sources = sorted({row["source"] for row in results.rows})
        first = results.rows[0]
        where = f" on {sources[0]}, {first['positions']} positions of {first['prompts']} prompts" * (len(sources) == 1)
        parts.append((f"Acceptance{where}", columns(results.rows), results.rows))
    if results.trees:
        parts.append(("Tokens per target pass on recorded trees", tree_columns(), results.trees))
    return parts


def caption(results: Results) -> str:
    """What the columns and marks of the tables mean."""
    study = results.settings["study"]
    lines = [f"{name}: {text.format(percent=100 * study['confidence'])}." for name, text in INTRODUCTION.items()]
    if any(not row["exact"] for row in [*results.rows, *results.trees]):
        lines.append(f"~: by Monte Carlo, {study['draws']} draws a position; the others are exact at each position.")
    if results.flagged:
        lines.append("!: SIGNIFICANTLY ABOVE alpha*: this verifier is not lossless.")
    return " ".join(lines)


def _plain(value: float | int | None) -> str:
    return "–" if value is None else f"{value:g}"


def _unsigned_zero(value: float) -> float:
    return 0.0 if abs(value) < 5e-4 else value


def _latex(text: str) -> str:
    for plain, escaped in (("\\", r"\textbackslash "), ("alpha*", r"$\alpha^\star$"), ("~", r"$\sim$"), ("–", "--")):
        text = text.replace(plain, escaped)
    for character in "_%&#":
        text = text.replace(character, "\\" + character)
    return text


def _no_nan(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{k: None if isinstance(v, float) and math.isnan(v) else v for k, v in row.items()} for row in rows]

"""`mdsd demo`: several methods on a few prompts, one table, one plot, the recorded distributions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from matplotlib.figure import Figure

from gpu.decoding import first_turns, stream
from gpu.drafters.base import Drafter
from gpu.method import Method
from gpu.models import LoadedModel
from gpu.prompts import Question, Unanswered
from gpu.recording import TRACE_DTYPES, Bounds, Recorder
from gpu.records import Record
from gpu.summaries import Summary, summarise
from mdsd_theory.files import write_text, written_whole

if TYPE_CHECKING:
    from rich.progress import Progress
    from rich.table import Table

TREE = "kary:2x4"
METHODS = (
    ("plain", "with-replacement", "naive"),
    ("chain:4", "with-replacement", "single-draft"),
    (TREE, "with-replacement", "rrs"),
    (TREE, "with-replacement", "kseq"),
    (TREE, "without-replacement", "rrs"),
    (TREE, "greedy", "greedy"),
    (TREE, "with-replacement", "convex-minorant"),
    ("eagle-sparse", "top-then-sample:1", "convex-minorant"),  # with two drafts it would be greedy
)
RECORDED = 4
"""The method whose visited positions are kept as a trace."""


def methods(temperature: float, top_k: int | None, top_p: float | None) -> list[Method]:
    """The methods compared, plain decoding first."""
    return [
        Method.make(tree, sampler, verifier, temperature=temperature, top_k=top_k, top_p=top_p)
        for tree, sampler, verifier in METHODS
    ]


def run(
    target: LoadedModel,
    drafter: Drafter,
    questions: list[Question],
    compared: list[Method],
    max_tokens: int,
    seed: int,
    folder: Path,
    progress: Progress,
) -> tuple[list[Summary], list[Unanswered]]:
    """Decode all questions in one batch with every method; write trace/, acceptance.png, results.json in `folder`.

    Returns a summary per method, and the questions left out because they leave no room for an answer. Raises ValueError
    when those are all.
    """
    from simulation.traces import TraceWriter

    questions, prompts, unanswered = first_turns(target, drafter, questions)
    seeds = [seed * len(prompts) + row for row in range(len(prompts))]
    summaries, texts = [], []
    dtype = torch.float16 if target.model.dtype == torch.float32 else target.model.dtype  # 100 kB a row, not 200
    writer = TraceWriter(
        folder / "trace", target_model=target.name, draft_model=drafter.name,
        prompts=[question.turns[0] for question in questions], temperature=compared[RECORDED].sampling.temperature,
        dtype=TRACE_DTYPES[dtype], extra={"method": compared[RECORDED].name, "seed": seed},
    )  # fmt: skip
    share = len(prompts) * max_tokens
    task = progress.add_task("", total=len(compared) * share)
    with writer:
        recorder = Recorder(writer, dtype)
        for number, method in enumerate(compared):
            progress.update(task, description=method.name)
            observers = [Bounds(method), *([recorder] if number == RECORDED else [])]
            records: list[Record] = []
            for records in stream(
                target, drafter, prompts, method, max_tokens=max_tokens, generators=seeds,
                observe=lambda step, observers=observers: [observe(step) for observe in observers],
            ):  # fmt: skip
                progress.update(task, completed=number * share + sum(len(record.tokens) for record in records))
            progress.update(task, completed=(number + 1) * share)
            summaries.append(summarise(records))
            texts.append([record.text for record in records])
    settings = {
        "target": target.name, "drafter": drafter.name, "max_tokens": max_tokens, "seed": seed,
        "temperature": compared[0].sampling.temperature, "top_k": compared[0].sampling.top_k,
        "top_p": compared[0].sampling.top_p, "questions": [question._asdict() for question in questions],
        "torch_threads": torch.get_num_threads(),
    }  # fmt: skip
    results = [
        {"tree": m.tree.name, "sampler": str(m.sampler), "verifier": m.verifier, **s.as_dict(),
         "texts": t}
        for m, s, t in zip(compared, summaries, texts, strict=True)
    ]  # fmt: skip
    everything = {"settings": settings, "methods": results, "unanswered": [u.as_dict() for u in unanswered]}
    plot(compared, summaries, folder / "acceptance.png")
    write_text(folder / "results.json", json.dumps(everything, indent=1))
    return summaries, unanswered


def rows(compared: list[Method], summaries: list[Summary]) -> Iterator[list[str]]:
    """The table's cells."""
    for method, s in zip(compared, summaries, strict=True):
        plain = not method.tree.depth
        yield [
            "plain decoding" if plain else f"{method.sampler}\n{method.verifier}, {method.tree.name}",
            "-" if plain else f"{s.bound:.3f}",
            "-" if plain else f"{s.acceptance.value:.3f} ±{s.acceptance.half_width:.3f}",
            "-" if plain else f"{s.gap.value:+.3f} ±{s.gap.half_width:.3f}",
            f"{s.block_efficiency.value:.2f}",
            str(s.target_passes),
            f"{s.tokens_per_second:.1f}",
        ]


def table(compared: list[Method], summaries: list[Summary]) -> Table:
    """What the command prints."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    title = "Acceptance at the visited nodes (± 95 % over target passes)"
    view = Table(title=title, box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    view.add_column("sampler\nverifier, tree", min_width=19, overflow="fold")
    for name in ("alpha*", "acceptance", "gap", "block\neff.", "target\npasses", "tokens\nper s"):
        view.add_column(name, justify="right", no_wrap=True)
    for cells in rows(compared, summaries):
        view.add_row(*cells)
    return view


def plot(compared: list[Method], summaries: list[Summary], path: Path) -> None:
    """Acceptance of each method, with its interval, beside its optimal acceptance rate."""
    shown = [(m, s) for m, s in zip(compared, summaries, strict=True) if m.tree.depth]
    figure = Figure(figsize=(8, 0.7 * len(shown) + 1.4), layout="constrained")
    axes = figure.subplots()
    for y, (_, s) in enumerate(shown):
        a, labels = s.acceptance, (None, None) if y else ("measured", "alpha* (bound)")
        axes.errorbar(a.value, y, xerr=a.half_width, fmt="o", color="tab:blue", capsize=3, label=labels[0])
        axes.plot([s.bound] * 2, [y - 0.3, y + 0.3], color="tab:red", lw=2.5, label=labels[1])
    axes.set_yticks(range(len(shown)), [f"{m.sampler} + {m.verifier}\n{m.tree.name}" for m, _ in shown])
    axes.invert_yaxis()
    axes.set_xlabel("acceptance rate per visited node")
    axes.set_xlim(0, 1)
    axes.grid(axis="x", alpha=0.3)
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, frameon=False)
    with written_whole(path) as temporary:
        figure.savefig(temporary, dpi=150)

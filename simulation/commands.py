"""`mdsd study` and `mdsd plot`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

if TYPE_CHECKING:
    from simulation.results import Results


def study(
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SOURCE...",
            help="Trace folders, or synthetic:zipf,V=4096,entropy=3,distance=0.2,positions=256 (or dirichlet)",
            show_default=False,
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Results folder; a study that was interrupted goes on from here.")] = Path(
        "mdsd-study"
    ),
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="Study file (YAML, TOML, JSON); options given here win.")
    ] = None,
    samplers: Annotated[
        str | None, typer.Option(help="Comma-separated, e.g. with-replacement,greedy,top-then-sample:2")
    ] = None,
    verifiers: Annotated[str | None, typer.Option(help="Comma-separated, e.g. rrs,kseq,convex-minorant")] = None,
    n: Annotated[str | None, typer.Option("--n", help="Numbers of drafts, e.g. 1,2,4,8")] = None,
    temperatures: Annotated[str | None, typer.Option(help="Temperatures, e.g. 0,0.2,0.4")] = None,
    top_p: Annotated[str | None, typer.Option(help="Nucleus truncations, e.g. none,0.9")] = None,
    top_k: Annotated[str | None, typer.Option(help="Top-k truncations, e.g. none,50")] = None,
    positions: Annotated[int | None, typer.Option(help="Use so many positions of each source, evenly spread.")] = None,
    draws: Annotated[
        int | None, typer.Option(help="Draft tuples per position where a rate has no closed form.")
    ] = None,
    confidence: Annotated[float | None, typer.Option(help="Level of the intervals.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed: same seed, same numbers.")] = None,
    pad_vocab: Annotated[
        bool | None, typer.Option("--pad-vocab", help="Give tokens that one model lacks probability 0.")
    ] = None,
    skip_impossible: Annotated[
        bool | None, typer.Option("--skip-impossible", help="Leave out pairs that theory does not allow.")
    ] = None,
    workers: Annotated[int, typer.Option(help="Processes on this machine.")] = 1,
    dask: Annotated[str | None, typer.Option(help="Scheduler of a running Dask cluster, tcp://host:port")] = None,
) -> None:
    """Acceptance rates over a grid of samplers, verifiers, n and temperatures, with intervals and the bound alpha*."""
    from simulation import plots  # noqa: F401 -- the pictures come last: without Matplotlib, say so first
    from simulation.study import Study, read_study_file

    settings: dict[str, Any] = read_study_file(file) if file is not None else {}
    given = {
        "sources": sources or None,
        "samplers": _split(samplers, str, "samplers"),
        "verifiers": _split(verifiers, str, "verifiers"),
        "n": _split(n, int, "n"),
        "temperatures": _split(temperatures, float, "temperatures"),
        "top_p": _split(top_p, float, "top-p"),
        "top_k": _split(top_k, int, "top-k"),
        "positions": positions,
        "draws": draws,
        "confidence": confidence,
        "seed": seed,
        "pad_vocab": pad_vocab,
        "skip_impossible": skip_impossible,
    }
    settings |= {name: value for name, value in given.items() if value is not None}
    planned = Study.from_dict(settings)
    planned.check()
    console = Console()
    if planned.impossible and planned.skip_impossible:
        console.print(f"left out, {len(planned.impossible)} impossible pairs:")
        for pair in planned.impossible:
            console.print(f"  {pair}", highlight=False)
    with _progress() as progress:
        bar = progress.add_task("positions", total=None)
        results = planned.run(out, workers, dask, lambda done, total: progress.update(bar, completed=done, total=total))
    report(results, out, console)


def plot(
    folder: Annotated[Path, typer.Argument(help="Results folder of a finished study.", show_default=False)],
) -> None:
    """Write the tables and pictures of a finished study again."""
    from simulation.results import Results

    report(Results.load(folder), folder, Console())


def report(results: "Results", folder: Path, console: Console) -> None:
    """Print the table; write it as Markdown, CSV, LaTeX and JSON, and the pictures, into the folder."""
    from mdsd_theory.files import write_text
    from simulation import plots, tables

    for table in tables.rich_tables(results):
        console.print(table)
    console.print(tables.caption(results), highlight=False)
    files = {
        "table.md": tables.markdown(results),
        "table.csv": tables.to_csv(results.rows),
        "table.tex": tables.latex(results),
        "table.json": tables.to_json(results),
    }
    if results.trees:
        files["trees.csv"] = tables.to_csv(results.trees)
    for name, text in files.items():
        write_text(folder / name, text)
    pictures = plots.plot_all(results, folder / "plots") if results.rows else []
    console.print(f"{folder}: {', '.join(files)}" + f", plots/ ({len(pictures)} files)" * bool(pictures))
    if results.flagged:
        raise ValueError(f"{len(results.flagged)} rows are significantly above alpha*: a verifier is not lossless")


def _progress() -> Any:
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    return Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn(),
        console=Console(stderr=True),
    )  # fmt: skip


def _split(text: str | None, kind: type, name: str) -> list | None:
    """ "1,2,none" -> [1, 2, None]; ValueError names the option and what was found."""
    if text is None:
        return None
    values = []
    for word in (word.strip() for word in text.split(",")):
        try:
            values.append(None if word == "none" else kind(word))
        except ValueError:
            raise ValueError(f"--{name}: found {word!r}; allowed are {kind.__name__} values, comma-separated") from None
    return values

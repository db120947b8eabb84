"""`mdsd check`."""

from __future__ import annotations

import importlib
import os
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress
from rich.table import Table

if TYPE_CHECKING:
    from mdsd_theory.conformance import Report


# So many failures are told in a sentence each.
_SENTENCES = 12


def check(
    verifier: Annotated[
        str,
        typer.Argument(
            help="my_package.my_module:MyVerifier: a callable (p, q, tokens, rng) -> token, or an object or class with "
            "kernel or verify. Or the name of an installed verifier, e.g. rrs",
            show_default=False,
        ),
    ],
    sampler: Annotated[
        str, typer.Option(help="What draws the drafts, e.g. without-replacement, greedy, top-then-sample:2")
    ] = "with-replacement",
    n: Annotated[str, typer.Option("--n", help="Numbers of drafts to try, comma-separated.")] = "1,2,3,4",
    seed: Annotated[int, typer.Option(help="Seed of all draws.", min=0)] = 0,
) -> None:
    """Is a verifier lossless? Tries it on small vocabularies; exits with 0 if it is, 1 if not, 2 for bad input."""
    from mdsd_theory import conformance

    words = n.split(",")
    if not all(word.strip().isdecimal() and int(word) > 0 for word in words):
        raise ValueError(f"--n: found {n!r}; allowed are integers >= 1, comma-separated")
    subject = load_verifier(verifier)
    screen = Console(stderr=True)
    with Progress(console=screen, transient=True, disable=not screen.is_terminal) as bar:
        task = bar.add_task("cases", total=None)
        report = conformance.suite(
            subject,
            sampler,
            n=[int(word) for word in words],
            seed=seed,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    _print(report, Console())
    raise typer.Exit(0 if report.lossless else 1)


def load_verifier(name: str) -> Any:
    """The object at `module:attribute` (the current folder is searched last), or the installed verifier of that name.

    Raises:
        ValueError: no such module, attribute or name; or the module cannot be imported.
    """
    from mdsd_theory import verifiers

    module, colon, attribute = name.partition(":")
    if not colon:
        return verifiers.make(name)
    if not attribute or not all(part.isidentifier() for part in module.split(".")):
        raise ValueError(
            f"verifier: found {name!r}; allowed are module:attribute, the module as Python "
            f"imports it (my_package.my_module), and the names {', '.join(verifiers.names())}"
        )
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        found = importlib.import_module(module)
    except (Exception, SystemExit) as error:
        raise ValueError(f"verifier: importing {module} raised {type(error).__name__}: {error}") from None
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise ValueError(f"verifier: {getattr(found, '__name__', module)} has no {part}")
        found = getattr(found, part)
    return found


def _print(report: Report, console: Console) -> None:
    table = Table(title=f"{escape(report.verifier)} on {report.sampler} drafts")
    for column in ("case", "passed", "drafts", "token", "mass off by", "accepts", "alpha*"):
        table.add_column(column, justify="left" if column in ("case", "drafts") else "right")
    by_case: dict[str, list] = {}
    for run in report.runs:
        by_case.setdefault(run.case, []).append(run)
    for case, runs in by_case.items():
        passed = sum(run.verdict.lossless for run in runs)
        # The run that fails, or else the one with most drafts, stands for the case.
        shown = next((run for run in runs if not run.verdict.lossless), runs[-1])
        verdict = shown.verdict
        measured = verdict.token is not None
        # A counted frequency has two digits that mean anything.
        accepts = f"{verdict.acceptance:.4f}" if verdict.exact else f"≈ {verdict.acceptance:.2f}"
        table.add_row(
            case,
            f"{passed}/{len(runs)}",
            shown.drafts,
            str(verdict.token) if measured else "",
            f"{verdict.found - verdict.expected:+.1e}" if measured else "",
            accepts if measured else "",
            f"{verdict.optimal:.4f}",
            style=None if passed == len(runs) else "red",
        )
    console.print(table)
    for case, drafts, verdict in report.failures[:_SENTENCES]:
        console.print(f"[red]{escape(case)}, {drafts}:[/red] {escape(verdict.reason)}", highlight=False, soft_wrap=True)
    if len(report.failures) > _SENTENCES:
        console.print(f"and {len(report.failures) - _SENTENCES} more like these", highlight=False, soft_wrap=True)
    for sentence in report.refused:
        console.print(f"not served: {escape(sentence)}", highlight=False, soft_wrap=True)
    console.print(f"[bold]{escape(_summary(report))}[/bold]", highlight=False, soft_wrap=True)


def _summary(report: Report) -> str:
    cases = f"{len(report.runs)} cases"
    if not report.lossless:
        return f"NOT LOSSLESS: {len(report.failures)} of {cases} fail."
    exact = all(run.verdict.exact for run in report.runs)
    calls = sum(run.verdict.calls for run in report.runs)
    found = (
        f"{calls:,} calls: a mass off by {report.resolution:g} would be found with probability {report.power:g} in "
        f"each case; a lossless verifier fails with probability below {report.false_alarm:g}"
    )
    if exact:
        return f"LOSSLESS in {cases}, exactly by enumeration of its kernel" + (
            f"; verify agrees with it in {found}." if calls else "."
        )
    return f"LOSSLESS in {cases} as far as counting tells. {found}."

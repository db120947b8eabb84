"""The decoding layer's commands. Torch is imported inside them, so `mdsd --help` is fast and works without it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

COMMANDS = ("demo",)

DEFAULT_DRAFT = "early-exit:26"
"""For the bundled target: with fewer of its 30 layers, and no training, hardly a draft is accepted."""

Target = Annotated[
    str | None,
    typer.Option("--target", help="Hub id, folder or .gguf file of the target; the bundled SmolLM2-135M by default."),
]
Draft = Annotated[
    str | None,
    typer.Option("--draft", help="Drafter: early-exit:K, or Hub id, folder or .gguf file of a model."),
]
Temperature = Annotated[float, typer.Option(help="Sampling temperature, >= 0; 0 takes the most probable token.")]
TopK = Annotated[int | None, typer.Option(help="Keep the k most probable tokens.")]
TopP = Annotated[float | None, typer.Option(help="Keep the most probable tokens up to this mass, in (0, 1].")]
MaxTokens = Annotated[int, typer.Option(help="Most tokens to generate per prompt.")]
Seed = Annotated[int, typer.Option(help="Seed of all randomness.")]
Prompts = Annotated[
    Path | None, typer.Option("--prompts", help="Prompts: .jsonl of Spec-Bench / MT-Bench questions, or text lines.")
]


def demo(
    out: Annotated[Path | None, typer.Option(help="Results folder; mdsd-demo, or mdsd-demo-2 ... by default.")] = None,
    target: Target = None,
    draft: Draft = None,
    prompts: Prompts = None,
    temperature: Temperature = 1.0,
    top_k: TopK = None,
    top_p: TopP = None,
    max_tokens: MaxTokens = 32,
    seed: Seed = 0,
) -> None:
    """Decode a few prompts with several multi-draft methods and compare their acceptance with the optimum."""
    from gpu import demo as job
    from gpu.prompts import DEMO, read_questions

    console = Console()
    questions = read_questions(prompts or DEMO)
    compared = job.methods(temperature, top_k, top_p)
    if max_tokens < 1:
        raise ValueError(f"max_tokens must be at least 1, got {max_tokens}")
    folder = _new_folder(out, "mdsd-demo")
    loaded, drafter = _load(console, target, draft)
    folder.mkdir(parents=True, exist_ok=True)
    with _progress(console) as progress:
        summaries = job.run(loaded, drafter, questions, compared, max_tokens, seed, folder, progress)
    console.print(job.table(compared, summaries))
    console.print(f"Target {loaded.name}, drafter {drafter.name}. Results, plot and trace in [bold]{folder}[/].")


def _load(console: Console, target: str | None, draft: str | None, pad_vocab: bool = False, **how: str | None):
    """Target and drafter, with something to look at meanwhile."""
    from gpu import drafters
    from gpu.models import load_target

    if target is not None and draft is None:
        raise ValueError("--draft: name a drafter for this target, such as early-exit:K or a smaller model")
    with console.status("loading the models"):
        loaded = load_target(target, **how)
        return loaded, drafters.make(draft or DEFAULT_DRAFT, loaded, pad_vocab)


def _new_folder(out: Path | None, name: str) -> Path:
    """The folder asked for, which must not hold anything yet, or the first free name."""
    if out is not None:
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise ValueError(f"--out {out} exists already; choose another folder")
        return out
    number = 1
    while (folder := Path(name if number == 1 else f"{name}-{number}")).exists():
        number += 1
    return folder


def _progress(console: Console):
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    return Progress(
        TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn(), console=console
    )

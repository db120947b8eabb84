"""`mdsd train-drafter`."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

TRAINED_KINDS = ("lens", "eagle", "layers")
LOSSES = ("cross-entropy", "acceptance")


def train_drafter(
    out: Annotated[
        Path, typer.Option(help="The drafter file to write (.safetensors); its card goes beside it (.json).")
    ],
    target: Annotated[
        str | None, typer.Option(help="Hub id, folder or GGUF file; the bundled model by default.")
    ] = None,
    kind: Annotated[str, typer.Option(help="lens, eagle or layers.")] = "eagle",
    data: Annotated[list[str] | None, typer.Option(help="Text files, or self: text sampled from the target.")] = None,
    minutes: Annotated[float, typer.Option(help="Time to spend: CPU time, or wall time on a GPU.")] = 15.0,
    seed: Annotated[int, typer.Option(help="Seed of sampling and training.", min=0, max=2**32 - 1)] = 0,
    layers: Annotated[int, typer.Option(help="The target's first layers that lens and layers run.")] = 2,
    loss: Annotated[str, typer.Option(help="cross-entropy, or acceptance: 1 - alpha* of n drafts.")] = "cross-entropy",
    n: Annotated[
        int, typer.Option("--n", help="Drafts for which alpha* is reported (and trained, with acceptance).")
    ] = 4,
) -> None:
    """Train a drafter for a target. A run that was stopped goes on when started again."""
    data = data or ["self"]
    if out.suffix != ".safetensors":
        raise ValueError(f"--out {out}: the name must end in .safetensors")
    if kind not in TRAINED_KINDS:
        raise ValueError(f"--kind {kind!r} is not one of {', '.join(TRAINED_KINDS)}")
    if loss not in LOSSES:
        raise ValueError(f"--loss {loss!r} is not one of {', '.join(LOSSES)}")
    if not 0 < minutes < float("inf"):
        raise ValueError(f"--minutes must be a positive number, got {minutes}")
    if n < 1:
        raise ValueError(f"--n must be at least 1, got {n}")
    if data != ["self"]:
        for name in data:
            if not Path(name).is_file():
                raise FileNotFoundError(f"--data {name}: no such file")

    from rich.progress import Progress

    from gpu import train_drafter as job
    from gpu.models import load_target

    console = Console()
    with Progress(console=console) as progress:
        task = progress.add_task("loading the target", total=None)
        loaded = load_target(target)
        progress.remove_task(task)
        total = loaded.model.config.get_text_config(decoder=True).num_hidden_layers
        if not 1 <= layers < total:
            raise ValueError(f"--layers {layers}: the target has {total} layers; give 1 to {total - 1}")
        settings = job.Settings(loaded.name, kind, tuple(data), minutes, seed, layers, loss, n)
        card = job.run(loaded, settings, out, shlex.join(["mdsd", *sys.argv[1:]]), progress)
    mean = card["held_out"]["depth 1"]["mean"]
    console.print(
        f"{kind} drafter for {loaded.name} in {out} ({out.stat().st_size / 1e6:.1f} MB), card beside it. "
        f"Held-out α {mean['alpha']:.3f}, α*_{n} {mean['alpha_star']:.3f}."
    )

"""`mdsd bound`: alpha* of two vectors on disk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer

from mdsd_theory.files import read_json

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mdsd_theory.drafts import Draft


def bound(
    target: Annotated[
        Path,
        typer.Option(
            help="Target distribution or logits, V numbers: .npy, .npz (file.npz:key if it holds several) or .json.",
            show_default=False,
        ),
    ],
    draft: Annotated[
        list[Path],
        typer.Option(help="The drafter's, likewise; repeat it for independent drafters.", show_default=False),
    ],
    n: Annotated[str, typer.Option("--n", help="Numbers of drafts, comma-separated.")] = "4",
    sampler: Annotated[
        str, typer.Option(help="Samplers, comma-separated; top-then-sample:K takes K certain tokens.")
    ] = "with-replacement",
    logits: Annotated[
        bool, typer.Option("--logits", help="The files hold logits (implied by the next three).")
    ] = False,
    temperature: Annotated[float | None, typer.Option(help="Temperature applied to logits, >= 0.")] = None,
    top_k: Annotated[int | None, typer.Option(help="Keep the k most probable tokens of the logits.")] = None,
    top_p: Annotated[
        float | None, typer.Option(help="Keep the most probable tokens up to this mass, in (0, 1].")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """The optimal acceptance rate alpha* of a target and a draft, and the size of the set that proves it."""
    from mdsd_theory import optimal_acceptance, probabilities

    counts = [_count(word) for word in n.split(",")]
    arrays = [_read(target, "--target"), *(_read(path, "--draft") for path in draft)]
    if logits or any(option is not None for option in (temperature, top_k, top_p)):
        arrays = [probabilities(x, 1.0 if temperature is None else temperature, top_k, top_p) for x in arrays]
    p, *qs = arrays
    rows = []
    for name in sampler.split(","):
        for count in counts if name != "independent" else [len(qs)]:
            drafted = _drafted(name, qs, count)
            best = optimal_acceptance(p, drafted)
            row = {"sampler": name, "n": drafted.n, "alpha_star": best.rate, "subset_size": int(best.subset.sum())}
            row |= {"target_mass": best.target_mass, "draft_mass": best.draft_mass, "gap": best.gap}
            if row not in rows:
                rows.append(row)
    if as_json:
        print(json.dumps({"vocab_size": int(np.size(p)), "bounds": rows}, indent=2, default=float))
    else:
        _print_table(rows, int(np.size(p)))


def _count(word: str) -> int:
    if not word.strip().isdecimal() or int(word) < 1:
        raise ValueError(f"--n: {word.strip()!r}; allowed are whole numbers >= 1, separated by commas")
    return int(word)


def _drafted(name: str, qs: list[NDArray], count: int) -> Draft:
    from mdsd_theory import drafts

    if name == "independent":
        return drafts.make(name, qs)
    if len(qs) > 1:
        raise ValueError(f"--draft: {len(qs)} files; {name} takes one, several are for --sampler independent")
    name, _, top = name.partition(":")
    if top and not top.isdecimal():
        raise ValueError(f"--sampler: {name}:{top}; what follows the colon is the number of certain tokens")
    # SpecHub has n = 2 whatever else is in the table.
    size = {} if name in ("spechub", "joint") else {"n": count}
    return drafts.make(name, qs[0], **size, **({"top": int(top)} if top else {}))


def _read(path: Path, option: str) -> NDArray:
    """The array in a .npy, .npz or .json file. Raises ValueError that names the option and the file."""
    text, _, key = str(path).partition(".npz:")
    path = Path(text + ".npz" if key else text)
    try:
        if path.suffix == ".json":
            return np.asarray(read_json(path), dtype=float)
        found = np.load(path, allow_pickle=False)
        if isinstance(found, np.ndarray):
            return found
        with found:
            held = found.files
            if key in held or (not key and len(held) == 1):
                return found[key or held[0]]
    except FileNotFoundError:
        raise ValueError(f"{option}: no file {path}") from None
    except Exception as error:  # damage shows as any of many: EOFError, BadZipFile, zlib.error, OverflowError, ...
        why = str(error) or type(error).__name__
        raise ValueError(f"{option}: {path} is no readable .npy, .npz or .json array ({why})") from None
    raise ValueError(f"{option}: {path} holds {', '.join(held) or 'nothing'}; name one as {path}:KEY")


def _print_table(rows: list[dict], vocab_size: int) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"Optimal acceptance over {vocab_size:,} tokens", title_justify="left")
    for heading in ("sampler", "n", "alpha*", "|H*|", "P(H*)", "Q(H*)"):
        table.add_column(heading, justify="left" if heading == "sampler" else "right")
    for row in rows:
        rate = f"{row['alpha_star']:.6f}" + (f" (-{row['gap']:.1e})" if row["gap"] else "")
        masses = f"{row['target_mass']:.6f}", f"{row['draft_mass']:.6f}"
        table.add_row(row["sampler"], str(row["n"]), rate, f"{row['subset_size']:,}", *masses)
    Console().print(table)

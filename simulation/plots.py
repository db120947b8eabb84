"""Pictures of a study, PNG and SVG: readable in black and white (markers and line styles) and by colour-blind eyes (the
palette of Okabe and Ito)."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

from mdsd_theory.files import written_whole
from simulation.results import Results

matplotlib.use("Agg")
from matplotlib import pyplot as plt

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = "osD^vPX"
STYLE = {
    "figure.dpi": 150,
    "font.size": 9,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "lines.markersize": 5,
    "svg.hashsalt": "mdsd",  # the same study gives the same file
}
FIXED_METADATA = {"png": {"Software": None}, "svg": {"Date": None}}


def plot_all(results: Results, folder: str | os.PathLike) -> list[Path]:
    """Write every picture the study has data for, for each source and truncation; returns the files."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    known = results.settings["study"]["verifiers"]
    slices = sorted({_slice(row) for row in results.rows}, key=str)
    files = []
    for number, part in enumerate(slices):
        rows = [row for row in results.rows if _slice(row) == part]
        suffix = f"-{number}" if len(slices) > 1 else ""
        for name, draw in (
            ("temperature", lambda rows: plot_temperature(rows, known)),
            ("gap", plot_gap),
            ("n", lambda rows: plot_drafts(rows, known)),
            ("gap-histogram", lambda rows: plot_histogram(rows, results)),
        ):
            with plt.rc_context(STYLE):
                figure = draw(rows)
                if figure is not None:
                    figure.suptitle(_title(part), fontsize=8)
                    files += _save(figure, folder / f"{name}{suffix}")
    return files


def plot_temperature(rows: Sequence[dict[str, Any]], known: Sequence[str]) -> plt.Figure | None:
    """Acceptance against temperature: a panel per sampler, a line per verifier, alpha* dashed, at the largest n."""
    n = max(row["n"] for row in rows)
    rows = [row for row in rows if row["n"] == n]
    if len({row["temperature"] for row in rows}) < 2:
        return None
    return _panels(rows, known, "temperature", f"temperature (n = {n})")


def plot_drafts(rows: Sequence[dict[str, Any]], known: Sequence[str]) -> plt.Figure | None:
    """Acceptance against the number of drafts, like `plot_temperature`, at the temperature nearest 1."""
    temperature = min({row["temperature"] for row in rows}, key=lambda t: abs(t - 1))
    rows = [row for row in rows if row["temperature"] == temperature]
    if len({row["n"] for row in rows}) < 2:
        return None
    return _panels(rows, known, "n", f"number of drafts n (temperature {temperature:g})")


def plot_gap(rows: Sequence[dict[str, Any]]) -> plt.Figure:
    """Gap to alpha* of every pair with its interval, at the largest n, a bar for each temperature's mean."""
    n = max(row["n"] for row in rows)
    rows = [row for row in rows if row["n"] == n]
    pairs = list(dict.fromkeys((row["sampler"], row["verifier"]) for row in rows))
    temperatures = sorted({row["temperature"] for row in rows})
    figure, axes = plt.subplots(figsize=(6, 1.2 + 0.35 * len(pairs) * max(1, len(temperatures) / 3)), layout="tight")
    for k, temperature in enumerate(temperatures):
        found = {(row["sampler"], row["verifier"]): row for row in rows if row["temperature"] == temperature}
        y = [len(pairs) - i - 0.8 * (k + 0.5) / len(temperatures) for i, pair in enumerate(pairs) if pair in found]
        means = np.array([found[pair]["gap"] for pair in pairs if pair in found])
        ends = np.array([[found[pair][end] for pair in pairs if pair in found] for end in ("gap_low", "gap_high")])
        axes.errorbar(means, y, xerr=_bars(means, ends), fmt=MARKERS[k % len(MARKERS)], color=COLOURS[k % len(COLOURS)],
                      capsize=2, label=f"T = {temperature:g}")  # fmt: skip
    axes.axvline(0, color="black", linestyle="--", linewidth=1)
    axes.set_yticks([len(pairs) - i - 0.4 for i in range(len(pairs))], [f"{s} · {v}" for s, v in pairs])
    axes.locator_params(axis="x", nbins=6)
    axes.set_xlabel(f"alpha* − acceptance rate (n = {n})")
    axes.legend(fontsize=7)
    return figure


def plot_histogram(rows: Sequence[dict[str, Any]], results: Results) -> plt.Figure | None:
    """Histogram over positions of the gap to alpha*: a panel per pair, largest n, temperature nearest 1."""
    n = max(row["n"] for row in rows)
    temperature = min({row["temperature"] for row in rows}, key=lambda t: abs(t - 1))
    part = _slice(rows[0])
    gaps: dict[tuple[str, str], list[float]] = {}
    for one in results.positions():
        if _slice(one) == part and one["n"] == n and one["temperature"] == temperature:
            gaps.setdefault((one["sampler"], one["verifier"]), []).append(one["optimum"] - one["rate"])
    if not gaps:
        return None
    wide = min(3, len(gaps))
    high = -(-len(gaps) // wide)
    figure, grid = plt.subplots(
        high, wide, figsize=(2.6 * wide, 1.9 * high), squeeze=False, sharex=True, layout="tight"
    )
    edges = np.linspace(min(0.0, *map(min, gaps.values())), max(0.01, *map(max, gaps.values())), 26)
    for axes, (pair, values) in zip(grid.flat, gaps.items(), strict=False):
        axes.hist(values, bins=edges, color=COLOURS[0])
        axes.axvline(float(np.mean(values)), color="black", linestyle="--", linewidth=1)
        axes.set_title(f"{pair[0]} · {pair[1]}", fontsize=7)
    for axes in grid.flat[len(gaps) :]:
        axes.set_visible(False)
    for axes in grid[:, 0]:
        axes.set_ylabel("positions")
    for axes in grid[-1]:
        axes.set_xlabel(f"alpha* − rate\n(n = {n}, T = {temperature:g}; mean dashed)")
    return figure


def _panels(rows: Sequence[dict[str, Any]], known: Sequence[str], across: str, label: str) -> plt.Figure:
    """`known`: the study's verifiers, so that each has the same colour in every picture."""
    samplers = list(dict.fromkeys(row["sampler"] for row in rows))
    values = [row[across] for row in rows]
    aside = 0.012 * (max(values) - min(values))  # so that error bars do not hide each other
    figure, grid = plt.subplots(
        1, len(samplers), figsize=(2.8 * len(samplers) + 0.4, 3.2), sharey=True, squeeze=False, layout="tight"
    )
    for axes, sampler in zip(grid[0], samplers, strict=True):
        mine = sorted((row for row in rows if row["sampler"] == sampler), key=lambda row: row[across])
        bound = {row[across]: row["optimum"] for row in mine}
        axes.plot(bound.keys(), bound.values(), color="black", linestyle="--", label="alpha*", zorder=3)
        for k, verifier in enumerate(known):
            line = [row for row in mine if row["verifier"] == verifier]
            if not line:
                continue
            x, means = np.array([row[across] for row in line]), np.array([row["rate"] for row in line])
            ends = np.array([[row[end] for row in line] for end in ("rate_low", "rate_high")])
            colour, marker = COLOURS[k % len(COLOURS)], MARKERS[k % len(MARKERS)]
            axes.plot(x, means, color=colour, marker=marker, linewidth=1.2, markerfacecolor="none", label=verifier)
            beside = x + aside * (k - (len(known) - 1) / 2)
            axes.errorbar(beside, means, yerr=_bars(means, ends), fmt="none", ecolor=colour, capsize=1.5, linewidth=0.8)
        axes.set_title(sampler, fontsize=9)
        axes.set_xlabel(label)
        axes.legend(fontsize=7)
    grid[0][0].set_ylabel("acceptance rate")
    return figure


def _bars(means: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Error bars for matplotlib; none where there is no interval."""
    return np.nan_to_num(np.maximum(np.stack([means - ends[0], ends[1] - means]), 0))


def _slice(row: dict[str, Any]) -> tuple:
    return row["source"], row["top_p"], row["top_k"]


def _title(part: tuple) -> str:
    source, top_p, top_k = part
    words = [source]
    if top_p is not None:
        words.append(f"top-p {top_p:g}")
    if top_k is not None:
        words.append(f"top-k {top_k}")
    return ", ".join(words)


def _save(figure: plt.Figure, stem: Path) -> list[Path]:
    files = []
    for kind, metadata in FIXED_METADATA.items():
        path = stem.with_name(f"{stem.name}.{kind}")
        with written_whole(path) as temporary:
            figure.savefig(temporary, format=kind, metadata=metadata)
        files.append(path)
    plt.close(figure)
    return files

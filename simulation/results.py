"""What a study found: cells with their per-position estimates, and the table that is made of them."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from mdsd_theory.files import read_json
from simulation.monte_carlo import Interval, exceeds, mean_interval, seed_of

SETTINGS = "settings.json"
CELLS = "cells"
GRID = ("source", "sampler", "n", "temperature", "top_p", "top_k")


class Results:
    """Cells of a study. `rows`, `trees` and `positions()` are lists of plain dicts, ready for pandas.DataFrame."""

    def __init__(self, settings: dict[str, Any], cells: list[dict[str, Any]]) -> None:
        self.settings, self.cells = settings, cells
        self.rows = [self._row(cell, verifier) for cell, verifier in self._each("acceptance")]
        self.trees = [self._tree_row(cell, verifier) for cell, verifier in self._each("tree")]

    @classmethod
    def load(cls, folder: str | os.PathLike) -> "Results":
        """The finished study in a folder. ValueError when there is none, or it is not finished."""
        folder = Path(folder)
        try:
            settings = read_json(folder / SETTINGS)
            paths = [folder / CELLS / name for name in settings["cells"]]
            if missing := sum(not path.exists() for path in paths):
                raise ValueError(f"it is not finished ({missing} of {len(paths)} cells are missing): run it again")
            cells = [read_json(path) for path in paths]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{folder} holds no finished study: {error}") from None
        return cls(settings, cells)

    @property
    def flagged(self) -> list[dict[str, Any]]:
        """Rows significantly above alpha*: of lossless verifiers, none."""
        return [row for row in self.rows if row["above_optimum"]]

    def positions(self) -> Iterator[dict[str, Any]]:
        """One dict for every position, cell and verifier: the estimate, alpha* and what the position is."""
        for cell, verifier in self._each("acceptance"):
            found = cell["verifiers"][verifier]
            for k, row in enumerate(cell["row"]):
                yield {
                    **{name: cell["cell"][name] for name in GRID},
                    "verifier": verifier,
                    "row": row,
                    "prompt": cell["prompt"][k],
                    "position": cell["position"][k],
                    "rate": found["rate"][k],
                    "optimum": cell["optimum"][k],
                    "exact": found["exact"][k],
                }

    def difference(self, first: dict[str, Any], second: dict[str, Any]) -> Interval:
        """rate(first) - rate(second) of two of `rows` over the same positions, paired, with its interval."""
        one, other = (self._find(row) for row in (first, second))
        if one["row"] != other["row"] or first["source"] != second["source"]:
            raise ValueError("first and second are not over the same positions")
        rates = [np.array(c["verifiers"][r["verifier"]]["rate"]) for c, r in ((one, first), (other, second))]
        return self._interval(rates[0] - rates[1], one)

    def _each(self, kind: str) -> Iterator[tuple[dict[str, Any], str]]:
        for cell in self.cells:
            if cell["cell"]["kind"] == kind:
                for verifier in cell["verifiers"]:
                    yield cell, verifier

    def _find(self, row: dict[str, Any]) -> dict[str, Any]:
        return next(
            cell
            for cell in self.cells
            if cell["cell"]["kind"] == "acceptance" and all(cell["cell"][name] == row[name] for name in GRID)
        )

    def _row(self, cell: dict[str, Any], verifier: str) -> dict[str, Any]:
        found = cell["verifiers"][verifier]
        rates, optima = np.array(found["rate"]), np.array(cell["optimum"])
        variances, exact = np.array(found["variance"]), np.array(found["exact"])
        draws = self.settings["study"]["draws"]
        rate, gap = self._interval(rates, cell), self._interval(optima - rates, cell)
        return {
            **{name: cell["cell"][name] for name in GRID},
            "verifier": verifier,
            "positions": len(rates),
            "prompts": len(set(cell["prompt"])),
            "rate": rate.mean,
            "rate_low": rate.low,
            "rate_high": rate.high,
            "optimum": float(optima.mean()),
            "gap": gap.mean,
            "gap_low": gap.low,
            "gap_high": gap.high,
            "exact": bool(exact.all()),
            "monte_carlo_error": float(np.sqrt((variances / draws).sum()) / len(rates)),
            "above_optimum": exceeds(rates, variances, exact, optima, draws),
        }

    def _tree_row(self, cell: dict[str, Any], verifier: str) -> dict[str, Any]:
        found = cell["verifiers"][verifier]
        tokens = self._interval(np.array(found["rate"]), cell)
        return {
            **{name: cell["cell"][name] for name in GRID},
            "verifier": verifier,
            "steps": len(found["rate"]),
            "prompts": len(set(cell["prompt"])),
            "block_efficiency": tokens.mean,
            "low": tokens.low,
            "high": tokens.high,
            "exact": all(found["exact"]),
        }

    def _interval(self, values: np.ndarray, cell: dict[str, Any]) -> Interval:
        study = self.settings["study"]
        return mean_interval(values, np.array(cell["prompt"]), study["confidence"], seed_of(study["seed"], 1))

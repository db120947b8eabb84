"""A study: acceptance rates over the grid sources x samplers x verifiers x n x temperatures x top-p x top-k.

One cell is everything but the verifier: its verifiers share positions, distributions and drafts. A cell is worked on in
blocks of positions, so that a grid of one cell also keeps every worker busy, and is written whole as one JSON file. All
randomness of a position comes from (seed, cell, position): numbers do not depend on workers, order or interruptions.
"""

import hashlib
import itertools
import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mdsd_theory import drafts, optimal_acceptance, verifiers
from mdsd_theory.files import read_json, write_text
from simulation import execution, trees
from simulation.monte_carlo import Estimate, acceptance, seed_of
from simulation.results import CELLS, SETTINGS, Results
from simulation.sources import distributions, locate, make_draft, open_source, possible, rows_of, split_sampler
from simulation.traces import Trace

BLOCK = 16  # positions in one task


class Cell(NamedTuple):
    """One point of the grid; `verifiers` are those that can serve this sampler and n.

    kind "acceptance": acceptance rates at positions. kind "tree": block efficiency of the steps of a recorded tree
    trace, with the sampler, n and temperature that it was recorded with.
    """

    source: str
    sampler: str
    n: int
    temperature: float
    top_p: float | None
    top_k: int | None
    verifiers: tuple[str, ...]
    kind: str = "acceptance"

    @property
    def key(self) -> int:
        """What seeds are made of. Neither source nor verifiers: these may share their random numbers."""
        text = json.dumps([self.kind, self.sampler, self.n, self.temperature, self.top_p, self.top_k])
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")

    def file_name(self, sources: tuple[str, ...]) -> str:
        parts = [f"{sources.index(self.source)}", self.sampler.replace(":", ""), f"n{self.n}", f"T{self.temperature}"]
        if self.top_p is not None:
            parts.append(f"p{self.top_p}")
        if self.top_k is not None:
            parts.append(f"k{self.top_k}")
        if self.kind == "tree":
            parts.append("tree")
        return "-".join(parts) + ".json"


class Impossible(NamedTuple):
    """A pair of the grid that theory does not allow, and why."""

    sampler: str
    n: int
    verifier: str
    reason: str

    def __str__(self) -> str:
        return f"{self.sampler} x {self.verifier}, n = {self.n}: {self.reason}"


class Task(NamedTuple):
    """Rows of one cell, with all that a worker needs to measure them."""

    cell: Cell
    rows: tuple[int, ...]
    location: str
    pad_vocab: bool
    draws: int
    seed: int


@dataclass(frozen=True)
class Study:
    """The settings of a study; `run` does it.

    sources: trace folders, or synthetic families ("synthetic:zipf,V=4096,entropy=3,distance=0.2,positions=256").
    samplers: names of mdsd_theory.drafts; a number after a colon is the sampler's `top` ("top-then-sample:2").
    verifiers: names of mdsd_theory.verifiers. n, temperatures, top_p, top_k: the other axes of the grid; None in top_p
    or top_k means no truncation. positions: use only the first so many rows of each source. draws: draft tuples per
    position where a rate has no closed form. skip_impossible: leave out pairs that theory does not allow instead of
    refusing.

    ValueError, naming the setting, for anything that cannot be run.
    """

    sources: tuple[str, ...]
    samplers: tuple[str, ...] = ("with-replacement", "without-replacement", "greedy")
    verifiers: tuple[str, ...] = ("rrs", "kseq", "greedy", "convex-minorant")
    n: tuple[int, ...] = (4,)
    temperatures: tuple[float, ...] = (1.0,)
    top_p: tuple[float | None, ...] = (None,)
    top_k: tuple[int | None, ...] = (None,)
    positions: int | None = None
    draws: int = 64
    confidence: float = 0.95
    seed: int = 0
    pad_vocab: bool = False
    skip_impossible: bool = False

    def __post_init__(self) -> None:
        for field in fields(self):
            if str(field.type).startswith("tuple"):
                values = _as_tuple(getattr(self, field.name))
                if not values:
                    raise ValueError(f"{field.name} is empty; a study needs at least one")
                if len(set(values)) < len(values):
                    raise ValueError(f"{field.name} has a value twice: {', '.join(map(str, values))}")
                object.__setattr__(self, field.name, values)
        object.__setattr__(self, "sources", tuple(map(str, self.sources)))
        _check(self.samplers, "samplers", lambda s: split_sampler(s)[0] in drafts.names(), ", ".join(drafts.names()))
        _check(self.verifiers, "verifiers", verifiers.names().__contains__, ", ".join(verifiers.names()))
        _check(self.n, "n", lambda n: _is_whole(n) and n >= 1, "integers >= 1")
        _check(self.temperatures, "temperatures", lambda t: 0 <= t < np.inf, "numbers >= 0")
        _check(self.top_p, "top_p", lambda p: p is None or 0 < p <= 1, "numbers in (0, 1]")
        _check(self.top_k, "top_k", lambda k: k is None or (_is_whole(k) and k >= 1), "integers >= 1")
        _check((self.positions,), "positions", lambda n: n is None or (_is_whole(n) and n >= 1), "an integer >= 1")
        _check((self.draws,), "draws", lambda n: _is_whole(n) and n >= 2, "an integer >= 2")
        _check((self.confidence,), "confidence", lambda c: 0 < c < 1, "a number inside (0, 1)")
        _check((self.seed,), "seed", lambda n: _is_whole(n) and n >= 0, "an integer >= 0")

    @classmethod
    def from_dict(cls, settings: dict[str, Any]) -> "Study":
        """From a dict, such as a YAML or TOML study file holds; ValueError for unknown settings or wrong values.

        Where neither samplers nor verifiers are named, nobody asked for the impossible pairs of the default grid.
        """
        known = [field.name for field in fields(cls)]
        if unknown := sorted(set(settings) - set(known)):
            raise ValueError(f"unknown settings {', '.join(unknown)}; known are {', '.join(known)}")
        if "sources" not in settings:
            raise ValueError("sources is missing: name at least one trace folder or synthetic family")
        if not {"samplers", "verifiers"} & set(settings):
            settings = {"skip_impossible": True, **settings}
        try:
            return cls(**settings)
        except TypeError as error:
            raise ValueError(f"a setting has a value of the wrong kind: {error}") from None

    @classmethod
    def from_file(cls, path: str | os.PathLike) -> "Study":
        """From a .yaml, .yml, .toml or .json study file."""
        return cls.from_dict(read_study_file(Path(path)))

    @cached_property
    def cells(self) -> tuple[Cell, ...]:
        """The grid, without cells that no verifier can serve, then one cell for every tree trace."""
        refused = {(pair.sampler, pair.n, pair.verifier) for pair in self.impossible}
        grid = itertools.product(self.sources, self.samplers, self.n, self.top_p, self.top_k, self.temperatures)
        cells = []
        for source, sampler, n, top_p, top_k, temperature in grid:
            able = tuple(v for v in self.verifiers if (sampler, n, v) not in refused)
            if able:
                cells.append(Cell(source, sampler, n, float(temperature), top_p, top_k, able))
        return (*cells, *filter(None, map(self._tree_cell, self.sources)))

    @cached_property
    def impossible(self) -> tuple[Impossible, ...]:
        """Pairs of the grid that cannot be run, found without touching a position."""
        size = max(open_source(source, self.pad_vocab).vocab_size for source in self.sources)
        return tuple(
            Impossible(sampler, n, name, reason)
            for sampler, n, name in itertools.product(self.samplers, self.n, self.verifiers)
            if (reason := _refusal(sampler, n, name, size))
        )

    def check(self) -> None:
        """ValueError, before any work, when the grid has impossible pairs and `skip_impossible` is not set, or when
        nothing is left of it."""
        if self.impossible and not self.skip_impossible:
            listed = "\n".join(f"{pair};" for pair in self.impossible)
            raise ValueError(f"impossible pairs in the grid (--skip-impossible leaves them out):\n{listed}")
        if not self.cells:
            raise ValueError("no sampler of the grid can be verified by any of its verifiers")

    def run(
        self,
        folder: str | os.PathLike | None = None,
        workers: int = 1,
        dask: str | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> Results:
        """Measure every cell.

        folder: where cells are kept as they are finished; a second run with the same settings takes them from there,
        one with other settings is refused. workers, dask: see `execution.run`. progress: called with (positions done,
        positions in all). ValueError as `check`.
        """
        self.check()
        folder = None if folder is None else Path(folder)
        if folder is not None:
            self._claim(folder)
        measured = {cell: found for cell in self.cells if (found := self._load(folder, cell))}
        rows = {cell: self._rows(cell) for cell in self.cells}
        tasks = [
            Task(
                cell,
                tuple(rows[cell][first : first + BLOCK]),
                locate(cell.source),
                self.pad_vocab,
                self.draws,
                self.seed,
            )
            for cell in self.cells
            if cell not in measured
            for first in range(0, len(rows[cell]), BLOCK)
        ]
        total, done = sum(map(len, rows.values())), sum(len(rows[cell]) for cell in measured)
        blocks: dict[Cell, dict[int, dict]] = {}
        report = progress or (lambda done, total: None)
        report(done, total)
        for index, block in execution.run(measure, tasks, workers, dask):
            cell = tasks[index].cell
            blocks.setdefault(cell, {})[index] = block
            if sum(len(part["row"]) for part in blocks[cell].values()) == len(rows[cell]):
                measured[cell] = _join(cell, [part for _, part in sorted(blocks.pop(cell).items())])
                self._save(folder, cell, measured[cell])
            done += len(tasks[index].rows)
            report(done, total)
        return Results(self.settings, [measured[cell] for cell in self.cells])

    @property
    def settings(self) -> dict[str, Any]:
        """Everything that decides the numbers, as JSON: settings, contents of the sources, version of the package."""
        found = {source: open_source(source, self.pad_vocab).fingerprint for source in self.sources}
        own = json.loads(json.dumps(asdict(self)))
        return {"study": own, "fingerprints": found, "version": _version(), "cells": self._files}

    @property
    def _files(self) -> list[str]:
        return [cell.file_name(self.sources) for cell in self.cells]

    def _tree_cell(self, source: str) -> Cell | None:
        trace = open_source(source, self.pad_vocab)
        if not isinstance(trace, Trace) or trace.tree is None:
            return None
        sampler, n = trees.sampler_of(trace), trace.column("drafts").shape[1]
        able = tuple(v for v in self.verifiers if not _refusal(sampler, n, v, trace.vocab_size))
        filters = float(trace.tree["temperature"]), trace.tree.get("top_p"), trace.tree.get("top_k")
        return Cell(source, sampler, n, *filters, able, "tree") if able else None

    def _rows(self, cell: Cell) -> list[int]:
        """Of an acceptance cell the trace's rows, of a tree cell the numbers of its steps."""
        source = open_source(cell.source, self.pad_vocab)
        if cell.kind == "tree":
            return list(range(len(list(source.steps()))))[: self.positions]
        return rows_of(source, self.positions).tolist()

    def _claim(self, folder: Path) -> None:
        path, mine = folder / SETTINGS, self.settings
        if path.exists():
            theirs = read_json(path)
            if theirs != mine:
                old, new = ({**s.get("study", {}), **s} for s in (theirs, mine))
                changed = [name for name in new if name != "study" and old.get(name) != new[name]]
                raise ValueError(
                    f"{folder} holds a study with other settings ({', '.join(changed)}); use another folder"
                )
        elif folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise ValueError(f"{folder} exists and holds no study; results go into a new or empty folder")
        else:
            (folder / CELLS).mkdir(parents=True, exist_ok=True)
            write_text(path, json.dumps(mine, indent=1))

    def _load(self, folder: Path | None, cell: Cell) -> dict | None:
        path = folder and folder / CELLS / cell.file_name(self.sources)
        return read_json(path) if path and path.exists() else None

    def _save(self, folder: Path | None, cell: Cell, measured: dict) -> None:
        if folder is not None:
            write_text(folder / CELLS / cell.file_name(self.sources), json.dumps(measured))


def measure(task: Task) -> dict[str, Any]:
    """What a worker does: the estimates of one cell at some of its rows, as JSON-ready lists."""
    cell = task.cell
    source = open_source(task.location, task.pad_vocab)
    able = [verifiers.make(name) for name in cell.verifiers]
    rows, optima, estimates = list(task.rows), [], []
    if cell.kind == "tree":
        steps = list(source.steps())
        rows = [steps[step].start for step in task.rows]
        for step in task.rows:
            rng = np.random.default_rng(seed_of(task.seed, cell.key, step))
            found = [trees.block_efficiency(source, steps[step], verifier, rng=rng) for verifier in able]
            estimates.append([Estimate(tokens, 0.0, exact) for tokens, exact in found])
    else:
        for row in rows:
            p, q = possible(*distributions(source, row, cell.temperature, cell.top_p, cell.top_k))
            draft = make_draft(cell.sampler, q, cell.n)
            optima.append(float(optimal_acceptance(p, draft).rate))
            rng = np.random.default_rng(seed_of(task.seed, cell.key, row))
            estimates.append(acceptance(p, draft, able, task.draws, rng))
    return {
        "row": rows,
        "prompt": source.column("prompt")[rows].tolist(),
        "position": source.column("position")[rows].tolist(),
        "optimum": optima,
        "verifiers": {
            name: {field: [getattr(of_row[k], field) for of_row in estimates] for field in Estimate._fields}
            for k, name in enumerate(cell.verifiers)
        },
    }


def read_study_file(path: Path) -> dict[str, Any]:
    """The settings in a .toml, .yaml, .yml or .json file. ValueError, naming the file, when it cannot be read."""
    try:
        text = path.read_text(encoding="utf-8-sig")
        if path.suffix == ".toml":
            import tomllib

            settings = tomllib.loads(text)
        elif path.suffix in (".yaml", ".yml"):
            import yaml

            try:
                settings = yaml.safe_load(text)
            except yaml.YAMLError as error:
                raise ValueError(" ".join(str(error).split())) from None
        elif path.suffix == ".json":
            settings = json.loads(text)
        else:
            raise ValueError("study files end in .yaml, .yml, .toml or .json")
    except ValueError as error:
        raise ValueError(f"study file {path}: {error}") from None
    if not isinstance(settings, dict):
        raise ValueError(f"study file {path}: it holds a {type(settings).__name__}, not settings by name")
    return settings


def _join(cell: Cell, blocks: list[dict]) -> dict[str, Any]:
    joined: dict[str, Any] = {"cell": cell._asdict()}
    for name in ("row", "prompt", "position", "optimum"):
        joined[name] = [value for block in blocks for value in block[name]]
    joined["verifiers"] = {
        verifier: {
            field: [value for block in blocks for value in block["verifiers"][verifier][field]]
            for field in Estimate._fields
        }
        for verifier in cell.verifiers
    }
    return joined


def _refusal(sampler: str, n: int, verifier: str, vocab_size: int) -> str | None:
    """Why this verifier cannot serve n drafts of this sampler; None when it can."""
    uniform = np.full(vocab_size, 1 / vocab_size)
    try:
        verifiers.make(verifier).check(uniform, make_draft(sampler, uniform, n))
    except ValueError as error:
        return str(error)
    return None


def _version() -> str:
    try:
        return version("mdsd")
    except PackageNotFoundError:  # run from a source tree
        return "source"


def _as_tuple(value: object) -> tuple:
    """A list of values, or one value alone (a bare string is one value)."""
    return (value,) if value is None or isinstance(value, (str, int, float)) else tuple(value)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _check(values: tuple, name: str, allowed: Callable[[Any], bool], what: str) -> None:
    for value in values:
        try:
            good = allowed(value)
        except TypeError:
            good = False
        if not good:
            raise ValueError(f"{name}: found {value!r}; allowed are {what}")

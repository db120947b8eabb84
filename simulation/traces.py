"""Recorded traces: the logits of a target and a draft model at the positions of real text.

A trace is a folder: `trace.json` (the header: models, temperature, dtype, prompts, list of shards) and shards
`shard-00000.safetensors` with the tensors below, rows = positions. The header is written last and every file is renamed
into place, so a folder with a header is a whole trace. Until then `unfinished.json` says what a writer that starts
again may keep. NumPy only; bfloat16 is carried as its raw 16 bits.

| tensor | shape | what |
|---|---|---|
| target, draft | (rows, V_target), (rows, V_draft) | logits as the model gave them; (rows, k) when compressed |
| target_ids, draft_ids | (rows, k) int32 | compressed only: the tokens of the kept logits, largest first |
| target_tail, draft_tail | (rows, temperatures) float64 | compressed only: log sum exp(logit / T) over the rest |
| prompt, position | (rows,) int32 | index into the header's prompts; token position in that text |
| sequence, step, parent, depth, child_rank, token | (rows,) int32 | tree traces only, see below |
| drafts | (rows, n) int32 | tree traces only: the node's draft tokens in draw order, -1 where none were drawn |

Tree traces hold every node of the draft tree of every decoding step: a root (parent -1) first, then its descendants,
each after its parent; `parent` counts rows from that root, `token` is the token that leads to the node and `child_rank`
the first place among its parent's drafts at which it was drawn (equal siblings are one node).
"""

import hashlib
import json
import os
import re
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import logsumexp

from mdsd_theory.files import read_json, write_text
from simulation import shards

HEADER = "trace.json"
UNFINISHED = "unfinished.json"  # a writer's settings, and its shards up to the last checkpoint
FORMAT = "mdsd-trace"
VERSION = 1
COLUMNS = ("prompt", "position")
TREE_COLUMNS = ("sequence", "step", "parent", "depth", "child_rank", "token", "drafts")
DTYPES = {"float16": ("F16", np.float16), "bfloat16": ("BF16", np.uint16), "float32": ("F32", np.float32)}
LEFTOVER = re.compile(r"shard-\d{5}(\.part)?\.safetensors|(trace|unfinished)\.part\.json|unfinished\.json")
OPEN_SHARDS = 2  # mapped at a time, so that address space stays flat as well as memory


class TraceWriter:
    """Writes a trace, position by position; use as a context manager.

    An exception inside the `with` block (or a kill) leaves a folder without header, which no reader accepts. The next
    writer of the folder replaces it, but for what `checkpoint` has secured: then it must have the same settings, and
    goes on from there, `done` saying where that is.

    Parameters
    ----------
    folder: created; ValueError when it already holds a finished trace, an unfinished one of other settings, or files
        that no trace writer made.
    target_model, draft_model: names for people.
    prompts: texts (or names) that the `prompt` column counts; positions of one prompt are one cluster in statistics.
    temperature: at which the recorded text was sampled; None when the text was not sampled from the target.
    dtype: "float16", "bfloat16" (give the raw bits as uint16) or "float32": the dtype of the logits given to `append`.
    keep_top: keep only this many largest logits of each row and the exact mass of the rest at `tail_temperatures`.
    tree: for tree traces, the settings that drew the trees: {"sampler": ..., "n": ..., "temperature": ..., ...}.
    extra: anything else worth keeping, as JSON (seed, versions).
    """

    def __init__(
        self,
        folder: str | os.PathLike,
        *,
        target_model: str,
        draft_model: str,
        prompts: Sequence[str],
        temperature: float | None,
        dtype: str = "float16",
        keep_top: int | None = None,
        tail_temperatures: Sequence[float] = (1.0,),
        tree: dict[str, Any] | None = None,
        extra: dict[str, Any] | None = None,
        shard_bytes: int = 256 * 2**20,
    ) -> None:
        if dtype not in DTYPES:
            raise ValueError(f"dtype is {dtype!r}; allowed are {', '.join(DTYPES)}")
        if not prompts:
            raise ValueError("prompts is empty: a trace names the texts its positions come from")
        if keep_top is not None and keep_top < 1:
            raise ValueError(f"keep_top is {keep_top}; it must be at least 1")
        if any(not t > 0 for t in tail_temperatures):
            raise ValueError(f"tail_temperatures are {list(tail_temperatures)}; they must be positive")
        if shard_bytes < 1:
            raise ValueError(f"shard_bytes is {shard_bytes}; it must be at least 1")
        self.folder = Path(folder)
        self.dtype, self._numpy_dtype = DTYPES[dtype]
        self.keep_top, self.tail_temperatures = keep_top, tuple(map(float, tail_temperatures))
        self.shard_bytes = shard_bytes
        self._columns = COLUMNS + (TREE_COLUMNS if tree is not None else ())
        self._header: dict[str, Any] = {
            "format": FORMAT,
            "version": VERSION,
            "target_model": target_model,
            "draft_model": draft_model,
            "temperature": temperature,
            "dtype": self.dtype,
            "prompts": list(prompts),
            "keep_top": keep_top,
            "tail_temperatures": list(self.tail_temperatures) if keep_top else [],
            "tree": tree,
            "extra": extra or {},
        }
        self._shards: list[dict[str, Any]] = []
        self._pending: list[dict[str, np.ndarray]] = []
        self._pending_bytes = 0
        self._vocabularies: tuple[int, int] | None = None
        self.done = 0
        """What the last `checkpoint`, perhaps of an earlier run, was told."""
        check_room(self.folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._take_up()

    @property
    def rows(self) -> int:
        """Positions so far, those of earlier runs included."""
        return sum(shard["rows"] for shard in self._shards) + sum(len(block["prompt"]) for block in self._pending)

    def append(self, target: np.ndarray, draft: np.ndarray, **columns: np.ndarray | int) -> None:
        """Append positions: target (rows, V_target) or (V_target,), draft likewise; prompt, position (and for tree
        traces sequence, step, parent, depth, child_rank, token) as (rows,) integers or one integer for all rows, drafts
        as (rows, n). Arrays are copied. ValueError for wrong names, dtypes, shapes or prompt indices.
        """
        target, draft = np.atleast_2d(target), np.atleast_2d(draft)
        rows = len(target)
        for name, logits in (("target", target), ("draft", draft)):
            if logits.dtype != self._numpy_dtype or logits.ndim != 2 or len(logits) != rows or not logits.size:
                takes = f"{np.dtype(self._numpy_dtype)} ({rows}, V)"
                raise ValueError(f"{name} is {logits.dtype} {logits.shape}; this trace takes {takes}")
        if set(columns) != set(self._columns):
            raise ValueError(f"columns are {sorted(columns)}; this trace takes {sorted(self._columns)}")
        vocabularies = (target.shape[1], draft.shape[1])
        if self._vocabularies not in (None, vocabularies):
            raise ValueError(f"vocabularies are {vocabularies}; earlier rows had {self._vocabularies}")
        if self.keep_top is not None and self.keep_top >= min(vocabularies):
            raise ValueError(f"keep_top is {self.keep_top}; it must be below the vocabulary size {min(vocabularies)}")
        self._vocabularies = vocabularies

        block = {}
        for name, values in columns.items():
            values = np.asarray(values)
            shape = (rows, values.shape[-1]) if name == "drafts" and values.ndim else (rows,)
            if values.dtype.kind not in "iu" or values.shape not in ((), shape):
                raise ValueError(f"{name} is {values.dtype} {values.shape}; it must be integers {shape} or one integer")
            block[name] = np.array(np.broadcast_to(values, shape), dtype=np.int32)
        prompts = len(self._header["prompts"])
        if not np.isin(block["prompt"], np.arange(prompts)).all():
            raise ValueError(f"prompt is {columns['prompt']}; the header has prompts 0..{prompts - 1}")
        for name, logits in (("target", target), ("draft", draft)):
            block |= self._compress(name, logits) if self.keep_top else {name: np.array(logits)}
        self._pending.append(block)
        self._pending_bytes += sum(array.nbytes for array in block.values())
        if self._pending_bytes >= self.shard_bytes:
            self._flush()

    def _compress(self, name: str, logits: np.ndarray) -> dict[str, np.ndarray]:
        values = _to_float(logits).astype(np.float64)
        order = np.argsort(-values, axis=1, kind="stable")
        ids, rest = order[:, : self.keep_top], order[:, self.keep_top :]
        left_out = np.take_along_axis(values, rest, axis=1)
        tail = [logsumexp(left_out / t, axis=1) for t in self.tail_temperatures]
        return {
            name: np.take_along_axis(logits, ids, axis=1),
            f"{name}_ids": ids.astype(np.int32),
            f"{name}_tail": np.stack(tail, axis=1),
        }

    def _flush(self) -> None:
        if not self._pending:
            return
        tensors = {}
        for name in self._pending[0]:
            if len({block[name].shape[1:] for block in self._pending}) > 1:
                raise ValueError(f"{name} has rows of different lengths")
            tensors[name] = np.concatenate([block[name] for block in self._pending])
        file = f"shard-{len(self._shards):05d}.safetensors"
        sha256, size = shards.write(self.folder / file, tensors, self.dtype)
        self._shards.append({"file": file, "rows": len(tensors["prompt"]), "bytes": size, "sha256": sha256})
        self._pending, self._pending_bytes = [], 0

    def checkpoint(self, done: int) -> None:
        """Secure all positions so far: a writer that starts again with the same settings has them, and `done`.

        A shard ends here, so that the files do not depend on interruptions.
        """
        self._flush()
        self.done = done
        state = {
            "settings": self._header, "done": done, "vocabularies": self._vocabularies, "shards": self._shards,
        }  # fmt: skip
        write_text(self.folder / UNFINISHED, json.dumps(state, indent=1, ensure_ascii=False) + "\n")

    def _take_up(self) -> None:
        """Go on from the last checkpoint in the folder, and remove what a writer left there after it."""
        unfinished = self.folder / UNFINISHED
        if unfinished.exists():
            try:
                state = read_json(unfinished)
                theirs, self._shards, self.done = dict(state["settings"]), list(state["shards"]), int(state["done"])
                self._vocabularies = state["vocabularies"] and tuple(state["vocabularies"])
            except (ValueError, KeyError, TypeError) as error:
                raise ValueError(f"{unfinished} is not readable ({error!r}); remove {self.folder}") from None
            if changed := "; ".join(_differences(theirs, json.loads(json.dumps(self._header)))):
                raise ValueError(
                    f"{self.folder} holds an unfinished trace of another run ({changed}): finish that one, remove it,"
                    " or choose another folder"
                )
            for shard in self._shards:
                shards.read_layout(self.folder / shard["file"], shard["bytes"])
        keep = {UNFINISHED, *(shard["file"] for shard in self._shards)}
        for path in self.folder.iterdir():
            if path.name not in keep:
                path.unlink()

    def close(self) -> None:
        """Flush the last shard and write the header: from here on the trace is whole. ValueError when it is empty."""
        self._flush()
        if not self._shards:
            raise ValueError(f"no positions were given for the trace {self.folder}")
        self._header["rows"] = self.rows
        self._header["target_vocab"], self._header["draft_vocab"] = self._vocabularies
        self._header["columns"] = list(self._columns)
        self._header["shards"] = self._shards
        write_text(self.folder / HEADER, json.dumps(self._header, indent=1, ensure_ascii=False) + "\n")
        (self.folder / UNFINISHED).unlink(missing_ok=True)

    def __enter__(self) -> "TraceWriter":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.close()


class Trace:
    """A recorded trace, its rows mapped lazily from disk; len() is the number of positions.

    ValueError, naming the file, for a folder without (or with an unreadable) header, a shard that is missing, truncated
    or not what the header says, and for target and draft vocabularies of different size unless `pad_vocab`, which gives
    the tokens that one model lacks the logit -inf. Picklable: workers reopen the folder.
    """

    def __init__(self, folder: str | os.PathLike, pad_vocab: bool = False) -> None:
        self.folder, self.pad_vocab = Path(folder), pad_vocab
        self.header = _read_header(self.folder)
        sizes = self.header["target_vocab"], self.header["draft_vocab"]
        if sizes[0] != sizes[1] and not pad_vocab:
            raise ValueError(
                f"trace {self.folder}: the target has {sizes[0]} tokens and the draft {sizes[1]};"
                " --pad-vocab gives the missing ones probability 0"
            )
        self.vocab_size: int = max(sizes)
        self.prompts: list[str] = self.header["prompts"]
        self.tree: dict[str, Any] | None = self.header["tree"]
        self._layouts = [self._check_shard(shard) for shard in self.header["shards"]]
        self._starts = np.cumsum([0] + [shard["rows"] for shard in self.header["shards"]])
        self._mapped: OrderedDict[int, dict[str, np.ndarray]] = OrderedDict()
        self._cached_columns: dict[str, np.ndarray] = {}

    def __len__(self) -> int:
        return self.header["rows"]

    def __reduce__(self) -> tuple:
        return Trace, (self.folder, self.pad_vocab)

    @property
    def fingerprint(self) -> str:
        """sha256 of the header, which carries every shard's sha256: equal exactly when the traces are equal."""
        return hashlib.sha256(json.dumps(self.header, sort_keys=True).encode()).hexdigest()

    def column(self, name: str) -> np.ndarray:
        """All rows of a small column (`prompt`, `position`, `parent` ...), int32 (rows,), or (rows, n) for `drafts`."""
        if name not in self.header["columns"]:
            raise ValueError(f"trace {self.folder} has no column {name!r}; it has {', '.join(self.header['columns'])}")
        if name not in self._cached_columns:
            parts = [np.array(self._shard(k)[name]) for k in range(len(self._layouts))]
            self._cached_columns[name] = np.concatenate(parts)
        return self._cached_columns[name]

    def logits(self, row: int, temperature: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
        """(target, draft) logits of one row, two float32 (V,) arrays (float64 when compressed).

        `temperature` matters for compressed traces alone: the tokens left out share equally the mass they have at that
        temperature, so it must be 0 or one of the recorded ones. ValueError otherwise, for NaN or +inf logits, and for
        a row out of range.
        """
        if not 0 <= row < len(self):
            raise ValueError(f"row is {row}; trace {self.folder} has rows 0..{len(self) - 1}")
        k = int(np.searchsorted(self._starts, row, side="right")) - 1
        shard, i = self._shard(k), row - self._starts[k]
        pair = []
        for name in ("target", "draft"):
            values = _to_float(shard[name][i])
            if not (values < np.inf).all():  # NaN compares false
                where = f"row {row} (prompt {shard['prompt'][i]}, position {shard['position'][i]})"
                raise ValueError(f"trace {self.folder}, {where}: the {name} logits hold NaN or +inf")
            if self.header["keep_top"]:
                values = self._expand(shard, name, i, values, temperature)
            if len(values) < self.vocab_size:
                values = np.pad(values, (0, self.vocab_size - len(values)), constant_values=-np.inf)
            pair.append(values)
        return pair[0], pair[1]

    def steps(self) -> Iterator[range]:
        """Tree traces: the rows of each decoding step's tree, root first. ValueError for other traces."""
        roots = np.flatnonzero(self.column("parent") < 0)
        yield from map(range, roots, [*roots[1:], len(self)])

    def _expand(
        self, shard: dict[str, np.ndarray], name: str, i: int, kept: np.ndarray, temperature: float
    ) -> np.ndarray:
        full = np.full(self.header[f"{name}_vocab"], -np.inf)
        if temperature > 0:
            known = self.header["tail_temperatures"]
            if temperature not in known:
                raise ValueError(
                    f"trace {self.folder} is compressed and keeps the tail mass at the temperatures {known};"
                    f" temperature {temperature} needs a full trace"
                )
            tail = shard[f"{name}_tail"][i, known.index(temperature)]
            full[:] = temperature * (tail - np.log(len(full) - len(kept)))
        full[shard[f"{name}_ids"][i]] = kept
        return full

    def _shard(self, k: int) -> dict[str, np.ndarray]:
        if k not in self._mapped:
            while len(self._mapped) >= OPEN_SHARDS:
                self._mapped.popitem(last=False)
            file = self.folder / self.header["shards"][k]["file"]
            self._mapped[k] = {
                name: np.memmap(file, dtype=dtype, mode="r", offset=offset, shape=shape)
                for name, (dtype, offset, shape) in self._layouts[k].items()
            }
        self._mapped.move_to_end(k)
        return self._mapped[k]

    def _check_shard(self, shard: dict[str, Any]) -> dict[str, tuple[Any, int, tuple[int, ...]]]:
        file = self.folder / shard["file"]
        layout = shards.read_layout(file, shard["bytes"])
        names = ["target", "draft", *self.header["columns"]]
        if self.header["keep_top"]:
            names += ["target_ids", "draft_ids", "target_tail", "draft_tail"]
        for name in names:
            if name not in layout or layout[name][2][:1] != (shard["rows"],):
                raise ValueError(
                    f"{file}: tensor {name!r} is missing or does not have the {shard['rows']} rows it should"
                )
        for name in ("target", "draft"):
            dtype, _, shape = layout[name]
            width = self.header["keep_top"] or self.header[f"{name}_vocab"]
            if dtype != shards.STORED[self.header["dtype"]] or shape[1:] != (width,):
                raise ValueError(f"{file}: tensor {name!r} is {np.dtype(dtype)} {shape}, not what {HEADER} says")
        return layout


def _to_float(stored: np.ndarray) -> np.ndarray:
    """float32 copy of stored logits; the bits of a bfloat16 are the upper half of a float32's."""
    if stored.dtype == np.uint16:
        return (np.asarray(stored, dtype=np.uint32) << 16).view(np.float32)
    return np.array(stored, dtype=np.float32)


def check_room(folder: Path) -> None:
    """ValueError unless a trace can be written here: the folder is not there yet, empty, or holds an unfinished one."""
    if (folder / HEADER).exists():
        raise ValueError(f"{folder} already holds a finished trace; choose another folder or remove it")
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file; a trace is a folder")
    for path in folder.iterdir() if folder.exists() else ():
        if not LEFTOVER.fullmatch(path.name):
            raise ValueError(f"{folder} holds {path.name}, which is not part of a trace; choose another folder")


def _differences(old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
    """What two headers differ in, nested settings under their own names."""
    for name in sorted(old.keys() | new.keys()):
        a, b = old.get(name), new.get(name)
        if isinstance(a, dict) and isinstance(b, dict):
            yield from _differences(a, b)
        elif a != b:
            before, now = json.dumps(a), json.dumps(b)
            yield f"other {name}" if len(before + now) > 80 else f"{name} {before}, not {now}"


def _read_header(folder: Path) -> dict[str, Any]:
    path = folder / HEADER
    if not path.is_file():
        why = "is not finished" if folder.is_dir() and any(folder.glob("shard-*")) else "is not a trace folder"
        raise ValueError(f"{folder} {why}: it has no {HEADER}")
    header = read_json(path)
    if not isinstance(header, dict) or header.get("format") != FORMAT or header.get("version") != VERSION:
        raise ValueError(f"{path} is not the header of a trace of version {VERSION}")
    needed = {"rows", "target_vocab", "draft_vocab", "prompts", "dtype", "keep_top", "tree", "columns", "shards"}
    if missing := sorted(needed - set(header)):
        raise ValueError(f"{path} lacks {', '.join(missing)}")
    return header

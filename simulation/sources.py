"""From the names in a study to distributions: sources of (target, draft) pairs, and samplers with their options."""

from functools import lru_cache
from pathlib import Path

import numpy as np

from mdsd_theory import drafts, probabilities
from simulation import synthetic
from simulation.traces import HEADER, Trace

Source = Trace | synthetic.Synthetic


def locate(source: str) -> str:
    """The source as a worker in another folder finds it: traces by absolute path, synthetic families as they are."""
    return source if source.startswith("synthetic:") else str(Path(source).resolve())


def open_source(source: str, pad_vocab: bool = False) -> Source:
    """A trace folder, or a synthetic family from its text; opened once a process, and again when the trace was recorded
    anew. ValueError when it cannot be read."""
    if source.startswith("synthetic:"):
        return _parse(source)
    header = Path(source) / HEADER
    return _open_trace(source, pad_vocab, header.stat().st_mtime_ns if header.exists() else None)


_parse = lru_cache(maxsize=8)(synthetic.parse)


@lru_cache(maxsize=8)
def _open_trace(folder: str, pad_vocab: bool, _recorded: int | None) -> Trace:
    return Trace(folder, pad_vocab)


def rows_of(source: Source, positions: int | None = None) -> np.ndarray:
    """The rows an acceptance study uses: all (of a tree trace the roots, the nodes that lie on the decoded text), or
    `positions` of them, evenly spread."""
    is_tree = isinstance(source, Trace) and source.tree is not None
    rows = np.flatnonzero(source.column("parent") < 0) if is_tree else np.arange(len(source))
    if positions is None or positions >= len(rows):
        return rows
    return rows[np.linspace(0, len(rows) - 1, positions).round().astype(int)]


def distributions(
    source: Source, row: int, temperature: float, top_p: float | None = None, top_k: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """(p, q) of one row, float64 (V,) each, both with the same temperature and truncation."""
    target, draft = source.logits(row, temperature)
    return (
        probabilities(target, temperature=temperature, top_k=top_k, top_p=top_p),
        probabilities(draft, temperature=temperature, top_k=top_k, top_p=top_p),
    )


def possible(p: np.ndarray, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(p, q) without the tokens that neither model can emit: the same acceptance rates from far shorter arrays when the
    distributions are truncated or the temperature is low."""
    keep = (p > 0) | (q > 0)
    return (p, q) if keep.all() else (p[keep], q[keep])


def split_sampler(sampler: str) -> tuple[str, dict[str, int]]:
    """ "top-then-sample:2" -> ("top-then-sample", {"top": 2}); a name alone has no options."""
    name, colon, top = sampler.partition(":")
    if colon and not top.isdecimal():
        raise ValueError(f"sampler {sampler!r}: what follows the colon is the number of top tokens, not {top!r}")
    return name, {"top": int(top)} if colon else {}


def make_draft(sampler: str, q: np.ndarray, n: int) -> drafts.Draft:
    """The draft of a sampler named as in a study. ValueError when it does not exist for this q and n."""
    name, options = split_sampler(sampler)
    return drafts.make(name, q, n=n, **options)

"""The small vocabularies of the suite: each is where some kind of verifier goes wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mdsd_theory import drafts
from mdsd_theory.drafts.base import JOINT_LIMIT, Draft


class Case(NamedTuple):
    """One pair of distributions.

    Attributes:
        name: for the verdict.
        p, q: float64 (V,).
        paired: where p = q, the error looked for at the smallest n by pairing emitted token and first draft, as a
            fraction of the resolution elsewhere.
    """

    name: str
    p: NDArray[np.float64]
    q: NDArray[np.float64]
    paired: float | None = None


def _case(name: str, p: ArrayLike, q: ArrayLike, paired: float | None = None) -> Case:
    return Case(name, np.array(p, dtype=np.float64), np.array(q, dtype=np.float64), paired)


def _halfway() -> NDArray[np.float64]:
    """Masses of which float16 rounding carries the first up and the next ones down, each as far as it can: 1/4096 of
    all mass moves, whether it is p or q that is rounded.
    """
    powers = 0.5 ** np.arange(1, 7)
    masses = powers * (1 + 2.0**-11)
    masses += 2.0**-34 * np.array([1, -1, -1, -1, -1, -1])
    return np.append(masses, 1 - masses.sum())


def _geometric(size: int, ratio: float) -> NDArray[np.float64]:
    masses = ratio ** np.arange(size)
    return masses / masses.sum()


_PEAKED = [2.0**-25, 1.0 - 2.0**-24, 2.0**-26, 2.0**-26]

CASES: tuple[Case, ...] = (
    _case("reference pair", [0.3, 0.4, 0.3], [0.6, 0.3, 0.1]),
    # A shared error of 1/4000 shows as emitted tokens that differ from the first draft in one direction only.
    _case("p = q between 16-bit floats", _halfway(), _halfway(), paired=1 / 128),
    _case("p = q up to rounding", [0.2, 0.3 - 2e-16, 0.5], [0.2 + 2e-17, 0.3, 0.5 - 1e-16]),
    _case("zeros in both", [0.5, 0.0, 0.3, 0.2, 0.0], [0.3, 0.4, 0.0, 0.3, 0.0]),
    _case("ties in q", [0.1, 0.8, 0.1], [0.4, 0.4, 0.2]),
    _case("ties in p/q", [0.4, 0.1, 0.2, 0.1, 0.2], [0.2, 0.2, 0.1, 0.2, 0.3]),
    _case("disjoint supports", [0.7, 0.3, 0.0, 0.0], [0.0, 0.0, 0.4, 0.6]),
    _case("point-mass target", [0.0, 1.0, 0.0], [0.6, 0.3, 0.1]),
    _case("point-mass draft, repeated", [0.2, 0.5, 0.3], [0.0, 1.0, 0.0]),
    _case("equal point masses", [0.0, 0.0, 1.0], [0.0, 0.0, 1.0]),
    _case("one token", [1.0], [1.0]),
    _case("few drafts to repeat", [0.4, 0.3, 0.2, 0.1], [0.7, 0.3, 0.0, 0.0]),
    _case("two tokens, far apart", [0.25, 0.75], [0.9, 0.1]),
    _case("long tail", _geometric(7, 0.75)[::-1], _geometric(7, 0.55)),
    _case("flat target, tailed draft", [0.2] * 5, [0.04, 0.48, 0.26, 0.14, 0.08]),
    # The draft's tail, cut by top-p from 0.9 to 0.99, is almost out of the target.
    _case("tail the target avoids", [0.5, 0.3, 0.1994, 0.0004, 0.0002], [0.55, 0.3, 0.1, 0.04, 0.01]),
    # Once the peak is drawn, what is left of q lives where 16-bit numbers, and 1 - q(peak) in 32 bits, have no digits.
    _case("peaked draft", [0.4, 0.0, 0.1, 0.5], _PEAKED),
)


def drafts_for(sampler: str, case: Case, n: Sequence[int]) -> Iterator[tuple[str, Draft]]:
    """The sampler's drafts over the case's q, each with a label, for every n it can have.

    Args:
        sampler: one of `drafts.names()`; "top-then-sample:2" fixes the number of certain drafts.
        n: numbers of drafts.

    Raises:
        ValueError: unknown sampler, or a number of certain drafts that is none.
    """
    name, _, top = sampler.partition(":")
    if top and name != "top-then-sample":
        raise ValueError(f"sampler: {sampler!r}; only top-then-sample takes a number after a colon")
    if top and not top.isdecimal():
        raise ValueError(f"sampler: {sampler!r}; the number of certain drafts is an integer >= 0")
    q = case.q
    for count in sorted(set(n)):
        if name == "spechub":
            if count == 2:
                yield "n = 2", drafts.SpecHub(q)
        elif name == "independent":
            yield f"n = {count}", drafts.Independent([np.roll(q, k) for k in range(count)])
        elif name == "joint":
            yield f"n = {count}", drafts.Joint(_half_distinct(q, count))
        elif name == "top-then-sample":
            for certain in [int(top)] if top else range(count + 1):
                if certain <= count:
                    yield f"n = {count}, top = {certain}", drafts.TopThenSample(q, count, certain)
        else:
            yield f"n = {count}", drafts.make(name, q, n=count)


def _half_distinct(q: NDArray[np.float64], n: int) -> NDArray[np.float64]:
    """A dependent table: an even mixture of drafts with and without replacement, the first one ~ q."""
    if n * q.size**n > JOINT_LIMIT:
        raise ValueError(f"n: {n}; a table over {q.size} tokens cannot have so many drafts")
    table = np.zeros((q.size,) * n)
    for share in (drafts.WithReplacement(q, n), drafts.WithoutReplacement(q, n)):
        tokens, probability = share.joint()
        if share.width == n:
            np.add.at(table, tuple(tokens.T), probability)
    return table / table.sum()

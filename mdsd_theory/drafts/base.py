"""What every draft sampler answers: how it draws n tokens for one position, and the law of what it draws."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from itertools import islice, permutations, product
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mdsd_theory.distributions import distribution
from mdsd_theory.subsets import Minimum, minimum

# `joint` refuses to build tables with more numbers than this.
JOINT_LIMIT = 4_000_000


class Draft(ABC):
    """Draft tokens x_1..x_n for ONE position, drawn from the drafter's distribution q.

    Attributes:
        name: what `drafts.make` calls it.
        n: number of draft tokens asked for.
        width: number of draft tokens drawn: n, or the size of q's support where that is smaller and tokens may not
            repeat.
        vocab_size: V; tokens are 0..V-1.
        q: float64 (V,), the checked distribution (an object array of Fractions in exact mode). Not copied when it is
            already float64: leave it unchanged while the draft is in use.
        q_convex: whether Q is q-convex, so that the optimum is at a prefix ([1] Hu et al. 2025, section 4).
    """

    name: ClassVar[str]
    q_convex: ClassVar[bool] = False
    n: int
    vocab_size: int
    q: NDArray

    def _read(self, q: ArrayLike, n: int) -> None:
        self.q = distribution(q, "q")
        self.n = check_count(n, "n")
        self.vocab_size = self.q.size

    @cached_property
    def exact(self) -> bool:
        """Whether the masses are Fractions."""
        return self.q.dtype == object

    @property
    def width(self) -> int:
        return self.n

    @abstractmethod
    def sample(self, rng: np.random.Generator, size: int) -> NDArray[np.int64]:
        """`size` independent draws of the draft tokens in draw order, int64 (size, width)."""

    @abstractmethod
    def subset_mass(self, subset: ArrayLike) -> float:
        """Q(H), the probability that ALL draft tokens lie in H: a boolean mask (V,) or a sequence of token ids."""

    @abstractmethod
    def prefix_masses(self, order: ArrayLike) -> NDArray:
        """Q of the growing prefixes of `order`.

        Args:
            order: int (L,), distinct tokens, L <= V.

        Returns:
            (L + 1,): entry j is Q({order[0], ..., order[j-1]}).
        """

    @abstractmethod
    def joint(self) -> tuple[NDArray[np.int64], NDArray]:
        """Every draft tuple of positive probability: tokens int64 (N, width) and their probability (N,).

        Raises:
            ValueError: there are too many to list.
        """

    def minimum(self, p: NDArray) -> Minimum:
        """min over H of P(H) - Q(H) for a checked target p of the same vocabulary and arithmetic as q.

        Samplers with something faster than the general rules override this.
        """
        return minimum(p, self)

    def all_subset_masses(self) -> NDArray:
        """Q of every subset, (2**V,): entry h is Q of the tokens whose bits are set in h. For V up to about 20."""
        masses = np.zeros(2**self.vocab_size, dtype=self.q.dtype)
        tokens, probability = self.joint()
        np.add.at(masses, np.bitwise_or.reduce(1 << tokens, axis=1), probability)
        for i in range(self.vocab_size):
            halves = masses.reshape(-1, 2, 2**i)
            halves[:, 1] += halves[:, 0]
        return masses

    def inclusion(self) -> NDArray | None:
        """Pr(token among the drafts) for every token, (V,); None where neither a formula nor enumeration is at hand."""
        try:
            tokens, probability = self.joint()
        except ValueError:
            return None
        inclusion = np.zeros(self.vocab_size, dtype=self.q.dtype)
        for row, mass in zip(tokens, probability, strict=True):
            inclusion[np.unique(row)] += mass
        return inclusion

    def _mask(self, subset: ArrayLike) -> NDArray[np.bool_]:
        return token_mask(subset, self.vocab_size)

    @cached_property
    def _cdf(self) -> NDArray[np.float64]:
        return np.cumsum(self.q.astype(np.float64))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(vocab_size={self.vocab_size}, n={self.n})"


def check_count(n: int, name: str, low: int = 1, high: int | None = None) -> int:
    """`n` as an int. Raises ValueError unless it is a whole number from `low` to `high`."""
    if isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < low or (high is not None and n > high):
        allowed = f"integers >= {low}" if high is None else f"integers from {low} to {high}"
        raise ValueError(f"{name}: {n!r}; allowed are {allowed}")
    return int(n)


def check_tokens(tokens: ArrayLike, vocab_size: int, name: str = "tokens") -> NDArray[np.int64]:
    """`tokens` as int64. Raises ValueError for anything but whole numbers in 0..vocab_size-1."""
    tokens = np.asarray(tokens)
    if tokens.size == 0:
        return np.zeros(tokens.shape, dtype=np.int64)
    if tokens.dtype.kind not in "iu":
        raise ValueError(f"{name}: entries of type {tokens.dtype}; token ids are integers")
    if tokens.min() < 0 or tokens.max() >= vocab_size:
        raise ValueError(f"{name}: ids from {tokens.min()} to {tokens.max()}; allowed are 0 to {vocab_size - 1}")
    return tokens.astype(np.int64, copy=False)


def token_mask(subset: ArrayLike, vocab_size: int) -> NDArray[np.bool_]:
    """A token set H as a boolean mask (V,), from such a mask or a sequence of token ids."""
    subset = np.asarray(subset)
    if subset.dtype == bool:
        if subset.shape != (vocab_size,):
            raise ValueError(f"subset: a mask of shape {subset.shape}; needed is ({vocab_size},)")
        return subset
    mask = np.zeros(vocab_size, dtype=bool)
    mask[check_tokens(subset, vocab_size, "subset")] = True
    return mask


def draw_tokens(cdf: NDArray[np.float64], rng: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.int64]:
    """i.i.d. tokens by inverse cumulative mass; tokens of mass 0 are never drawn."""
    u = rng.random(shape) * cdf[-1]
    # The product may round up to the total; the last token that has mass is the right answer there.
    last = np.searchsorted(cdf, cdf[-1], side="left")
    return np.minimum(np.searchsorted(cdf, u, side="right"), last)


def all_tuples(support: Sequence[int], length: int, distinct: bool) -> NDArray[np.int64]:
    """Every ordered tuple of `length` tokens of `support`, int64 (N, length). Raises ValueError when there are too
    many.
    """
    count = 1
    for k in range(length):
        count *= len(support) - k if distinct else len(support)
        if count * length > JOINT_LIMIT:
            raise ValueError(
                f"joint: {len(support)} tokens and {length} draws make more than {JOINT_LIMIT:,} numbers; "
                "enumeration is for small vocabularies"
            )
    tuples = permutations(support, length) if distinct else product(support, repeat=length)
    return np.array(list(islice(tuples, count)), dtype=np.int64).reshape(count, length)

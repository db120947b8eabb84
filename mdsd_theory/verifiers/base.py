"""What every verifier answers: the exact law of the emitted token given the drafts, a draw from it, and its acceptance
rate.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mdsd_theory.acceptance import target
from mdsd_theory.drafts.base import Draft, check_tokens, draw_tokens
from mdsd_theory.drafts.spechub import SpecHub
from mdsd_theory.drafts.top_then_sample import TopThenSample

# Enumeration of draft tuples for `acceptance_rate` stops here.
_ENUMERATED_TUPLES = 100_000


class Law(NamedTuple):
    """The law of the emitted token given the drafts, before it is spread over the vocabulary.

    Attributes:
        accepted: (k,), the probability that draft k is accepted, in draw order.
        rejected: the probability that none is: 1 - accepted.sum() up to rounding.
        residual: (V,), the distribution sampled then.
    """

    accepted: NDArray
    rejected: float
    residual: NDArray


class Verifier(ABC):
    """A conditional law P(token | drafts) whose marginal over the drafts is exactly the target p ("lossless").

    `p`, `draft` and `tokens` are checked once per call; a loop over many drafts at one position calls `prepare` once
    and hands its result to the other methods as `state`, which skips checks and all work that does not depend on the
    drafts.
    """

    name: ClassVar[str]

    @abstractmethod
    def refusal(self, draft: Draft) -> str | None:
        """Why this verifier cannot serve `draft`, or None where it can."""

    @abstractmethod
    def _prepare(self, p: NDArray, draft: Draft) -> Any:
        """All that does not depend on the draft tokens; p is checked, the pair is allowed."""

    @abstractmethod
    def _law(self, state: Any, tokens: NDArray[np.int64]) -> Law:
        """The law given the drafts, int64 (k,)."""

    def check(self, p: ArrayLike, draft: Draft) -> NDArray:
        """p as checked against the draft.

        Raises:
            ValueError: p is no distribution over the draft's vocabulary, or this verifier cannot serve the draft (the
                message names both): it would not output p.
        """
        p = target(p, draft)
        why = self.refusal(draft)
        if why is not None:
            raise ValueError(f"verifier {self.name} cannot serve {draft.name} drafts (n = {draft.n}): {why}")
        return p

    def prepare(self, p: ArrayLike, draft: Draft) -> Any:
        """What `kernel`, `verify` and `acceptance` take as `state`: everything that all draws at one position share."""
        return self._prepare(self.check(p, draft), draft)

    def kernel(self, p: ArrayLike, draft: Draft, tokens: ArrayLike, state: Any = None) -> NDArray:
        """The exact law of the emitted token given these drafts, float64 (V,) (Fractions in exact mode).

        Args:
            p: target distribution, shape (V,).
            draft: the sampler that drew `tokens`.
            tokens: the drafts in draw order, int (width,).
            state: the result of `prepare(p, draft)`, if at hand.
        """
        state, tokens = self._ready(p, draft, tokens, state)
        accepted, rejected, residual = self._law(state, tokens)
        law = rejected * residual
        np.add.at(law, tokens, accepted)
        return law

    def verify(self, p: ArrayLike, draft: Draft, tokens: ArrayLike, rng: np.random.Generator, state: Any = None) -> int:
        """One emitted token: a draft, or a token of the residual when all drafts are rejected. Arguments as for
        `kernel`.
        """
        state, tokens = self._ready(p, draft, tokens, state)
        law = self._law(state, tokens)
        # Strictly below: a draft of acceptance 0 stays rejected when the uniform is 0.
        k = int(np.searchsorted(np.cumsum(law.accepted.astype(np.float64)), rng.random(), side="right"))
        return int(tokens[k]) if k < tokens.size else int(draw_tokens(np.cumsum(law.residual), rng, ()))

    def acceptance(self, p: ArrayLike, draft: Draft, tokens: ArrayLike, state: Any = None) -> float:
        """The probability that the emitted token is one of these drafts, given them. Arguments as for `kernel`."""
        state, tokens = self._ready(p, draft, tokens, state)
        accepted, rejected, residual = self._law(state, tokens)
        return accepted.sum() + rejected * residual[np.unique(tokens)].sum()

    def acceptance_rate(self, p: ArrayLike, draft: Draft) -> float:
        """The probability that the emitted token is one of the drafts, exactly: closed form, or enumeration of the
        drafts.

        Raises:
            ValueError: as `check`.
            NotImplementedError: no closed form is known and there are too many draft tuples; average `acceptance` over
                samples.
        """
        p = self.check(p, draft)
        state = self._prepare(p, draft)
        rate = self._rate(state)
        if rate is None:
            try:
                tokens, probability = draft.joint()
            except ValueError:
                tokens = None
            if tokens is None or len(tokens) > _ENUMERATED_TUPLES:
                raise NotImplementedError(
                    f"{self.name} has no closed-form rate for {draft.name} drafts and {draft.vocab_size} tokens are "
                    "too many to enumerate: average `acceptance` over sampled drafts"
                )
            rate = sum(w * self.acceptance(p, draft, x, state) for x, w in zip(tokens, probability, strict=True))
        return max(0 * rate, min(1 + 0 * rate, rate))

    def closed_form_rate(self, p: ArrayLike, draft: Draft) -> float | None:
        """`acceptance_rate` where it has a closed form, else None: never enumerates."""
        rate = self._rate(self.prepare(p, draft))
        return None if rate is None else max(0 * rate, min(1 + 0 * rate, rate))

    def _rate(self, state: Any) -> float | None:
        """The acceptance rate in closed form, or None."""
        return None

    def _ready(self, p: ArrayLike, draft: Draft, tokens: ArrayLike, state: Any) -> tuple[Any, NDArray[np.int64]]:
        if state is not None:
            return state, np.asarray(tokens, dtype=np.int64)
        state = self.prepare(p, draft)
        tokens = check_tokens(tokens, draft.vocab_size)
        if tokens.shape != (draft.width,):
            raise ValueError(f"tokens: shape {tokens.shape}; {draft.name} here proposes {draft.width} tokens")
        return state, tokens

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


def is_iid(draft: Draft) -> bool:
    """Whether all drafts are i.i.d. from one q (with replacement, by whatever name)."""
    return isinstance(draft, TopThenSample) and draft.top == 0


def is_top_then_sample(draft: Draft) -> bool:
    """Whether the draft is of the top-then-sample family (with replacement, greedy, SpecHub, deterministic
    included).
    """
    return isinstance(draft, TopThenSample)


def is_hub_pair(draft: Draft) -> bool:
    """Whether the draft is one certain token and one sampled one."""
    return isinstance(draft, SpecHub) or (is_top_then_sample(draft) and draft.n == 2 and draft.top == 1)


def positive_part(mass: NDArray, fallback: NDArray) -> tuple[NDArray, float]:
    """(mass)_+ normalised, and its total; `fallback` where it is identically 0, which only rounding ever reaches."""
    residual = np.maximum(mass, 0)
    total = residual.sum()
    return (residual / total, total) if total > 0 else (fallback, total)


def acceptance_ratio(p: NDArray, q: NDArray) -> NDArray:
    """min(1, p/q) per entry, 0 where q = 0 (such a token is never drafted)."""
    ratio = np.zeros(np.shape(p), dtype=np.asarray(p).dtype)
    drawn = q > 0
    # min(p, q)/q instead of min(1, p/q): no overflow for tiny q.
    ratio[drawn] = np.minimum(p[drawn], q[drawn]) / q[drawn]
    return ratio

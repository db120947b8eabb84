"""A verifier under test, bound to one position: every call guarded, every breach of contract one readable sentence."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd_theory.distributions import as_array
from mdsd_theory.drafts.base import Draft


class Fault(Exception):
    """The verifier broke its contract; the message is the sentence for the verdict."""


def has_interface(verifier: Any) -> bool:
    """Whether it is an object with `kernel` or `verify` (otherwise it must be callable)."""
    return callable(getattr(verifier, "kernel", None)) or callable(getattr(verifier, "verify", None))


def instance(verifier: Any) -> Any:
    """The verifier itself, made from its class where that is what was given.

    Raises:
        ValueError: it is neither an object with our interface nor callable as (p, q, tokens, rng).
    """
    if isinstance(verifier, type):
        try:
            verifier = verifier()
        except (Exception, SystemExit) as error:
            raise ValueError(f"verifier: {verifier.__name__}() raised {type(error).__name__}: {error}") from None
    if has_interface(verifier):
        return verifier
    if not callable(verifier):
        raise ValueError(
            f"verifier: found a {type(verifier).__name__}; allowed are a callable (p, q, tokens, rng) -> token and an "
            "object with kernel(p, draft, tokens) or verify(p, draft, tokens, rng)"
        )
    try:
        signature = inspect.signature(verifier)
    except ValueError:
        return verifier  # a compiled callable that does not tell
    try:
        signature.bind(None, None, None, None)
    except TypeError as error:
        raise ValueError(
            f"verifier: {name_of(verifier)}{signature} cannot be called as (p, q, tokens, rng): {error}"
        ) from None
    return verifier


def name_of(verifier: Any) -> str:
    """What a report calls it."""
    return getattr(verifier, "name", None) or getattr(verifier, "__name__", None) or type(verifier).__name__


class Subject:
    """A verifier at one p and one draft.

    Attributes:
        tells_law: whether it has `kernel`.
        emits: whether it can be called for a token.
    """

    def __init__(self, verifier: Any, p: NDArray[np.float64], draft: Draft) -> None:
        q = next(getattr(draft, name) for name in ("qs", "table", "q") if hasattr(draft, name))
        self._watched = {"p": p.copy(), "q": q}
        self._bytes = {name: array.tobytes() for name, array in self._watched.items()}
        self._vocab_size = p.size
        self.verifier, self.p, self.draft = verifier, self._watched["p"], draft
        if not has_interface(verifier):
            self.tells_law, self.emits = False, True
            self._emit = lambda tokens, rng: verifier(self.p, q, tokens, rng)
            return
        self.tells_law = callable(getattr(verifier, "kernel", None))
        self.emits = callable(getattr(verifier, "verify", None))
        self._state = {}
        if callable(getattr(verifier, "prepare", None)):
            none = np.empty(0, dtype=np.int64)
            self._state = {"state": self._call("prepare", none, lambda _: verifier.prepare(self.p, draft))}
        self._emit = lambda tokens, rng: verifier.verify(self.p, draft, tokens, rng, **self._state)

    def law(self, tokens: NDArray[np.int64], afresh: bool = False) -> NDArray[np.float64]:
        """The kernel's law given these drafts, checked to be a probability vector; `afresh`: without the state."""
        state = {} if afresh else self._state
        with np.errstate(all="ignore"):
            law = self._call("kernel", tokens, lambda given: self.verifier.kernel(self.p, self.draft, given, **state))
        where = _on(tokens)
        try:
            law, _ = as_array(law, "kernel")
            law = law.astype(np.float64)
        except Exception:
            raise Fault(
                f"kernel returns {_short(law)}{where}; its law is an array of {self._vocab_size} real masses"
            ) from None
        if law.shape != (self._vocab_size,):
            raise Fault(f"kernel returns shape {law.shape}{where}; its law has shape ({self._vocab_size},)")
        if not np.isfinite(law).all():
            raise Fault(f"kernel returns {law[~np.isfinite(law)][0]} as the mass of a token{where}")
        if law.min() < -1e-12:
            raise Fault(f"kernel returns the mass {law.min():.6g} for token {law.argmin()}{where}")
        if abs(law.sum() - 1) > 1e-5:
            raise Fault(f"kernel returns masses that sum to {law.sum():.9g}{where}")
        return law

    def claimed_rate(self) -> float | None:
        """What its own `acceptance_rate` says, None where it has none or does not know."""
        method = getattr(self.verifier, "acceptance_rate", None)
        if not callable(method):
            return None
        try:
            return float(method(self.p, self.draft))
        except NotImplementedError:
            return None
        except Exception as error:
            raise Fault(f"acceptance_rate raised {type(error).__name__}: {error}") from None

    def tokens(self, draws: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
        """One emitted token per row of `draws`."""
        what = "verify" if has_interface(self.verifier) else name_of(self.verifier)
        emitted = np.empty(len(draws), dtype=np.int64)
        with np.errstate(all="ignore"):
            for k, drafts in enumerate(draws):
                token = self._call(what, drafts, lambda given: self._emit(given, rng))
                try:
                    emitted[k] = number = operator.index(token)
                except (TypeError, OverflowError):
                    raise Fault(f"{what} returns {_short(token)}{_on(drafts)}; a token is one integer") from None
                if not 0 <= number < self._vocab_size:
                    raise Fault(f"{what} returns token {number}{_on(drafts)}; tokens are 0 to {self._vocab_size - 1}")
        return emitted

    def _call(self, what: str, tokens: NDArray[np.int64], function: Callable[[NDArray[np.int64]], Any]) -> Any:
        given = tokens.copy()
        try:
            answer = function(given)
        except (Exception, SystemExit) as error:
            self._changes()
            raise Fault(f"{what} raised {type(error).__name__}{_on(tokens)}: {error}") from None
        changed = self._changes() + ["tokens"] * (given.tobytes() != tokens.tobytes())
        if changed:
            raise Fault(f"{what} changes {' and '.join(changed)} in place{_on(tokens)}")
        return answer

    def _changes(self) -> list[str]:
        """Which of p and q are no longer what they were; put back."""
        changed = [name for name, array in self._watched.items() if array.tobytes() != self._bytes[name]]
        for name in changed:
            array = self._watched[name]
            array[...] = np.frombuffer(self._bytes[name], dtype=array.dtype).reshape(array.shape)
        return changed


def _on(tokens: NDArray[np.int64]) -> str:
    return f" on drafts {tuple(tokens.tolist())}" if tokens.size else ""


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."

"""Synthetic (target, draft) pairs with a chosen vocabulary size, entropy and distance between p and q.

The target is a Zipf law with random token order, or a draw from a symmetric Dirichlet law. The draft disturbs the
target's logits with independent Gaussian noise, q ∝ p · exp(σ g), σ solved so that the total variation distance between
p and q (one minus the single-draft acceptance rate, Leviathan et al. 2023, Theorem 3.5) is the one asked for. Both
statements hold at temperature 1; other temperatures change the logits as they would a model's. Every position has its
own generator, so any row can be made by any worker at any time.
"""

import math
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
from scipy.optimize import brentq
from scipy.special import digamma, log_softmax, softmax

FAMILIES = ("zipf", "dirichlet")
NOISE_TRIES = 100


@dataclass(frozen=True)
class Synthetic:
    """A family of pairs, read like a trace: len(), `vocab_size`, `logits(row)`, `column("prompt")`.

    family: "zipf" (entropy exact in every row) or "dirichlet" (entropy in expectation); entropy in nats, inside
    (0, log V); distance: total variation between p and q at temperature 1, inside [0, 1). ValueError outside.
    """

    family: str
    V: int = 1024
    entropy: float = 2.0
    distance: float = 0.3
    positions: int = 64
    seed: int = 0

    def __post_init__(self) -> None:
        if self.family not in FAMILIES:
            raise ValueError(f"synthetic family is {self.family!r}; known are {', '.join(FAMILIES)}")
        if self.V < 2:
            raise ValueError(f"V is {self.V}; a synthetic vocabulary has at least 2 tokens")
        if not 0 < self.entropy < math.log(self.V):
            raise ValueError(
                f"entropy is {self.entropy}; at V = {self.V} it must be inside (0, {math.log(self.V):.4f})"
            )
        if not 0 <= self.distance < 1:
            raise ValueError(f"distance is {self.distance}; it must be at least 0 and below 1")
        if self.positions < 1:
            raise ValueError(f"positions is {self.positions}; it must be at least 1")
        if self.seed < 0:
            raise ValueError(f"seed is {self.seed}; it must be at least 0")

    def __len__(self) -> int:
        return self.positions

    @property
    def vocab_size(self) -> int:
        return self.V

    @property
    def fingerprint(self) -> str:
        return repr(self)

    def column(self, name: str) -> np.ndarray:
        """`prompt` or `position`, int32 (positions,): the rows are independent, each its own prompt."""
        if name not in ("prompt", "position"):
            raise ValueError(f"a synthetic source has the columns prompt, position, not {name!r}")
        rows = np.arange(self.positions, dtype=np.int32)
        return rows if name == "prompt" else np.zeros_like(rows)

    def logits(self, row: int, temperature: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
        """(target, draft) logits of one row, two float64 (V,) arrays; the temperature is applied by the caller."""
        if not 0 <= row < self.positions:
            raise ValueError(f"row is {row}; there are rows 0..{self.positions - 1}")
        rng = np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=(row,)))
        target = self._target(rng)
        if self.distance == 0:
            return target, target.copy()
        for _ in range(NOISE_TRIES):
            noise = rng.standard_normal(self.V)
            scale = _noise_scale(target, noise, self.distance)
            if scale is not None:
                return target, target + scale * noise
        raise ValueError(f"distance {self.distance} between p and q is out of reach at entropy {self.entropy}")

    def _target(self, rng: np.random.Generator) -> np.ndarray:
        if self.family == "zipf":
            return rng.permutation(-self._parameter * np.log1p(np.arange(self.V)))
        # log of a Gamma(a) variate that cannot underflow: G(a) = G(a + 1) · U^(1/a)
        a = self._parameter
        return log_softmax(np.log(rng.standard_gamma(a + 1, self.V)) + np.log1p(-rng.random(self.V)) / a)

    @cached_property
    def _parameter(self) -> float:
        """Zipf exponent, or Dirichlet concentration per token, with the entropy asked for."""
        if self.family == "zipf":
            ranks = np.log1p(np.arange(self.V))
            return brentq(lambda s: _entropy(softmax(-s * ranks)) - self.entropy, 0, 1e4)

        def excess(log_a: float) -> float:  # E[H] = ψ(V a + 1) − ψ(a + 1)
            a = math.exp(log_a)
            return float(digamma(self.V * a + 1) - digamma(a + 1)) - self.entropy

        return math.exp(brentq(excess, -40, 40))


def parse(text: str) -> Synthetic:
    """`synthetic:zipf,V=4096,entropy=3,distance=0.2,seed=1` -> Synthetic; ValueError says what is wrong."""
    family, *settings = text.removeprefix("synthetic:").split(",")
    kinds = {field.name: field.type for field in fields(Synthetic) if field.name != "family"}
    values = {}
    for setting in settings:
        name, _, value = setting.partition("=")
        if name not in kinds:
            raise ValueError(f"{text!r} has the parameter {name!r}; known are {', '.join(kinds)}")
        try:
            values[name] = kinds[name](value)
        except ValueError:
            raise ValueError(f"{text!r}: {name} is {value!r}, not {kinds[name].__name__}") from None
    return Synthetic(family, **values)


def _entropy(p: np.ndarray) -> float:
    return float(-(p * np.log(p, where=p > 0, out=np.zeros_like(p))).sum())


def _noise_scale(target: np.ndarray, noise: np.ndarray, distance: float) -> float | None:
    """The σ with TV(softmax(target), softmax(target + σ noise)) = distance; None when this noise cannot reach it."""
    p = softmax(target)

    def excess(scale: float) -> float:
        return 0.5 * float(np.abs(p - softmax(target + scale * noise)).sum()) - distance

    high = 0.5
    while excess(high) < 0:
        high *= 2
        if high > 1e4:
            return None
    return brentq(excess, 0, high, xtol=1e-14, rtol=1e-14)

"""`check`: the verdict on one verifier at one p and one draft sampler."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mdsd_theory.acceptance import optimal_acceptance, target
from mdsd_theory.conformance.counting import difference_surprise, excess_surprise, sample_size, surprise
from mdsd_theory.conformance.subject import Fault, Subject, instance
from mdsd_theory.drafts.base import Draft, check_count
from mdsd_theory.subsets import ratio_order
from mdsd_theory.verifiers.base import Verifier

# Probability that a lossless verifier fails `check`, or a whole `suite`.
FALSE_ALARM = 1e-9
# A token whose mass is off by RESOLUTION is found by counting with probability at least POWER.
RESOLUTION = 0.03
POWER = 0.99
# Largest error of a mass that float64 arithmetic explains.
TOLERANCE = 1e-9
# Draft tuples are enumerated up to this many, (tuple, token) pairs counted up to this many.
_TUPLES = 100_000
_PAIRS = 1_000_000
_PREFIXES = 63


@dataclass(frozen=True)
class Verdict:
    """What was found at one p and one draft sampler.

    Attributes:
        lossless: False when the emitted token does not follow p, or the verifier breaks its contract.
        reason: one sentence on what is wrong; empty when lossless.
        exact: whether the law was enumerated from `kernel`: then `found` and `acceptance` are exact, not counted.
        calls: how often it was called for a token.
        token: the token whose mass is furthest off, None where nothing could be measured.
        expected: p(token).
        found: the emitted law's mass of the token.
        acceptance: probability that the emitted token is one of the drafts.
        optimal: alpha*, the most that any lossless verifier reaches.
    """

    lossless: bool
    reason: str
    exact: bool
    calls: int
    token: int | None
    expected: float
    found: float
    acceptance: float
    optimal: float

    def __str__(self) -> str:
        if not self.lossless:
            return f"not lossless: {self.reason}"
        how = "exactly" if self.exact else f"as far as {self.calls:,} calls tell"
        return f"lossless {how}; acceptance {self.acceptance:.6g}, alpha* = {self.optimal:.6g}"


class _Table(NamedTuple):
    """Every draft tuple: tokens (N, width), probability (N,), and the law of the first draft (V,)."""

    tokens: NDArray[np.int64]
    probability: NDArray[np.float64]
    first: NDArray[np.float64]


def check(
    verifier: Any,
    p: ArrayLike,
    draft: Draft,
    *,
    seed: int = 0,
    resolution: float = RESOLUTION,
    power: float = POWER,
    false_alarm: float = FALSE_ALARM,
    tolerance: float = TOLERANCE,
    calls: int | None = None,
) -> Verdict:
    """Does `verifier` output exactly p on these drafts?

    With `kernel`, the emitted law sum over x of p_draft(x) kernel(x) is enumerated and compared with p token by token.

    Without it, and for `verify` beside it, the verifier is called on sampled drafts and every token is counted. The
    counts of a lossless verifier are Binomial(calls, p(token)), so exact two-sided tests whose levels add up to
    `false_alarm` decide; tokens of p = 0 must never come. The number of calls is the smallest at which a token's mass
    off by `resolution` is found with probability `power`; that of the tokens below some p/q as well, which is where a
    large vocabulary shows it. The same calls are tested further: acceptance above alpha*;
    where p is the law of the first draft, the emitted token against it (whichever of the two it is that equals a token
    when they differ is a fair coin: this sees errors far below `resolution` in a verifier that mostly accepts); beside
    a `kernel`, every pair of drafts and token against it (up to a million pairs).

    Args:
        verifier: a callable, an object, or the class of such objects (see the package).
        p: target distribution, shape (V,).
        draft: the sampler; enumeration needs a small vocabulary, counting does not.
        seed: of all randomness.
        resolution: error of a token's mass to be found by counting, in (0, 1).
        power: probability of finding it, in (0, 1).
        false_alarm: probability that a lossless verifier fails, in (0, 1).
        tolerance: error of a mass that counts as rounding in enumeration (float32 arithmetic needs about 1e-6).
        calls: how often to call it, instead of what `resolution` and `power` ask for.

    Raises:
        ValueError: bad p or parameters; not a verifier; one of our verifiers refuses the pair; or the sampler's `joint`
            and `sample` contradict each other.
    """
    for name, value in (("resolution", resolution), ("power", power), ("false_alarm", false_alarm)):
        if not 0.0 < value < 1.0:
            raise ValueError(f"{name}: {value}; allowed are numbers between 0 and 1")
    if calls is not None:
        calls = check_count(calls, "calls")
    if not 0.0 <= tolerance < 1.0:
        raise ValueError(f"tolerance: {tolerance}; allowed are numbers from 0 to below 1")
    verifier = instance(verifier)
    p = target(p, draft)
    if draft.exact:
        raise ValueError("p: Fractions; the kit computes in float64")
    if isinstance(verifier, Verifier):
        verifier.check(p, draft)
    optimal = float(optimal_acceptance(p, draft).rate)
    table = _table(draft)
    if calls is None:
        masses = np.append(p, _prefixes(p, draft.q)[1])
        calls = sample_size(masses, resolution, level_per_token(false_alarm, p.size), power)
    rng = np.random.default_rng(seed)
    draws = draft.sample(rng, calls)
    rows = _rows(draft, table, draws, false_alarm / 4)
    verdict = laws = None
    try:
        subject = Subject(verifier, p, draft)
        if subject.tells_law and table is not None:
            verdict, laws = _enumerate(subject, p, table, optimal, tolerance)
            if not verdict.lossless or not subject.emits:
                return verdict
        if not subject.emits:
            raise ValueError(
                f"draft: {draft!r} has too many tuples to enumerate, and the verifier has no `verify` to be called"
            )
        emitted = subject.tokens(draws, rng)
    except Fault as fault:
        return Verdict(False, str(fault), False, 0, None, np.nan, np.nan, np.nan, optimal)
    first = draws[:, 0] if table is not None and np.abs(table.first - p).max() < 1e-12 else None
    counted = _count(emitted, draws, p, draft.q, optimal, first, level_per_token(false_alarm, p.size))
    if verdict is None or not counted.lossless:
        return counted
    reason = "" if laws is None else _against_kernel(emitted, rows, table, laws, false_alarm / 4)
    return replace(verdict, lossless=not reason, reason=reason, calls=calls)


def level_per_token(false_alarm: float, vocab_size: int) -> float:
    """The level of one test of tokens: half of it all, over V counts, V differences, up to V - 1 prefixes and the
    acceptance. A quarter each is for the sampler against its table and for `verify` against `kernel`.
    """
    return false_alarm / 2 / (3 * vocab_size)


def _table(draft: Draft) -> _Table | None:
    """All draft tuples, or None where they are too many."""
    try:
        tokens, probability = draft.joint()
    except ValueError:
        return None
    if len(tokens) > _TUPLES:
        return None
    if abs(probability.sum() - 1) > 1e-9 or probability.min() < 0:
        raise ValueError(f"draft: the probabilities of {draft!r}.joint() sum to {probability.sum():.9g}, not 1")
    first = np.bincount(tokens[:, 0], weights=probability, minlength=draft.vocab_size)
    return _Table(tokens, probability, first)


def _rows(draft: Draft, table: _Table | None, draws: NDArray[np.int64], level: float) -> NDArray[np.int64] | None:
    """Which tuple of the table each draw is, (calls,). ValueError where the sampler does not draw what its table says:
    else its fault would be laid to the verifier.
    """
    if table is None:
        return None
    row = {drafts.tobytes(): k for k, drafts in enumerate(table.tokens)}
    rows = np.array([row.get(drafts.tobytes(), -1) for drafts in draws])
    if rows.min() < 0:
        missing = tuple(draws[rows.argmin()].tolist())
        raise ValueError(f"draft: sample() of {draft!r} drew {missing}, to which joint() gives no probability")
    counts = np.bincount(rows, minlength=len(table.tokens))
    p_values = surprise(counts, len(draws), table.probability)
    k = int(p_values.argmin())
    if p_values[k] < level / p_values.size:
        raise ValueError(
            f"draft: sample() of {draft!r} drew {tuple(table.tokens[k].tolist())} {counts[k]:,} times in "
            f"{len(draws):,}, to which joint() gives probability {table.probability[k]:.6g} ({_p_value(p_values[k])})"
        )
    return rows


def _enumerate(
    subject: Subject, p: NDArray[np.float64], table: _Table, optimal: float, tolerance: float
) -> tuple[Verdict, NDArray[np.float64] | None]:
    """The verdict on the kernel, and the kernel itself, (N, V), where it is small enough to be counted against."""
    keep = len(table.tokens) * p.size <= _PAIRS
    laws = np.empty((len(table.tokens), p.size)) if keep else None
    emitted, acceptance, reason = np.zeros(p.size), 0.0, ""
    for k, (drafts, probability) in enumerate(zip(table.tokens, table.probability, strict=True)):
        law = subject.law(drafts)
        emitted += probability * law
        acceptance += probability * law[np.unique(drafts)].sum()
        if abs(law.sum() - 1) > max(tolerance, 1e-9):
            reason = f"kernel returns masses that sum to {law.sum():.12g} on drafts {tuple(drafts.tolist())}"
        if keep:
            laws[k] = law
    token = int(np.abs(emitted - p).argmax())
    error = emitted[token] - p[token]
    if abs(error) > tolerance:
        reason = f"token {token} has mass {emitted[token]:.9g} where p has {p[token]:.9g} (off by {error:+.3g})"
    elif np.abs(subject.law(drafts, afresh=True) - law).max() > tolerance:
        reason = f"kernel answers differently when asked again on drafts {tuple(drafts.tolist())}"
    reason = reason or _claimed_rate(subject, acceptance, tolerance)
    verdict = Verdict(not reason, reason, True, 0, token, float(p[token]), float(emitted[token]), acceptance, optimal)
    return verdict, laws


def _claimed_rate(subject: Subject, acceptance: float, tolerance: float) -> str:
    """What is wrong with the object's own `acceptance_rate`, where it has one."""
    claimed = subject.claimed_rate()
    if claimed is None or abs(claimed - acceptance) <= max(tolerance, 1e-9):
        return ""
    return f"acceptance_rate returns {claimed:.9g} where its kernel accepts {acceptance:.9g}"


def _count(
    emitted: NDArray[np.int64],
    draws: NDArray[np.int64],
    p: NDArray[np.float64],
    q: NDArray[np.float64],
    optimal: float,
    first: NDArray[np.int64] | None,
    level: float,
) -> Verdict:
    """The verdict on the emitted tokens; `first` are the first drafts where their law is p."""
    calls = emitted.size
    counts = np.bincount(emitted, minlength=p.size)
    among = int((draws == emitted[:, None]).any(axis=1).sum())
    p_values = surprise(counts, calls, p)
    token = int(np.lexsort((-np.abs(counts / calls - p), p_values))[0])
    expected, found = float(p[token]), float(counts[token] / calls)
    prefixes, masses = _prefixes(p, q)
    below = np.array([counts[prefix].sum() for prefix in prefixes], dtype=np.int64)
    prefix_p_values = surprise(below, calls, masses)
    reason = ""
    if p_values[token] < level:
        reason = (
            f"token {token} came with frequency {found:.6g} where p has {expected:.6g} (off by {found - expected:+.3g} "
            f"in {calls:,} calls, {_p_value(p_values[token])})"
        )
    elif prefix_p_values.min(initial=1.0) < level:
        k = int(prefix_p_values.argmin())
        reason = (
            f"the {prefixes[k].size:,} tokens of smallest p/q came with frequency {below[k] / calls:.6g} where p has "
            f"{masses[k]:.6g} (off by {below[k] / calls - masses[k]:+.3g} in {calls:,} calls, "
            f"{_p_value(prefix_p_values[k])})"
        )
    elif excess_surprise(among, calls, optimal) < level:
        reason = f"a draft came with frequency {among / calls:.6g}, more than any lossless verifier's {optimal:.6g}"
    elif first is not None:
        reason = _against_first_draft(emitted, first, p.size, level)
    return Verdict(not reason, reason, False, calls, token, expected, found, among / calls, optimal)


def _prefixes(p: NDArray[np.float64], q: NDArray[np.float64]) -> tuple[list[NDArray[np.int64]], NDArray[np.float64]]:
    """Sets of the tokens of smallest p/q, and their masses under p: what a wrong acceptance or residual takes mass from
    or gives it to, when it is spread over more tokens than could be seen one by one. At most 63, of even steps in mass.
    """
    order = ratio_order(p, q)
    masses = np.cumsum(p[order])
    ends = np.arange(order.size - 1)
    if ends.size > _PREFIXES:
        ends = np.unique(np.searchsorted(masses[:-1], np.arange(1, _PREFIXES + 1) / (_PREFIXES + 1)).clip(0, ends[-1]))
    return [order[: end + 1] for end in ends], masses[ends]


def _against_first_draft(emitted: NDArray, first: NDArray, vocab_size: int, level: float) -> str:
    """Where p is the law of the first draft, both equal a token equally often."""
    differ = emitted != first
    gained = np.bincount(emitted[differ], minlength=vocab_size)
    lost = np.bincount(first[differ], minlength=vocab_size)
    p_values = difference_surprise(gained, lost)
    token = int(p_values.argmin())
    if p_values[token] >= level:
        return ""
    return (
        f"token {token} is off by {(gained[token] - lost[token]) / emitted.size:+.3g}: in {emitted.size:,} calls it "
        f"replaced the first draft {gained[token]:,} times and was replaced {lost[token]:,} times, where p is the law "
        f"of the first draft ({_p_value(p_values[token])})"
    )


def _against_kernel(emitted: NDArray, rows: NDArray, table: _Table, laws: NDArray, level: float) -> str:
    """Every pair of drafts and token comes as often as the kernel says."""
    counts = np.bincount(rows * laws.shape[1] + emitted, minlength=laws.size).reshape(laws.shape)
    p_values = surprise(counts, emitted.size, table.probability[:, None] * laws)
    k, token = np.unravel_index(int(p_values.argmin()), p_values.shape)
    if p_values[k, token] >= level / p_values.size:
        return ""
    return (
        f"verify and kernel disagree: on drafts {tuple(table.tokens[k].tolist())} verify gave token {token} "
        f"{counts[k, token]:,} times in {counts[k].sum():,} where kernel has {laws[k, token]:.6g} "
        f"({_p_value(p_values[k, token])})"
    )


def _p_value(value: float) -> str:
    return f"p-value {value:.1g}" if value > 1e-300 else "p-value below 1e-300"

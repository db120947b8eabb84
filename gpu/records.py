"""What decoding leaves behind for one text, and the sums over many."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

PHASES = ("draft", "target", "verify", "bookkeeping")


class Visit(NamedTuple):
    """One verified node: one emitted token.

    step         which target pass of its text, counted from 0.
    depth        0 at the root of the draft tree.
    drafts       number of drafts at the node; 0 at a leaf, where the bonus token is drawn from the target.
    rank         child rank of the accepted draft, -1 when the token was none of them.
    probability  chance that one of them was accepted, given the drafts: the verifier's law summed over them.
    bound        the optimal acceptance rate alpha* at the node, None unless asked for.
    """

    step: int
    depth: int
    drafts: int
    rank: int
    probability: float
    bound: float | None = None


@dataclass
class Record:
    """One decoded text. Token counts are exact: nothing is counted that was not emitted."""

    prompt: list[int]
    tokens: list[int] = field(default_factory=list)
    """The emitted tokens."""
    visits: list[Visit] = field(default_factory=list)
    """One per emitted token."""
    text: str | None = None
    """The emitted tokens as text, up to the stop string if one ended it; None without a tokenizer."""
    finish: str = "unfinished"
    """Why it ended: eos, stop, length (max tokens), context (the models' longest text), unfinished (interrupted)."""
    target_passes: int = 0
    """Forward passes of the target, the prompt's own pass not counted."""
    draft_passes: int = 0
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(("prefill", *PHASES), 0.0))
    """Wall-clock time by phase; in a batch, this text's equal share of each step."""

    @property
    def block_efficiency(self) -> float:
        """Mean tokens emitted per target pass; NaN before the first."""
        return len(self.tokens) / self.target_passes if self.target_passes else float("nan")

    @property
    def acceptance(self) -> float:
        """Fraction of nodes with drafts at which one of them was emitted; NaN when there was none."""
        ranks = [visit.rank for visit in self.visits if visit.drafts]
        return sum(rank >= 0 for rank in ranks) / len(ranks) if ranks else float("nan")

    @property
    def decoding_seconds(self) -> float:
        """Time spent after the prompt was read."""
        return sum(self.seconds[phase] for phase in PHASES)

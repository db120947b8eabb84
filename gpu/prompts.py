"""Prompt files: Spec-Bench / MT-Bench questions, or plain lines of text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from mdsd_theory.files import read_text

if TYPE_CHECKING:
    from gpu.models import LoadedModel

DEMO = Path(__file__).parent / "data" / "demo_prompts.jsonl"


class Question(NamedTuple):
    """One conversation: what the user says, turn by turn."""

    id: str
    category: str
    turns: tuple[str, ...]


class Unanswered(NamedTuple):
    """Where a conversation ends early: the prompt of its turn `turn` (from 0) leaves the models no room to answer."""

    question: Question
    turn: int
    tokens: int  # of that prompt, the conversation before included
    longest: int  # tokens that the models read in all, prompt and answer

    @property
    def turns(self) -> int:
        """How many turns go unanswered: this one and those after it."""
        return len(self.question.turns) - self.turn

    def as_dict(self) -> dict:
        """Everything, as JSON takes it."""
        return self._asdict() | {"question": self.question._asdict()}

    def __str__(self) -> str:
        return (
            f"question {self.question.id}: turn {self.turn + 1} of {len(self.question.turns)} has a prompt of "
            f"{self.tokens} tokens; the models read at most {self.longest} in all"
        )


def without_room(question: Question, turn: int, prompt: list[int], longest: int | None) -> Unanswered | None:
    """What to say when this turn's prompt leaves no room for an answer; None when it does (or without limit)."""
    full = longest is not None and len(prompt) >= longest
    return Unanswered(question, turn, len(prompt), longest) if full else None


def read_questions(path: str | Path) -> list[Question]:
    """Questions of a .jsonl file (objects with `turns`, and `question_id` and `category` if they have them), else one
    single-turn question per non-empty line of text.

    Raises ValueError for a file that holds none or is not what its name says, OSError for one that cannot be read.
    """
    path = Path(path)
    # not splitlines(): U+2028 and its like are ordinary characters inside a JSON string
    lines = [line for line in read_text(path, "prompt file").split("\n") if line.strip()]
    if not lines:
        raise ValueError(f"prompt file {path} is empty")
    if path.suffix != ".jsonl":
        return [Question(str(number), "", (line,)) for number, line in enumerate(lines, 1)]
    return [_question(path, number, line) for number, line in enumerate(lines, 1)]


def _question(path: Path, number: int, line: str) -> Question:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"prompt file {path}, line {number}: not JSON ({error})") from error
    turns = entry.get("turns") if isinstance(entry, dict) else None
    if not isinstance(turns, list) or not turns or not all(isinstance(turn, str) and turn.strip() for turn in turns):
        raise ValueError(f'prompt file {path}, line {number}: needs "turns", a list of non-empty texts')
    for turn in turns:
        check_unicode(turn, f"prompt file {path}, line {number}")
    return Question(str(entry.get("question_id", number)), str(entry.get("category", "")), tuple(turns))


def check_unicode(text: str, name: str) -> None:
    """Raises ValueError for half a surrogate pair: JSON and the command line let it in, tokenizers cannot read it."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{name}: character {error.start + 1} is half of a surrogate pair, not Unicode text") from None


def chat_tokens(target: LoadedModel, turns: list[str]) -> list[int]:
    """Token ids of a conversation, user and assistant in turn, up to where the assistant speaks next.

    With the tokenizer's chat template; a model without one reads the turns as paragraphs.
    """
    if target.tokenizer is None:
        raise ValueError(f"model {target.name} came without a tokenizer: give token ids, not text")
    for turn in turns:
        check_unicode(turn, "prompt")
    if not target.tokenizer.chat_template:
        return target.tokenizer("\n\n".join(turns))["input_ids"]
    messages = [{"role": "assistant" if number % 2 else "user", "content": turn} for number, turn in enumerate(turns)]
    encoded = target.tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True)
    return list(encoded["input_ids"])

"""Questions to the tiny models, and some that leave them no room for an answer."""

import json

QUESTIONS = [
    {"question_id": 81, "category": "writing", "turns": ["tell me a story", "now make it much shorter"]},
    {"question_id": 82, "category": "writing", "turns": ["another"]},
    {"question_id": 101, "category": "reasoning", "turns": ["if a is b then what is c"], "reference": ["it is b"]},
]

LONG = "word " * 128
"""The tiny models read 128 tokens."""

EARLY = [
    {"question_id": 7, "category": "long", "turns": [LONG, "go on"]},
    {"question_id": 8, "category": "writing", "turns": ["a first", "word " * 123, "never asked", "nor this"]},
]


def with_early_ends(questions, tmp_path):
    """A file of the questions among two conversations that end early: one at once, the first of all, one later on."""
    file = tmp_path / "early.jsonl"
    lines = [json.dumps(question) + "\n" for question in EARLY]
    file.write_text(lines[0] + questions.read_text() + lines[1])
    return file

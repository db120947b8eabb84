import json

import pytest

from gpu.prompts import DEMO, Question, Unanswered, chat_tokens, read_questions, without_room
from tests.gpu.tiny_models import loaded, tiny_model


def test_the_packaged_prompts():
    questions = read_questions(DEMO)
    assert [q.category for q in questions] == ["question", "story", "code", "translation"]


def test_question_files_and_lines(tmp_path):
    file = tmp_path / "q.jsonl"
    question = {"question_id": 81, "category": "writing", "turns": ["a", "b"], "reference": []}
    file.write_text(json.dumps(question) + "\n\n")
    assert read_questions(file) == [("81", "writing", ("a", "b"))]
    turns = ["a\u2028b\x85c\u2029d\r\n", "é"]
    for encoding in ("utf-8", "utf-8-sig"):
        file.write_text(json.dumps({"turns": turns}, ensure_ascii=False) + "\r\n", encoding=encoding)
        assert read_questions(file) == [("1", "", tuple(turns))]
    file = tmp_path / "q.txt"
    file.write_text("one\r\n\ntwo\n")
    assert read_questions(file) == [("1", "", ("one",)), ("2", "", ("two",))]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (b"\n \n", "is empty"),
        (b"{", "line 1: not JSON"),
        (b"[" * 100_000, "line 1: not JSON"),
        (b'{"turns": []}', "line 1: needs"),
        (b'{"turns": ["a"]}\n{"turns": [" "]}', "line 2: needs"),
        (b"[1]", "line 1: needs"),
        (b'{"turns": ["a"]}\n{"turns": ["a", "b\\ud83d"]}', "line 2: character 2 is half of a surrogate pair"),
        (b"\xff\xfe", "not UTF-8"),
    ],
)
def test_bad_files_are_named(tmp_path, content, says):
    file = tmp_path / "q.jsonl"
    file.write_bytes(content)
    with pytest.raises(ValueError, match=f"q.jsonl.*{says}"):
        read_questions(file)
    with pytest.raises(OSError, match="gone"):
        read_questions(tmp_path / "gone.jsonl")


def test_models_without_a_tokenizer_take_ids():
    with pytest.raises(ValueError, match="without a tokenizer"):
        chat_tokens(loaded(tiny_model()), ["hello"])


def test_room_is_for_one_token_at_least():
    question = Question("81", "writing", ("a", "b", "c"))
    assert without_room(question, 1, [0] * 127, 128) is None
    assert without_room(question, 1, [0] * 5000, None) is None
    full = without_room(question, 1, [0] * 128, 128)
    assert full == Unanswered(question, 1, 128, 128)
    assert full.turns == 2
    assert str(full) == ("question 81: turn 2 of 3 has a prompt of 128 tokens; the models read at most 128 in all")

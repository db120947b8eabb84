"""`mdsd bench`: every metric per turn and per run, resuming, and conversations that outgrow the context."""

import json

import numpy as np
import pytest

from tests.gpu.questions import QUESTIONS, with_early_ends

METRICS = ("acceptance", "bound", "gap", "block_efficiency", "children", "by_depth", "by_rank", "tokens_per_second")


def assert_everything_is_told(turns, sums):
    """Per prompt and per run: every metric, adding up."""
    for line in turns:
        told, record, method = line["sums"], line["record"], line["method"]
        assert told["target_passes"] == record["target_passes"] > 0
        assert told["tokens"] == len(record["tokens"]) > 0
        assert told["block_efficiency"]["value"] == told["tokens"] / told["target_passes"]
        assert line["peak_memory"]["bytes"] > 10 * 2**20
        assert "memory of the process" in line["peak_memory"]["of"]
        assert set(told["seconds"]) == {"prefill", "draft", "target", "verify", "bookkeeping"}
        assert told["tokens_per_second"] > 0
        if method == "assisted":
            assert told["target_passes"] <= told["tokens"]
            assert told["draft_passes"] > 0
        if method in ("plain", "assisted"):
            continue
        assert all(told["seconds"].values())
        assert record["draft_passes"] >= told["target_passes"]
        drafted = [visit for visit in record["visits"] if visit[2]]
        for depth, estimate in enumerate(told["by_depth"]):
            at = [visit for visit in drafted if visit[1] == depth]
            assert estimate["value"] == sum(visit[3] >= 0 for visit in at) / len(at)
            for rank, (offered, accepted) in enumerate(
                zip(*(counts[depth] for counts in told["children"].values()), strict=True)
            ):
                assert offered == sum(visit[2] > rank for visit in at)
                assert accepted == sum(visit[3] == rank for visit in at)
        assert len(told["by_rank"]) == (1 if "chain:3" in method else 2)
        assert told["bound"] == pytest.approx(sum(visit[5] for visit in drafted) / len(drafted))
        assert told["gap"]["value"] == pytest.approx(told["bound"] - told["acceptance"]["value"])
    assert [(row["method"], row["category"]) for row in sums[:4]] == [(t["method"], None) for t in turns[:4]]
    assert {row["category"] for row in sums[4:]} == {"writing", "reasoning"}
    for row in sums:
        own = [
            t for t in turns if t["method"] == row["method"] and row["category"] in (None, t["question"]["category"])
        ]
        for count in ("tokens", "target_passes", "draft_passes"):
            assert row["sums"][count] == sum(t["sums"][count] for t in own)
        for kind, counts in row["sums"]["children"].items():
            for depth, rank in np.ndindex(np.shape(counts)):
                summed = [t["sums"]["children"][kind] for t in own]
                assert counts[depth][rank] == sum(c[depth][rank] for c in summed if depth < len(c) and c[depth][rank:])
        assert row["peak_memory"]["bytes"] == max(t["peak_memory"]["bytes"] for t in own)
        assert set(METRICS) <= set(row["sums"])
    assert sums[0]["speedup"]["value"] == 1


@pytest.mark.parametrize("draft", ["draft", "early-exit:1"])  # the second shares the target's own modules
def test_bench_compares_and_resumes(tiny, mdsd, questions, tmp_path, monkeypatch, draft):
    from gpu import benchmark

    arguments = ["bench", "--prompts", questions, "--draft", draft, "--max-tokens", 8, "--assisted", 3, "--method",
                 "kary:2x2 with-replacement rrs", "--method", "chain:3 with-replacement single-draft"]  # fmt: skip
    status, out, err = mdsd(*arguments, "--out", tmp_path / "whole.jsonl")
    assert (status, err) == (0, "")
    for word in ("all questions", "writing", "reasoning", "plain", "assisted", "speed-up", "costs", "keep", "rank"):
        assert word in out
    lines = [json.loads(line) for line in (tmp_path / "whole.jsonl").read_text().splitlines()]
    assert lines[0]["settings"]["methods"] == [
        "plain", "with-replacement + rrs on kary:2x2", "with-replacement + single-draft on chain:3",
    ]  # fmt: skip
    turns, sums = lines[1:17], [line["run"] for line in lines[17:]]  # 4 turns, each by 4 contestants
    assert_everything_is_told(turns, sums)
    second = [line for line in turns if line["question"]["id"] == "81" and line["turn"] == 1]
    assert len({tuple(line["record"]["prompt"]) for line in second}) == 1  # all read the same history
    assert len(second[0]["record"]["prompt"]) > sum(len(turn.split()) for turn in QUESTIONS[0]["turns"])

    part = tmp_path / "cut.jsonl.part"
    text = (tmp_path / "whole.jsonl").read_text()
    text = text[: text.index('{"run"')]
    part.write_text(text[: len(text) * 3 // 4])  # as a kill in mid-line leaves it
    answered = []
    answer = benchmark.answer

    def noted(target, drafter, questions, *a, **k):
        answered.extend(questions)
        return answer(target, drafter, questions, *a, **k)

    monkeypatch.setattr(benchmark, "answer", noted)
    status, _, err = mdsd(*arguments, "--out", tmp_path / "cut.jsonl")
    assert (status, err) == (0, "")
    assert 0 < len(answered) < 3
    resumed = [json.loads(line) for line in (tmp_path / "cut.jsonl").read_text().splitlines()]
    assert [line["record"]["tokens"] for line in resumed[1:17] if line["method"] != "assisted"] == [
        line["record"]["tokens"] for line in turns if line["method"] != "assisted"
    ]

    (tmp_path / "cut3.jsonl.part").write_text(text[: len(text) * 3 // 4])
    status, _, err = mdsd(*arguments, "--seed", 5, "--out", tmp_path / "cut3.jsonl")
    assert status == 2
    assert "other settings" in err
    first, second, rest = text.split("\n", 2)
    for damaged in (second[: len(second) // 2], "[1]", "{}", second.replace("question", "questions")):
        (tmp_path / "cut4.jsonl.part").write_text("\n".join([first, damaged, rest]))
        status, _, err = mdsd(*arguments, "--out", tmp_path / "cut4.jsonl")
        assert (status, err.count("\n")) == (2, 1)
        assert "cut4.jsonl.part is damaged" in err


@pytest.mark.parametrize("assisted", [[], ["--assisted", 2]])
def test_bench_ends_conversations_that_outgrow_the_context(tiny, mdsd, questions, tmp_path, assisted):
    """Turns without room are left out by all methods, counted and named; all the others are what they were."""
    arguments = ["bench", "--draft", "draft", "--max-tokens", 8, "--method", "kary:2x2 with-replacement rrs", *assisted]
    contestants = 2 + bool(assisted)
    assert mdsd(*arguments, "--prompts", questions, "--out", tmp_path / "alone")[0] == 0
    early = with_early_ends(questions, tmp_path)
    status, out, err = mdsd(*arguments, "--prompts", early, "--out", tmp_path / "all")
    assert status == 0
    first, second = err.splitlines()
    assert "left out: question 7: turn 1 of 2 has a prompt of 128 tokens" in first
    assert "left out: question 8: turn 3 of 4 has a prompt of 129 tokens" in second
    assert "4 turns not answered" in " ".join(out.split())

    def lines(name):
        entries = [json.loads(line) for line in (tmp_path / name).read_text().splitlines()[1:]]
        turns = [entry for entry in entries if "record" in entry]
        answers = [(t["question"]["id"], t["turn"], t["method"], t["record"]["tokens"]) for t in turns]
        rows = [entry["run"] for entry in entries if "run" in entry]
        return turns, answers, rows, [entry["unanswered"] for entry in entries if "unanswered" in entry]

    _, alone, rows, unanswered = lines("alone")
    assert unanswered == []
    assert {row["unanswered_turns"] for row in rows} == {0}
    turns, answers, rows, unanswered = lines("all")
    assert [entry for entry in answers if entry[0] not in "78"] == alone
    assert [(entry["question"]["id"], entry["turn"], entry["longest"]) for entry in unanswered] == [
        ("7", 0, 128), ("8", 2, 128),
    ]  # fmt: skip
    assert [turn for name, turn, *_ in answers if name == "8"] == [0] * contestants + [1] * contestants
    full = [turn["record"] for turn in turns if turn["question"]["id"] == "8" and turn["turn"] == 1]
    for record in full:  # the last token that fits is still decoded
        assert (len(record["prompt"]) + len(record["tokens"]), record["finish"]) == (128, "context")
    counts = {row["category"]: row["unanswered_turns"] for row in rows}
    assert counts == {None: 4, "writing": 2, "reasoning": 0}  # nothing of category "long" could be asked

    text = (tmp_path / "all").read_text()
    text = text[: text.index('{"run"')]
    ends = [place for place, letter in enumerate(text) if letter == "\n"]
    for cut in (ends[1], ends[2], ends[-3], ends[-2], ends[-1]):
        (tmp_path / "cut.part").write_text(text[: cut + 9])  # as a kill leaves it, in mid-line
        status, _, err = mdsd(*arguments, "--prompts", early, "--out", tmp_path / "cut")
        assert (status, err.splitlines()) == (0, [first, second])
        _, *again = lines("cut")
        assert (again[0], again[2]) == (answers, unanswered)
        whole = (tmp_path / "cut").rename(tmp_path / "whole").read_text()
    assert whole == (tmp_path / "all").read_text()  # only the sums were missing: nothing was measured again

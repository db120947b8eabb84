"""The commands from the outside: one line and exit 2 for bad input, whole results for good."""

import json

import numpy as np
import pytest
import torch
import typer

from gpu import commands, drafters, models
from gpu.drafters.causal_lm import CausalLM
from mdsd_theory import cli
from simulation.traces import UNFINISHED, Trace
from tests.gpu.tiny_models import tiny_model


class Words:
    """A tokenizer that counts the letters of words."""

    eos_token_id = None
    bos_token_id = 1
    chat_template = None

    def __call__(self, text):
        return {"input_ids": [3 + len(word) for word in text.split()]}

    def decode(self, tokens, skip_special_tokens=True):
        return "".join(chr(64 + token) for token in tokens)


@pytest.fixture
def tiny(monkeypatch):
    """Every model name loads a tiny random model."""

    def load(source=None, **how):
        seed = 1 if source == "draft" else 0
        return models.LoadedModel(tiny_model("llama", 32, seed, scale=1.2), Words(), source or "tiny")

    monkeypatch.setattr(models, "load_target", load)
    make = drafters.make
    monkeypatch.setattr(
        drafters, "make", lambda spec, target, *a: CausalLM(load(spec).model) if spec == "draft" else make(spec, target)
    )


@pytest.fixture
def mdsd(monkeypatch, capsys):
    """Run the command line: (exit status, standard output, standard error)."""

    def run(*arguments):
        app = typer.Typer()
        app.callback()(lambda: None)
        for name in commands.COMMANDS:
            app.command(name)(getattr(commands, name))
        monkeypatch.setattr(cli, "build", lambda: app)
        monkeypatch.setattr("sys.argv", ["mdsd", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            cli.main()
        out, err = capsys.readouterr()
        return end.value.code, out, err

    return run


def test_demo_writes_everything_and_repeats_itself(tiny, mdsd, tmp_path):
    tables = []
    for name in ("a", "b"):
        status, out, err = mdsd("demo", "--out", tmp_path / name, "--draft", "draft", "--max-tokens", 6, "--seed", 3)
        assert (status, err) == (0, "")
        results = json.loads((tmp_path / name / "results.json").read_text())
        assert results["settings"]["seed"] == 3
        for method in results["methods"]:
            method.pop("seconds")
            assert method.pop("tokens_per_second") > 0
        tables.append(results)
        assert (tmp_path / name / "acceptance.png").read_bytes().startswith(b"\x89PNG")
        assert not list((tmp_path / name).rglob("*.part*"))
        assert "kary:2x4" in out
    assert tables[0] == tables[1]
    methods = tables[0]["methods"]
    assert methods[0]["block_efficiency"]["value"] == 1
    assert {(m["sampler"], m["verifier"]) for m in methods[1:]} >= {
        ("with-replacement", "single-draft"),
        ("with-replacement", "rrs"),
        ("with-replacement", "kseq"),
        ("without-replacement", "rrs"),
        ("greedy", "greedy"),
        ("top-then-sample:1", "convex-minorant"),
    }
    for method in methods[1:]:
        assert 0 < method["bound"] <= 1
        assert method["gap"]["value"] == pytest.approx(method["bound"] - method["acceptance"]["value"])
    trace = Trace(tmp_path / "a" / "trace")
    assert trace.vocab_size == 32
    assert len(trace) > 10
    target, draft = trace.logits(0)
    assert target.shape == draft.shape == (32,)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--temperature", "-1"], "temperature"),
        (["--top-p", "1.5"], "top_p"),
        (["--top-k", "0"], "top_k"),
        (["--max-tokens", "0"], "--max-tokens"),
        (["--prompts", "missing.jsonl"], "missing.jsonl"),
        (["--draft", "early-exit:0"], "the model has 2 layers"),
        (["--draft", "early-exit:x"], "number of layers"),
        (["--target", "mine"], "--draft"),
        (["--nonsense"], "No such option"),
    ],
)
def test_demo_refuses_bad_input_in_one_line(tiny, mdsd, tmp_path, monkeypatch, arguments, says):
    monkeypatch.chdir(tmp_path)
    status, out, err = mdsd("demo", *arguments)
    assert status == 2
    assert says in err
    assert err.count("\n") == 1
    assert "Traceback" not in out + err
    assert not list(tmp_path.iterdir())


def test_demo_leaves_existing_results_alone(tiny, mdsd, tmp_path):
    (tmp_path / "mine.txt").write_text("precious")
    status, _, err = mdsd("demo", "--out", tmp_path)
    assert status == 2
    assert "exists already" in err


def test_an_empty_prompt_file_is_refused(tiny, mdsd, tmp_path):
    (tmp_path / "empty.jsonl").write_text("")
    assert mdsd("demo", "--prompts", tmp_path / "empty.jsonl", "--out", tmp_path / "o")[0] == 2


def test_importing_commands_needs_no_torch():
    import subprocess
    import sys

    code = "import sys, gpu.commands; assert 'torch' not in sys.modules and 'matplotlib' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    assert torch is not None


QUESTIONS = [
    {"question_id": 81, "category": "writing", "turns": ["tell me a story", "now make it much shorter"]},
    {"question_id": 82, "category": "writing", "turns": ["another"]},
    {"question_id": 101, "category": "reasoning", "turns": ["if a is b then what is c"], "reference": ["it is b"]},
]


@pytest.fixture
def questions(tmp_path):
    file = tmp_path / "questions.jsonl"
    file.write_text("".join(json.dumps(question) + "\n" for question in QUESTIONS))
    return file


def test_decode_streams_the_text_and_sums_up(tiny, mdsd):
    text = "once upon a time"
    status, out, err = mdsd("decode", "--prompt", text, "--draft", "draft", "--max-tokens", 20, "--seed", 4)
    assert status == 0
    from gpu import decode

    drafter = CausalLM(tiny_model("llama", 32, 1, scale=1.2))
    expected = decode(models.load_target(), drafter, text, max_tokens=20, generator=4)
    assert out == expected.text + "\n"
    assert f"{len(expected.tokens)} tokens ({expected.finish})" in err
    assert "block efficiency" in err


def test_decode_marks_who_proposed_each_token(tiny, mdsd, monkeypatch):
    from rich.console import Console

    class Colour(Console):
        def __init__(self, **how):
            super().__init__(**how, force_terminal=True, color_system="standard")

    monkeypatch.setattr("rich.console.Console", Colour)
    status, out, _ = mdsd("decode", "--prompt", "once upon", "--draft", "draft", "--max-tokens", 30, "--show-drafts")
    assert status == 0
    from gpu import decode

    record = decode(models.load_target(), CausalLM(tiny_model("llama", 32, 1, scale=1.2)), "once upon", max_tokens=30)
    accepted = sum(visit.rank >= 0 for visit in record.visits)
    assert accepted == out.count("\x1b[32m")
    assert len(record.tokens) - accepted == out.count("\x1b[33m")


def test_decode_interrupted_leaves_a_line_and_the_summary(tiny, mdsd, monkeypatch):
    from gpu import streaming

    stream = streaming.stream

    def interrupted(*a, **how):
        for number, records in enumerate(stream(*a, **how)):
            if number == 3:
                raise KeyboardInterrupt
            yield records

    monkeypatch.setattr(streaming, "stream", interrupted)
    status, out, err = mdsd("decode", "--prompt", "once upon", "--draft", "draft", "--max-tokens", 30)
    assert status == 130
    assert out.endswith("\n")
    assert "(interrupted), 3 target passes" in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["decode"], "--prompt, --prompts"),
        (["decode", "--prompt", " "], "--prompt is empty"),
        (["decode", "--prompt", "a", "--sampler", "beam"], "known: with-replacement"),
        (["decode", "--prompt", "a", "--verifier", "magic"], "known: naive"),
        (["decode", "--prompt", "a", "--tree", "kary:0x3"], "at least 1"),
        (["decode", "--prompt", "a", "--tree", "none.json"], "none.json"),
        (["decode", "--prompt", "a", "--sampler", "greedy", "--verifier", "kseq"], "kseq"),
        (["decode", "--prompt", "a", "--draft-top-p", "0"], "top_p"),
        (["record", "--out", "t", "--tree", "plain"], "nothing to record"),
        (["record", "--out", "t", "--batch", "0"], "--batch"),
        (["record", "--out", "t", "--keep-top", "0"], "--keep-top"),
        (["record", "--out", "t", "--whole-trees", "--draft-temperature", "0.5"], "whole trees"),
        (["bench", "--prompts", "gone.jsonl"], "gone.jsonl"),
        (["bench", "--prompts", "q.txt", "--method", "kary:2x2 greedy"], "give a tree, a sampler and a verifier"),
        (["bench", "--prompts", "q.txt", "--limit", "0"], "--limit"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(tiny, mdsd, tmp_path, monkeypatch, arguments, says):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "q.txt").write_text("a question\n")
    status, out, err = mdsd(*arguments)
    assert status == 2
    assert says in err
    assert err.count("\n") == 1
    assert "Traceback" not in out + err
    assert {path.name for path in tmp_path.iterdir()} <= {"q.txt"}


def test_record_writes_what_the_models_said(tiny, mdsd, questions, tmp_path):
    status, out, err = mdsd(
        "record", "--prompts", questions, "--out", tmp_path / "t", "--draft", "draft", "--max-tokens", 9, "--batch", 2
    )
    assert (status, err) == (0, "")
    trace = Trace(tmp_path / "t")
    assert trace.header["dtype"] == "F32"
    assert f"{len(trace)} positions of 3 prompts" in " ".join(out.split())
    assert not (tmp_path / "t" / UNFINISHED).exists()
    target, draft = models.load_target().model, tiny_model("llama", 32, 1, scale=1.2)
    texts = recorded_texts(9, "chain:4", "with-replacement", "single-draft")
    assert_every_token_has_a_row(trace, texts)
    for row in range(len(trace)):
        prompt, position = trace.column("prompt")[row], trace.column("position")[row]
        before = torch.tensor([texts[prompt][:position]])
        for stored, model in zip(trace.logits(row), (target, draft), strict=True):
            assert (torch.from_numpy(stored) - model(input_ids=before).logits[0, -1]).abs().max() < 1e-4


def assert_every_token_has_a_row(trace, texts):
    """No position is left out, such as those after accepted drafts."""
    lengths = [len(Words()(question["turns"][0])["input_ids"]) for question in QUESTIONS]
    wanted = [(k, at) for k, text in enumerate(texts) for at in range(lengths[k], len(text))]
    columns = (trace.column(name).tolist() for name in ("prompt", "position"))
    assert sorted(zip(*columns, strict=True)) == wanted


@pytest.mark.parametrize("tree", ["chain:1", "chain:4", "kary:2x2"])
@pytest.mark.parametrize("draft", ["draft", "ngram:2", "early-exit:1"])
def test_record_skips_no_position(tiny, mdsd, questions, tmp_path, tree, draft):
    """A drafter that is often right accepts whole paths, after which there are no drafts but there is a position."""
    how = ["--tree", tree, "--sampler", "with-replacement", "--verifier", "naive", "--temperature", 0.3]
    out = tmp_path / "t"
    assert mdsd("record", "--prompts", questions, "--out", out, "--draft", draft, "--max-tokens", 12, *how)[0] == 0
    trace = Trace(out)
    drafter = drafters.make(draft, models.load_target())
    texts = recorded_texts(12, tree, "with-replacement", "naive", temperature=0.3, drafter=drafter)
    assert_every_token_has_a_row(trace, texts)


@pytest.mark.parametrize("extra", [[], ["--whole-trees", "--tree", "kary:2x2", "--verifier", "rrs"], ["--keep-top", 8]])
def test_a_recording_that_was_killed_goes_on(tiny, mdsd, questions, tmp_path, monkeypatch, extra):
    from gpu import recording

    class Killed(BaseException):
        pass

    arguments = ["record", "--prompts", questions, "--draft", "draft", "--max-tokens", 9, "--batch", 1, *extra]
    assert mdsd(*arguments, "--out", tmp_path / "whole")[0] == 0
    stream, decoded = recording.stream, []

    def counted(target, drafter, prompts, *a, **how):
        decoded.append(prompts)
        for step, records in enumerate(stream(target, drafter, prompts, *a, **how)):
            if len(decoded) == 3 and step == 2:
                raise Killed
            yield records

    monkeypatch.setattr(recording, "stream", counted)
    out = tmp_path / "cut"
    with pytest.raises(Killed):
        mdsd(*arguments, "--out", out)
    with pytest.raises(ValueError, match="is not finished"):
        Trace(out)
    (out / "shard-00002.part.safetensors").write_bytes(b"half a shard")
    for other, says in (
        (["--max-tokens", 8], "max_tokens 9, not 8"),
        (["--temperature", 0.5], "temperature 1.0, not 0.5"),
        (["--batch", 2], "batch 1, not 2"),
        (["--draft", "ngram:2"], "draft_model"),
        (["--top-k", 3], "top_k null, not 3"),
    ):
        status, _, err = mdsd(*arguments, *other, "--out", out)
        assert (status, err.count("\n")) == (2, 1)
        assert "unfinished trace of another run" in err
        assert says in err
    status, shown, err = mdsd(*arguments, "--out", out)
    assert (status, err) == (0, "")
    assert len(decoded) == 4  # two prompts before the kill, the third once more
    whole = {path.name: path.read_bytes() for path in (tmp_path / "whole").iterdir()}
    assert {path.name: path.read_bytes() for path in out.iterdir()} == whole
    assert len([name for name in whole if name.startswith("shard")]) == 3
    assert f"{len(Trace(out))} positions" in " ".join(shown.split())
    status, _, err = mdsd(*arguments, "--out", out)
    assert status == 2
    assert "already holds a finished trace" in err


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


@pytest.mark.parametrize(
    "command",
    [["demo"], ["decode"], ["decode", "--raw"], ["record"], ["bench", "--method", "chain:2 with-replacement rrs"]],
)
def test_when_no_question_has_room_nothing_is_begun(tiny, mdsd, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "q.jsonl").write_text(json.dumps(EARLY[0]) + "\n")
    out = [] if command[0] == "decode" else ["--out", "out"]
    status, _, err = mdsd(*command, "--prompts", "q.jsonl", "--draft", "draft", *out)
    assert (status, err.count("\n")) == (2, 1)
    assert "no question leaves room for an answer; question 7: turn 1 of 2 has a prompt of 128 tokens" in err
    assert {path.name for path in tmp_path.iterdir()} == {"q.jsonl"}


@pytest.mark.parametrize("command", ["demo", "decode", "record"])
def test_a_question_without_room_is_left_out_and_named(tiny, mdsd, questions, tmp_path, command):
    """The others go on as if it were not there."""
    file, seen = with_early_ends(questions, tmp_path), []
    (tmp_path / "fitting.jsonl").write_text("".join(file.read_text().splitlines(keepends=True)[1:]))
    for prompts in (file, tmp_path / "fitting.jsonl"):
        out = tmp_path / f"out-{prompts.stem}"
        extra = [] if command == "decode" else ["--out", out]
        status, shown, err = mdsd(command, "--prompts", prompts, "--draft", "draft", "--max-tokens", 5, *extra)
        assert status == 0
        named = "mdsd: left out: question 7: turn 1 of 2 has a prompt of 128 tokens; the models read at most 128 in all"
        assert err.splitlines().count(named) == (prompts == file)
        if command == "decode":
            seen.append(shown)
            continue
        if command == "demo":
            told = json.loads((out / "results.json").read_text())
            assert [entry["question"]["id"] for entry in told["unanswered"]] == ["7"] * (prompts == file)
        else:
            assert "of 4 prompts" in " ".join(shown.split())
        trace = Trace(out / "trace" if command == "demo" else out)
        seen.append([trace.header["prompts"], [trace.logits(row)[0].tolist() for row in range(len(trace))]])
    assert seen[0] == seen[1]


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


def recorded_texts(max_tokens, *method, drafter=None, **sampling):
    from gpu import decode_batch
    from gpu.method import Method

    target, drafter = models.load_target(), drafter or CausalLM(tiny_model("llama", 32, 1, scale=1.2))
    prompts = [question["turns"][0] for question in QUESTIONS]
    records = decode_batch(target, drafter, prompts, Method.make(*method, **sampling), max_tokens=max_tokens)
    return [record.prompt + record.tokens for record in records]


def test_recorded_whole_trees_feed_the_simulation(tiny, mdsd, questions, tmp_path):
    """Expected block efficiency over the recorded trees is what decoding had, up to chance."""
    from simulation.trees import block_efficiency

    status, _, err = mdsd(
        "record", "--prompts", questions, "--out", tmp_path / "t", "--draft", "draft", "--max-tokens", 60,
        "--whole-trees", "--tree", "kary:2x2", "--verifier", "rrs",
    )  # fmt: skip
    assert (status, err) == (0, "")
    trace = Trace(tmp_path / "t")
    steps = list(trace.steps())
    expected = [block_efficiency(trace, rows, "rrs")[0] for rows in steps]
    assert trace.tree["sampler"] == "with-replacement"
    texts = recorded_texts(60, "kary:2x2", "with-replacement", "rrs")
    target = models.load_target().model
    for rows in steps[::7]:
        assert trace.column("parent")[rows.start] == -1
        root = rows.start
        text = texts[trace.column("prompt")[root]][: trace.column("position")[root]]
        assert trace.column("token")[root] == text[-1]
        for row in rows:
            path, at = [], row
            while at != root:
                path.insert(0, int(trace.column("token")[at]))
                at = root + trace.column("parent")[at]
            logits = target(input_ids=torch.tensor([text + path])).logits[0, -1]
            assert (torch.from_numpy(trace.logits(row)[0]) - logits).abs().max() < 1e-4
    emitted = sum(len(t) for t in texts) - sum(
        len(Words()(question["turns"][0])["input_ids"]) for question in QUESTIONS
    )
    # each step emits 1 to 3 tokens: its standard deviation is below 1; 6 of them
    assert abs(sum(expected) - emitted) < 6 * len(steps) ** 0.5


def test_record_compressed_keeps_the_tail(tiny, mdsd, questions, tmp_path):
    for name, extra in (("full", []), ("top", ["--keep-top", 8])):
        status, _, err = mdsd("record", "--prompts", questions, "--out", tmp_path / name, "--draft", "draft",
                              "--max-tokens", 6, "--temperature", 0.7, *extra)  # fmt: skip
        assert (status, err) == (0, "")
    full, top = Trace(tmp_path / "full"), Trace(tmp_path / "top")
    for row in range(len(full)):
        for whole, kept in zip(full.logits(row), top.logits(row, 0.7), strict=True):
            whole, kept = (torch.from_numpy(x).double().div(0.7).softmax(-1).sort().values for x in (whole, kept))
            assert (whole[-8:] - kept[-8:]).abs().max() < 1e-6


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

"""`mdsd decode`: the text as it comes, who proposed each token, and the summary."""

from gpu import models
from gpu.drafters.causal_lm import CausalLM
from tests.gpu.tiny_models import tiny_model


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

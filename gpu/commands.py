"""The decoding layer's commands. Torch is imported inside them, so `mdsd --help` is fast and works without it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

if TYPE_CHECKING:
    from rich.progress import Progress

    from gpu.drafters.base import Drafter
    from gpu.models import LoadedModel
    from gpu.prompts import Unanswered

COMMANDS = ("demo", "decode", "record", "bench")

DEFAULT_DRAFT = "bundled"
"""The trained drafter that ships for the bundled target."""
DEFAULT_METHODS = (
    "chain:4 with-replacement single-draft",
    "eagle-sparse without-replacement rrs",
    "eagle-sparse top-then-sample:1 convex-minorant",
)

Target = Annotated[
    str | None,
    typer.Option("--target", help="Hub id, folder or .gguf file of the target; the bundled SmolLM2-135M by default."),
]
Draft = Annotated[
    str | None,
    typer.Option("--draft", help="bundled, early-exit:K, eagle:FILE, ngram ... or a model: Hub id, folder, .gguf."),
]
PadVocab = Annotated[
    bool, typer.Option("--pad-vocab", help="Let vocabularies differ in length; what one model lacks has probability 0.")
]
Dtype = Annotated[str | None, typer.Option(help="float32, bfloat16 or float16; float32 on CPU by default.")]
Device = Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1 ...; CUDA by default where there is one.")]
DeviceMap = Annotated[
    str | None, typer.Option(help="Spread the target over several GPUs: auto, balanced ... (needs accelerate).")
]
TreeName = Annotated[
    str, typer.Option("--tree", help="chain:4, kary:2x4, eagle-sparse, a .json file of child-rank paths, plain.")
]
SamplerName = Annotated[
    str,
    typer.Option(
        "--sampler", help="with-replacement, without-replacement, greedy, top-then-sample:K, deterministic, spechub."
    ),
]
VerifierName = Annotated[str, typer.Option("--verifier", help="rrs, kseq, greedy, convex-minorant, naive ...")]
Temperature = Annotated[float, typer.Option(help="Sampling temperature, >= 0; 0 takes the most probable token.")]
TopK = Annotated[int | None, typer.Option(help="Keep the k most probable tokens.")]
TopP = Annotated[float | None, typer.Option(help="Keep the most probable tokens up to this mass, in (0, 1].")]
DraftTemperature = Annotated[float | None, typer.Option(help="The drafter's temperature; the target's by default.")]
DraftTopK = Annotated[int | None, typer.Option(help="The drafter's top-k; the target's by default.")]
DraftTopP = Annotated[float | None, typer.Option(help="The drafter's top-p; the target's by default.")]
MaxTokens = Annotated[int, typer.Option(help="Most tokens to generate per prompt.")]
Seed = Annotated[int, typer.Option(help="Seed of all randomness.", min=0, max=2**32 - 1)]
Prompts = Annotated[
    Path | None, typer.Option("--prompts", help="Prompts: .jsonl of Spec-Bench / MT-Bench questions, or text lines.")
]


def demo(
    out: Annotated[Path | None, typer.Option(help="Results folder; mdsd-demo, or mdsd-demo-2 ... by default.")] = None,
    target: Target = None,
    draft: Draft = None,
    prompts: Prompts = None,
    temperature: Temperature = 1.0,
    top_k: TopK = None,
    top_p: TopP = None,
    max_tokens: MaxTokens = 32,
    seed: Seed = 0,
) -> None:
    """Decode a few prompts with several multi-draft methods and compare their acceptance with the optimum."""
    from gpu import demo as job
    from gpu.prompts import DEMO, read_questions

    console = Console()
    questions = read_questions(prompts or DEMO)
    compared = job.methods(temperature, top_k, top_p)
    _at_least_one("--max-tokens", max_tokens)
    folder = _new_folder(out, "mdsd-demo")
    loaded, drafter = _load(console, target, draft)
    with _progress(console) as progress:
        summaries, unanswered = job.run(loaded, drafter, questions, compared, max_tokens, seed, folder, progress)
    _tell(unanswered)
    console.print(job.table(compared, summaries))
    console.print(f"Target {loaded.name}, drafter {drafter.name}. Results, plot and trace in [bold]{folder}[/].")


def decode(
    prompt: Annotated[str | None, typer.Option(help="The prompt; a chat message if the model has a template.")] = None,
    prompts: Prompts = None,
    raw: Annotated[bool, typer.Option("--raw", help="Continue the text itself, without the chat template.")] = False,
    show_drafts: Annotated[
        bool, typer.Option("--show-drafts", help="Colour each token by who proposed it: drafter or target.")
    ] = False,
    target: Target = None,
    draft: Draft = None,
    pad_vocab: PadVocab = False,
    dtype: Dtype = None,
    device: Device = None,
    device_map: DeviceMap = None,
    tree: TreeName = "eagle-sparse",
    sampler: SamplerName = "without-replacement",
    verifier: VerifierName = "rrs",
    temperature: Temperature = 1.0,
    top_k: TopK = None,
    top_p: TopP = None,
    draft_temperature: DraftTemperature = None,
    draft_top_k: DraftTopK = None,
    draft_top_p: DraftTopP = None,
    stop: Annotated[list[str] | None, typer.Option(help="Text that ends the answer; repeatable.")] = None,
    max_tokens: MaxTokens = 128,
    seed: Seed = 0,
) -> None:
    """Decode prompts and print the text as it is accepted."""
    from gpu.decoding import first_turns
    from gpu.method import Method
    from gpu.prompts import Question, read_questions
    from gpu.streaming import print_decoding

    if (prompt is None) == (prompts is None):
        raise ValueError("--prompt, --prompts: give one of them")
    if prompt is not None and not prompt.strip():
        raise ValueError("--prompt is empty")
    questions = read_questions(prompts) if prompts else [Question("1", "", (prompt,))]
    method = Method.make(
        tree, sampler, verifier, temperature, top_k, top_p, draft_temperature, draft_top_k, draft_top_p
    )
    _at_least_one("--max-tokens", max_tokens)
    console = Console(stderr=True)
    loaded, drafter = _load(console, target, draft, pad_vocab, dtype=dtype, device=device, device_map=device_map)
    asked = first_turns(loaded, drafter if method.tree.depth else None, questions, raw)
    _tell(asked.unanswered)
    for number, tokens in enumerate(asked.prompts):
        finished = print_decoding(
            loaded, drafter, tokens, method, console, show_drafts, max_tokens=max_tokens, stop=stop or (),
            generators=[seed + number], pad_vocab=pad_vocab,
        )  # fmt: skip
        if not finished:
            raise typer.Exit(130)


def record(
    out: Annotated[Path, typer.Option(help="Folder for the trace, new or empty; an interrupted one is continued.")],
    prompts: Prompts = None,
    target: Target = None,
    draft: Draft = None,
    pad_vocab: PadVocab = False,
    dtype: Dtype = None,
    device: Device = None,
    device_map: DeviceMap = None,
    tree: TreeName = "chain:4",
    sampler: SamplerName = "with-replacement",
    verifier: VerifierName = "single-draft",
    temperature: Temperature = 1.0,
    top_k: TopK = None,
    top_p: TopP = None,
    draft_temperature: DraftTemperature = None,
    draft_top_k: DraftTopK = None,
    draft_top_p: DraftTopP = None,
    max_tokens: MaxTokens = 128,
    keep_top: Annotated[
        int | None, typer.Option(help="Keep the k largest logits of each row and the exact mass of the rest.")
    ] = None,
    whole_trees: Annotated[
        bool, typer.Option("--whole-trees", help="Record every node of every draft tree, not the visited ones alone.")
    ] = False,
    batch: Annotated[int, typer.Option(help="Prompts decoded together, and secured together when done.")] = 8,
    seed: Seed = 0,
) -> None:
    """Record both models' logits at every position that decoding visits, one per emitted token, for `mdsd study`."""
    from gpu.method import Method
    from gpu.prompts import DEMO, read_questions
    from gpu.recording import record_questions, tree_settings
    from simulation.traces import check_room

    questions = read_questions(prompts or DEMO)
    method = Method.make(
        tree, sampler, verifier, temperature, top_k, top_p, draft_temperature, draft_top_k, draft_top_p
    )
    _at_least_one("--max-tokens", max_tokens)
    _at_least_one("--batch", batch)
    if not method.tree.depth:
        raise ValueError("--tree plain drafts nothing, so there is nothing to record; use chain:1")
    if whole_trees:
        tree_settings(method)
    if keep_top is not None:
        _at_least_one("--keep-top", keep_top)
    console = Console()
    check_room(out)
    loaded, drafter = _load(console, target, draft, pad_vocab, dtype=dtype, device=device, device_map=device_map)
    with _progress(console) as progress:
        rows, unanswered = record_questions(
            out, loaded, drafter, questions, method, max_tokens=max_tokens, seed=seed, batch=batch,
            keep_top=keep_top, whole_trees=whole_trees, pad_vocab=pad_vocab, progress=progress,
        )  # fmt: skip
    _tell(unanswered)
    console.print(f"{rows} positions of {len(questions) - len(unanswered)} prompts in [bold]{out}[/]")


def bench(
    prompts: Prompts,
    method: Annotated[
        list[str] | None,
        typer.Option(help='"TREE SAMPLER VERIFIER", as in "kary:2x4 greedy greedy"; repeatable.'),
    ] = None,
    out: Annotated[Path, typer.Option(help="JSON lines, one per answered turn; continued when interrupted.")] = Path(
        "mdsd-bench.jsonl"
    ),
    limit: Annotated[int | None, typer.Option(help="Only the first so many questions.")] = None,
    assisted: Annotated[
        int | None, typer.Option(help="Also transformers' assisted generation, with this many drafts a step.")
    ] = None,
    bounds: Annotated[bool, typer.Option(help="Compute alpha* at the visited nodes, off the clock.")] = True,
    target: Target = None,
    draft: Draft = None,
    pad_vocab: PadVocab = False,
    dtype: Dtype = None,
    device: Device = None,
    device_map: DeviceMap = None,
    temperature: Temperature = 1.0,
    top_k: TopK = None,
    top_p: TopP = None,
    draft_temperature: DraftTemperature = None,
    draft_top_k: DraftTopK = None,
    draft_top_p: DraftTopP = None,
    max_tokens: MaxTokens = 64,
    seed: Seed = 0,
) -> None:
    """Benchmark methods on Spec-Bench / MT-Bench questions, beside plain decoding in the same run."""
    from gpu import benchmark as job
    from gpu import comparison
    from gpu.method import Method
    from gpu.prompts import read_questions

    if prompts is None:
        raise ValueError("--prompts: give a question file")
    questions = read_questions(prompts)
    for name, value in (("--max-tokens", max_tokens), ("--limit", limit), ("--assisted", assisted)):
        if value is not None:
            _at_least_one(name, value)
    compared = [
        Method.parse(
            spec, temperature=temperature, top_k=top_k, top_p=top_p, draft_temperature=draft_temperature,
            draft_top_k=draft_top_k, draft_top_p=draft_top_p,
        )
        for spec in method or DEFAULT_METHODS
    ]  # fmt: skip
    if out.exists():
        raise ValueError(f"--out {out} exists already; choose another file")
    console = Console()
    loaded, drafter = _load(console, target, draft, pad_vocab, dtype=dtype, device=device, device_map=device_map)
    with _progress(console) as progress:
        rows, unanswered = job.run(
            out, loaded, drafter, questions[:limit], job.plain_beside(compared), max_tokens=max_tokens, seed=seed,
            bounds=bounds, assisted=assisted, pad_vocab=pad_vocab, progress=progress,
        )  # fmt: skip
    _tell(unanswered)
    for table in comparison.tables(rows):
        console.print(table)
    of = next((f"; peak memory: {row.peak_memory.of}" for row in rows if row.peak_memory), "")
    console.print(f"Target {loaded.name}, drafter {drafter.name}{of}; answers in {out}")


def _load(
    console: Console, target: str | None, draft: str | None, pad_vocab: bool = False, **how: str | None
) -> tuple[LoadedModel, Drafter]:
    """Target and drafter, with something to look at meanwhile."""
    from gpu import drafters, models

    if target is not None and draft is None:
        raise ValueError("--draft: name a drafter for this target, such as early-exit:K or a smaller model")
    with console.status("loading the models"):
        loaded = models.load_target(target, **how)
        return loaded, drafters.make(draft or DEFAULT_DRAFT, loaded, pad_vocab)


def _tell(unanswered: Sequence[Unanswered]) -> None:
    """A line on standard error for every conversation, or part of one, that was left out."""
    for left_out in unanswered:
        print(f"mdsd: left out: {left_out}", file=sys.stderr)


def _at_least_one(name: str, value: int) -> None:
    if value < 1:
        raise ValueError(f"{name} must be at least 1, got {value}")


def _new_folder(out: Path | None, name: str) -> Path:
    """The folder asked for, which must not hold anything yet, or the first free name."""
    if out is not None:
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise ValueError(f"--out {out} exists already; choose another folder")
        return out
    number = 1
    while (folder := Path(name if number == 1 else f"{name}-{number}")).exists():
        number += 1
    return folder


def _progress(console: Console) -> Progress:
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    return Progress(
        TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn(), console=console
    )

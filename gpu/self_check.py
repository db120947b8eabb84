"""`python -m gpu.self_check`: figures and losslessness on this machine's GPU, with random weights and no downloads.

What it measures, each beside a copy of memory timed in the same run:

- positions per second of batched alpha* and of every torch verifier at V = 152,064, and the bytes of p and q they read;
- where a decoding step's time goes, and plain against tree decoding, for a target of a few billion random parameters in
  bfloat16 whose drafts are accepted at a rate set by construction;
- that bfloat16 decoding is lossless: exact enumeration against many decoded texts.

The target's cost is real, its words are not: logits come from a table by last token, added to what the layers computed
times zero, and the drafter reads the same table with noise. So acceptance is what the noise makes it, and everything
the target does takes the time it takes.

It ends within eight minutes: what has not started after `LAST_START` seconds is left out, and named.
"""

from __future__ import annotations

import itertools
import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer
from rich.console import Console
from rich.table import Table
from scipy.stats import chisquare
from torch import Tensor
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedModel

from gpu.bounds import optimal_acceptance
from gpu.decoding import decode_batch
from gpu.drafters.callable import CallableDrafter
from gpu.drafters.causal_lm import CausalLM
from gpu.method import Method
from gpu.models import LoadedModel
from gpu.samplers import Sampler
from gpu.summaries import summarise
from gpu.trees import kary
from gpu.verification import make
from mdsd_theory.files import write_text

P_VALUE = 1e-9  # false alarm rate of each losslessness test
LAST_START = 400.0  # seconds after the start; the longest single measurement has the rest of the eight minutes
TABLE_ROWS = 256
SPLIT = "draft/target/verify/rest"


@dataclass(frozen=True)
class Size:
    """How big everything is."""

    vocab_size: int
    positions: int  # per batch in the throughput figures
    repeats: int
    hidden: int  # of the target
    layers: int
    texts: int  # decoded for the losslessness test
    tokens: int  # decoded for the speed figures
    batches: tuple[int, ...]


FULL = Size(152_064, 64, 20, 3072, 28, 20_000, 128, (1, 8))
SMALL = Size(2_000, 4, 2, 64, 2, 1_000, 12, (1, 2))


@dataclass
class TimeLimit:
    """Until when (of `time.perf_counter`) measurements may start, and the names of those that came too late."""

    last_start: float = math.inf
    left_out: list[str] = field(default_factory=list)

    def allows(self, what: str) -> bool:
        if time.perf_counter() < self.last_start:
            return True
        self.left_out.append(what)
        return False


VERIFIED = (
    ("naive", "with-replacement"), ("rrs", "with-replacement"), ("rrs", "without-replacement"),
    ("kseq", "with-replacement"), ("greedy", "greedy"), ("convex-minorant", "with-replacement"),
    ("convex-minorant", "top-then-sample:1"),
)  # fmt: skip


def clocked(run: Callable[[], object], device: torch.device, repeats: int) -> float:
    """Median seconds of a call, the device waited for."""
    times = []
    for _ in range(repeats + 2):
        start = time.perf_counter()
        run()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(time.perf_counter() - start)
    return float(np.median(times[2:]))


def copy_bandwidth(device: torch.device, size: Size) -> float:
    """Bytes per second, read and written, of a copy that no cache holds."""
    numbers = torch.empty(size.vocab_size * size.positions * 4, device=device)
    other = torch.empty_like(numbers)
    return 2 * numbers.nbytes / clocked(lambda: other.copy_(numbers), device, size.repeats)


def throughput(device: torch.device, size: Size, limit: TimeLimit, n: int = 4) -> list[dict]:
    """Positions per second of alpha* and of the verifiers, float32 probabilities of peaked logits."""
    noise = torch.Generator(device=device).manual_seed(0)
    logits = 3 * torch.randn(size.positions, size.vocab_size, generator=noise, device=device)
    p = logits.softmax(-1)
    q = (logits + torch.randn(p.shape, generator=noise, device=device)).softmax(-1)
    u = torch.rand(size.positions, n, generator=noise, device=device, dtype=torch.float64)
    figures = []

    def add(name: str, run: Callable[[], object]) -> None:
        if not limit.allows(name):
            return
        seconds = clocked(run, device, size.repeats)
        figures.append({
            "what": name, "positions_per_second": size.positions / seconds,
            "bytes_per_second": (p.nbytes + q.nbytes) / seconds,
        })  # fmt: skip

    for top in (0, 1, n - 1):
        add(f"alpha*, n = {n}, top = {top}", lambda top=top: optimal_acceptance(p, q, n, top))
    for verifier, spec in VERIFIED:
        sampler = Sampler.parse(spec)
        law, drafts = make(verifier, sampler, kary(n, 1)), sampler(q, n, u)
        add(f"{verifier} on {spec}, n = {n}", lambda law=law, drafts=drafts: law(p, drafts, u[:, 0]))
        if verifier != "convex-minorant":
            add(f"drawing {spec}, n = {n}", lambda sampler=sampler: sampler(q, n, u))
    return figures


def table_target(device: torch.device, size: Size) -> tuple[LoadedModel, Tensor]:
    """A Llama of random weights whose logits are a table's rows by last token, and the table (rows, V)."""
    config = LlamaConfig(
        vocab_size=size.vocab_size, hidden_size=size.hidden, intermediate_size=size.hidden * 8 // 3,
        num_hidden_layers=size.layers, num_attention_heads=max(size.hidden // 128, 1),
        num_key_value_heads=max(size.hidden // 512, 1), max_position_embeddings=4096, tie_word_embeddings=True,
    )  # fmt: skip
    dtype = torch.bfloat16
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation="sdpa")
    generator = torch.Generator(device=device).manual_seed(1)
    table = 3 * torch.randn(TABLE_ROWS, size.vocab_size, generator=generator, device=device)

    def answer(module: PreTrainedModel, arguments: tuple, named: dict, output) -> object:  # noqa: ANN001
        ids, keep = named["input_ids"], named.get("logits_to_keep", 0)
        ids = ids[:, -keep:] if isinstance(keep, int) and keep else ids
        output.logits = output.logits * 0 + table[ids % TABLE_ROWS].to(output.logits.dtype)
        return output

    model.register_forward_hook(answer, with_kwargs=True)
    model = model.eval().requires_grad_(False)
    model.generation_config.eos_token_id = None
    billions = sum(parameter.numel() for parameter in model.parameters()) / 1e9
    return LoadedModel(model, None, f"{billions:.2f} billion random parameters"), table


def noisy_drafter(table: Tensor, noise: float) -> CallableDrafter:
    """The table with Gaussian noise on the logits: more noise, less acceptance."""
    generator = torch.Generator(device=table.device).manual_seed(2)
    noisy = table + noise * torch.randn(table.shape, generator=generator, device=table.device)

    def logits(texts: list[list[int]]) -> Tensor:
        return noisy[torch.tensor([text[-1] for text in texts], device=table.device) % TABLE_ROWS]

    return CallableDrafter(logits, table.shape[1], name=f"table with noise {noise}")


SPEED_METHODS = (
    "plain with-replacement naive",
    "chain:4 with-replacement single-draft",
    "kary:2x4 without-replacement rrs",
    "eagle-sparse without-replacement rrs",
    "eagle-sparse top-then-sample:1 convex-minorant",
)


def speed(device: torch.device, size: Size, limit: TimeLimit, noises: tuple[float, ...] = (0.5, 1.0)) -> list[dict]:
    """Tokens per second and time split, by acceptance, batch and method, all in this run."""
    target, table = table_target(device, size)
    figures = []
    for noise, batch in itertools.product(noises, size.batches):
        drafter = noisy_drafter(table, noise)
        prompts = [[1 + row] * 64 for row in range(batch)]
        plain = None
        for spec in SPEED_METHODS:
            if not limit.allows(f"{spec}, noise {noise}, batch {batch}"):
                continue
            method = Method.parse(spec)
            decode_batch(target, drafter, prompts, method, max_tokens=4)
            start = time.perf_counter()
            records = decode_batch(target, drafter, prompts, method, max_tokens=size.tokens)
            wall = time.perf_counter() - start
            s = summarise(records)
            plain = plain or s.tokens_per_second
            spent = sum(seconds for phase, seconds in s.seconds.items() if phase != "prefill")
            figures.append({
                "target": target.name, "drafter": drafter.name, "batch": batch, "method": method.name,
                "acceptance": s.acceptance.value, "block_efficiency": s.block_efficiency.value,
                "tokens_per_second": s.tokens_per_second, "speedup": s.tokens_per_second / plain,
                "split": {phase: s.seconds[phase] / spent for phase in s.seconds if phase != "prefill"},
                "wall_seconds": wall,
            })  # fmt: skip
    return figures


def lossless(device: torch.device, size: Size, limit: TimeLimit, dtype: torch.dtype = torch.bfloat16) -> list[dict]:
    """Chi-square p-values of three decoded tokens against enumeration, in 16-bit, planted fault included."""
    vocabulary, length, prompt = 8, 3, [1, 5, 2]
    models = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        config = LlamaConfig(
            vocab_size=vocabulary, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4
        )
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        for parameter in model.parameters():
            if parameter.ndim == 2:
                torch.nn.init.normal_(parameter, 0, 0.4)
        models.append(model.to(device, dtype).eval().requires_grad_(False))
    target, drafter = LoadedModel(models[0], None, "tiny"), CausalLM(models[1])
    texts = torch.tensor(list(itertools.product(range(vocabulary), repeat=length)), device=device)
    inputs = torch.cat([torch.tensor(prompt, device=device).expand(len(texts), -1), texts], dim=1)
    p = models[0](input_ids=inputs).logits[:, len(prompt) - 1 : -1].float().softmax(-1)
    expected = size.texts * p.gather(2, texts[..., None]).squeeze(-1).double().prod(1).cpu().numpy()
    powers = vocabulary ** np.arange(length)[::-1]
    figures = []
    for spec, fault in (
        ("kary:2x3 with-replacement rrs", False), ("kary:2x3 without-replacement rrs", False),
        ("kary:2x3 with-replacement kseq", False), ("kary:2x3 greedy greedy", False),
        ("kary:3x2 top-then-sample:1 convex-minorant", False), ("kary:2x3 without-replacement rrs", True),
    ):  # fmt: skip
        if not limit.allows(f"losslessness of {spec}" + (", planted fault" if fault else "")):
            continue
        method = Method.parse(spec)
        if fault:
            method = _Faulty(**vars(method))
        seen = np.zeros(vocabulary**length)
        for first in range(0, size.texts, 2000):
            seeds = range(first, min(first + 2000, size.texts))
            records = decode_batch(
                target, drafter, [prompt] * len(seeds), method, max_tokens=length + 1, eos=[], generators=seeds
            )
            for record in records:
                seen[np.dot(record.tokens[:length], powers)] += 1
        rare = expected < 5
        pair = [np.append(x[~rare], x[rare].sum()) for x in (seen, expected)]
        value = chisquare(pair[0], pair[1] * pair[0].sum() / pair[1].sum()).pvalue
        name = method.name + (", verified as if drawn with replacement (planted fault)" if fault else "")
        figures.append({"method": name, "dtype": str(dtype), "texts": size.texts, "p_value": float(value),
                        "as_it_should": bool((value < P_VALUE) if fault else (value > P_VALUE))})  # fmt: skip
    return figures


class _Faulty(Method):
    """Drafts without replacement, the verifier of i.i.d. drafts."""

    def law(self):
        from gpu.verification import recursive_rejection

        return recursive_rejection


def main(
    out: Annotated[Path, typer.Option(help="JSON file for the figures.")] = Path("self_check.json"),
    device: Annotated[str | None, typer.Option(help="cuda where there is one, else cpu.")] = None,
    small: Annotated[bool, typer.Option("--small", help="Tiny sizes: tests the script, measures nothing.")] = False,
) -> None:
    """Measure and check this machine's GPU; exit status 1 when a losslessness test does not come out as it should."""
    console = Console()
    where = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    size = SMALL if small else FULL
    if where.type == "cpu" and not small:
        raise SystemExit("self_check: no CUDA device here; --small runs the script on the CPU to test it")
    start = time.perf_counter()
    name = torch.cuda.get_device_name(where) if where.type == "cuda" else "CPU"
    results: dict = {"device": name, "torch": torch.__version__, "size": vars(size)}
    limit = TimeLimit(start + LAST_START)
    results["left_out"] = limit.left_out
    with torch.no_grad():
        results["copy_bytes_per_second"] = copy_bandwidth(where, size)
    for part, run in (("lossless", lossless), ("throughput", throughput), ("speed", speed)):
        with console.status(part), torch.no_grad():
            results[part] = run(where, size, limit)
        write_text(out, json.dumps({**results, "complete": False}, indent=1))
    results["seconds"] = time.perf_counter() - start
    if where.type == "cuda":
        results["peak_bytes"] = torch.cuda.max_memory_allocated(where)
    write_text(out, json.dumps({**results, "complete": True}, indent=1))
    for table in _tables(results):
        console.print(table)
    for what in limit.left_out:
        console.print(f"left out, for it would have started after {LAST_START:.0f} s: {what}")
    console.print(f"{name}, {results['seconds']:.0f} s; figures in {out}")
    if not all(figure["as_it_should"] for figure in results["lossless"]):
        raise SystemExit(1)


def _tables(results: dict) -> list[Table]:
    copy = results["copy_bytes_per_second"]
    first = Table("", "positions/s", "GB/s of p and q", "of a copy")
    for f in results["throughput"]:
        rate = f["bytes_per_second"]
        first.add_row(f["what"], f"{f['positions_per_second']:,.0f}", f"{rate / 1e9:.1f}", f"{rate / copy:.0%}")
    second = Table("method", "noise", "batch", "acceptance", "block eff.", "tokens/s", "speed-up", SPLIT)
    for f in results["speed"]:
        split = "/".join(f"{100 * part:.0f}" for part in f["split"].values())
        second.add_row(
            f["method"], f["drafter"].split()[-1], str(f["batch"]), f"{f['acceptance']:.3f}",
            f"{f['block_efficiency']:.2f}", f"{f['tokens_per_second']:.1f}", f"{f['speedup']:.2f}", split,
        )  # fmt: skip
    third = Table("losslessness in bfloat16", "p-value", "as it should")
    for f in results["lossless"]:
        third.add_row(f["method"], f"{f['p_value']:.2g}", "yes" if f["as_it_should"] else "NO")
    return [first, second, third]


if __name__ == "__main__":
    typer.run(main)

"""Drafters side by side on held-out text: acceptance by kind of text, cost of a draft token, both in one picture.

    python -m gpu.drafters.compare FOLDER SPEC SPEC ...

writes FOLDER/acceptance.json and FOLDER/acceptance.png for the bundled target, on one thread. The text is what the
target itself writes after the held-out prompts of `gpu.training_prompts` at T = 1, so p and q are compared where
decoding takes them. A run that was stopped goes on when started again.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from matplotlib.figure import Figure
from rich.progress import Progress

from gpu import drafters, training_data
from gpu.models import LoadedModel, load_bundled
from gpu.replay import replay
from gpu.train_drafter import JUDGE_EVERY, rates_by_kind
from gpu.training_data import Corpus
from gpu.training_prompts import held_out_prompts
from mdsd_theory.files import read_json, write_text, written_whole

DRAFTS = 4


def compare(target: LoadedModel, spec: str, held: Corpus, kinds: list[str], own_pass: float) -> dict:
    """A drafter's record: its spec and name, alpha and alpha*_4 by kind and averaged over the kinds, its cost in target
    passes of one token (own_pass seconds)."""
    drafter = drafters.make(spec, target)
    found = replay(drafter, target, held, DRAFTS, JUDGE_EVERY)
    own = {"drafter": spec, "name": drafter.name, "cost": round(found.seconds / own_pass, 4)}
    return own | rates_by_kind([(found.alpha, found.alpha_star)], kinds)["depth 1"]


def _target_seconds(target: LoadedModel, held: Corpus) -> float:
    """One pass of the target over one token, measured as a drafter's: the target drafting for itself."""
    from gpu.drafters.causal_lm import CausalLM

    tokens, features, start = held.split()[0]
    end = start + 24
    few = Corpus(tokens[:end], features[:end], torch.tensor([end]), torch.tensor([start]))
    return replay(CausalLM(target.model), target, few, 1).seconds


def table(records: list) -> str:
    """The records in Markdown."""
    kinds = [key for key in records[0] if key not in ("drafter", "name", "mean", "cost")]
    lines = [
        "| drafter | α | α*₄ | " + " | ".join(f"{kind} α" for kind in kinds) + " | cost |",
        "|---" * (len(kinds) + 4) + "|",
    ]
    for r in records:
        rates = [r["mean"]["alpha"], r["mean"]["alpha_star"], *(r[kind]["alpha"] for kind in kinds)]
        label = r["drafter"].split("/")[-1].removesuffix(".safetensors")
        lines.append(f"| {label} | " + " | ".join(f"{rate:.3f}" for rate in rates) + f" | {r['cost']:.3f} |")
    return "\n".join(lines)


def draw(records: list, path: Path) -> None:
    """The picture: alpha (n = 1) and alpha*_4 against cost, joined for each drafter."""
    figure = Figure(figsize=(8, 4.6), layout="constrained")
    axes = figure.add_subplot(xscale="log")
    costs = [r["cost"] for r in records]
    for place, record in enumerate(sorted(records, key=lambda record: record["cost"])):
        name = record["drafter"].removesuffix(".safetensors").replace("early-exit:", "exit ")
        name = name.removeprefix("lens:").removeprefix("layers:")
        rates = record["mean"]["alpha"], record["mean"]["alpha_star"]
        axes.plot([record["cost"]] * 2, rates, color="0.8", zorder=0)
        side = {"ha": "left", "xytext": (6, -2)} if place % 2 == 0 else {"ha": "right", "xytext": (-6, -2)}
        axes.annotate(name, (record["cost"], rates[1]), textcoords="offset points", fontsize=8, **side)
    for key, marker, label in (("alpha", "o", "α, one draft"), ("alpha_star", "^", "α*, four drafts")):
        axes.scatter(costs, [r["mean"][key] for r in records], marker=marker, label=label)
    axes.set(xlabel="cost of one draft token, in target passes of one token", ylabel="acceptance, T = 1")
    axes.set(xlim=(min(costs) / 1.5, max(costs) * 2), ylim=(0, 0.75))
    axes.legend(loc="upper left")
    with written_whole(path) as temporary:
        figure.savefig(temporary, dpi=110)


def main(folder: Path, specs: list[str]) -> None:
    """Judge on all held-out texts at every JUDGE_EVERY-th token, as cards do."""
    torch.set_num_threads(1)
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / "records.json"
    found = read_json(kept) if kept.exists() else {}
    with Progress() as progress:
        target = load_bundled(device="cpu")
        cached = folder / "held_out.safetensors"
        if not cached.exists():
            training_data.held_out(target, 0, progress).save(cached)
        held, kinds = Corpus.load(cached), [prompt.kind for prompt in held_out_prompts()]
        own_pass = _target_seconds(target, held)
        for spec in progress.track(specs, description="drafters"):
            if spec not in found:
                found[spec] = compare(target, spec, held, kinds, own_pass)
                write_text(kept, json.dumps(found))
    records = [found[spec] for spec in specs]
    result = {"texts": len(held), "stride": JUDGE_EVERY, "drafts": DRAFTS, "records": records}
    write_text(folder / "acceptance.json", json.dumps(result, indent=1) + "\n")
    kept.unlink()
    draw(records, folder / "acceptance.png")
    print(table(records))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])

"""Drafters side by side on held-out text: acceptance by kind of text, cost of a draft token, both in one picture.

    python -m gpu.drafters.compare FOLDER SPEC SPEC ...

writes FOLDER/acceptance.json and FOLDER/acceptance.png for the bundled target. The text is what the target itself
writes after the held-out prompts of `gpu.training_prompts` at T = 1, so p and q are compared where decoding takes them.
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
from gpu.training_data import Corpus
from gpu.training_prompts import held_out_prompts
from mdsd_theory.files import write_text, written_whole

DRAFTS = 4


def compare(
    target: LoadedModel, specs: list[str], held: Corpus, kinds: list[str], stride: int, progress: Progress
) -> list:
    """One record per drafter: its spec and name, alpha and alpha*_4 by kind and averaged over the kinds, its cost in
    target passes of one token."""
    own_pass = _target_seconds(target, held)
    records = []
    for spec in progress.track(specs, description="drafters"):
        drafter = drafters.make(spec, target)
        found = replay(drafter, target, held, DRAFTS, stride)
        by_kind = {
            kind: {name: round(values[[k == kind for k in kinds]].mean().item(), 4) for name, values in
                   (("alpha", found.alpha), ("alpha_star", found.alpha_star))}
            for kind in dict.fromkeys(kinds)
        }  # fmt: skip
        mean = {
            name: round(sum(r[name] for r in by_kind.values()) / len(by_kind), 4) for name in ("alpha", "alpha_star")
        }
        records.append({"drafter": spec, "name": drafter.name, "mean": mean, "cost": round(found.seconds / own_pass, 4)}
                       | by_kind)  # fmt: skip
    return records


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
        lines.append(f"| {label} | " + " | ".join(f"{rate:.3f}" for rate in rates) + f" | {r['cost']:.2f} |")
    return "\n".join(lines)


def draw(records: list, path: Path) -> None:
    """The picture: alpha (n = 1) and alpha*_4 against cost."""
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.add_subplot(xscale="log")
    for key, marker, label in (("alpha", "o", "α, one draft"), ("alpha_star", "^", "α*, four drafts")):
        axes.scatter([r["cost"] for r in records], [r["mean"][key] for r in records], marker=marker, label=label)
    for i, record in enumerate(records):
        axes.annotate(record["drafter"].replace("early-exit", "exit").split("/")[-1].removesuffix(".safetensors"),
                      (record["cost"], record["mean"]["alpha"]), fontsize=7, xytext=(3, 5 if i % 2 else -9),
                      textcoords="offset points")  # fmt: skip
    axes.set(
        xlabel="cost of one draft token, in target passes of one token", ylabel="acceptance, T = 1", ylim=(0, None)
    )
    axes.legend()
    with written_whole(path) as temporary:
        figure.savefig(temporary, dpi=110)


def main(folder: Path, specs: list[str], texts: int = 3, stride: int = 3) -> None:
    """Judge on the first `texts` held-out texts of each kind, at every stride-th token."""
    folder.mkdir(parents=True, exist_ok=True)
    with Progress() as progress:
        target = load_bundled(device="cpu")
        cached = folder / "held_out.safetensors"
        if not cached.exists():
            training_data.held_out(target, 0, progress).save(cached)
        kinds = [prompt.kind for prompt in held_out_prompts()]
        chosen = [i for i, kind in enumerate(kinds) if kinds[:i].count(kind) < texts]
        held = training_data.select(Corpus.load(cached), chosen)
        records = compare(target, specs, held, [kinds[i] for i in chosen], stride, progress)
    found = {"texts": texts, "stride": stride, "drafts": DRAFTS, "records": records}
    write_text(folder / "acceptance.json", json.dumps(found, indent=1) + "\n")
    draw(records, folder / "acceptance.png")
    print(table(records))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])

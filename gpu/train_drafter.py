"""The job behind `mdsd train-drafter`: collect text, train, judge on held-out text, write the drafter and its card.

Everything expensive is kept in a work folder beside the output as soon as it is made (pieces of text with their
features, checkpoints, the time spent), so a run that is killed and started again goes on where it was and ends with
the same file.
"""

from __future__ import annotations

import copy
import json
import shutil
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from rich.progress import Progress
from safetensors.torch import save_file

from gpu import training, training_data
from gpu.drafters import eagle, lens
from gpu.drafters.early_exit import cut
from gpu.models import LoadedModel
from gpu.training_data import Corpus
from gpu.training_prompts import HELD_OUT, KINDS
from mdsd_theory.files import read_json, write_text, written_whole

TEXT_SHARE = 0.4  # of the time, for making text; the rest trains
MOST_PIECES = 64
PIECE_SECONDS = 48  # CPU time of a piece of text where it was measured: two cores with matrix units, the bundled target
SAVE_EVERY = 60.0  # seconds between checkpoints
FILE_PIECE = 160  # tokens in a text cut from a file
JUDGE_EVERY = 3  # the card judges every third position of the held-out texts


@dataclass(frozen=True)
class Settings:
    """What decides the result; a work folder belongs to one of these."""

    target: str
    kind: str
    data: tuple[str, ...]
    minutes: float
    seed: int
    layers: int
    loss: str
    n: int


class Clock:
    """Time spent so far over all runs in a work folder: CPU time of the process, or wall time when a GPU works."""

    def __init__(self, work: Path, device: torch.device) -> None:
        self.file = work / "seconds.json"
        self._now = time.process_time if device.type == "cpu" else time.monotonic
        self._before = read_json(self.file) if self.file.exists() else 0.0
        self._started = self._now()

    @property
    def seconds(self) -> float:
        return self._before + self._now() - self._started

    def save(self) -> None:
        write_text(self.file, json.dumps(self.seconds))


def run(target: LoadedModel, settings: Settings, out: Path, command: str, progress: Progress) -> dict:
    """Train and write `out` (safetensors) and its card (the same name, .json); returns the card.

    Raises ValueError when the work folder is another run's, or the data hold no text.
    """
    work = out.with_suffix(".work")
    work.mkdir(parents=True, exist_ok=True)
    _claim(work, settings)
    clock = Clock(work, target.model.device)
    if settings.kind == "lens":
        tensors, metadata, rates, size = _lens(target, settings, work, clock, progress)
    else:
        tensors, metadata, rates, size = _distil(target, settings, work, clock, progress)
    card = {
        **asdict(settings),
        "command": command,
        "seconds": round(clock.seconds),
        "seconds_are": "CPU" if target.model.device.type == "cpu" else "wall",
        **size,
        "held_out": rates,
    }
    with written_whole(out) as temporary:
        save_file(tensors, temporary, metadata)
    write_text(out.with_suffix(".json"), json.dumps(card, indent=1) + "\n")
    shutil.rmtree(work)
    return card


def _claim(work: Path, settings: Settings) -> None:
    """Raises ValueError when the folder holds what a run with other settings has made."""
    file, mine = work / "settings.json", json.loads(json.dumps(asdict(settings)))
    if not file.exists() or list(work.iterdir()) == [file]:
        write_text(file, json.dumps(mine, indent=1))
    elif (found := read_json(file)) != mine:
        differing = [name for name in mine if found.get(name) != mine[name]]
        raise ValueError(f"{work} is a run with another {', '.join(differing)}; delete it, or name another output")


def texts(target: LoadedModel, settings: Settings, work: Path, clock: Clock, progress: Progress) -> Iterator[Corpus]:
    """The training text, piece by piece, until its share of the time is over.

    A lens must come out the same bit for bit, so its number of pieces follows from --minutes alone, unless the machine
    is so slow that they fill all of it.
    """
    limit, most = TEXT_SHARE * settings.minutes * 60, MOST_PIECES
    if settings.kind == "lens":
        limit, most = settings.minutes * 60, min(most, max(1, round(limit / PIECE_SECONDS)))
    if settings.data != ("self",):
        yield _halves(_file_corpus(target, settings, work, progress))[0]
        return
    fast = training.fast_dtype(target.model.device)
    quick = target
    for index in range(most):
        file = work / f"text-{index:04d}.safetensors"
        if not file.exists():
            if clock.seconds > limit and index > 0:
                return
            if quick is target and target.model.dtype != fast:
                quick = replace(target, model=copy.deepcopy(target.model).to(fast))
            training_data.self_sampled(quick, index, settings.seed, progress).save(file)
            clock.save()
        yield Corpus.load(file)


def held_out(target: LoadedModel, settings: Settings, work: Path, progress: Progress) -> tuple[Corpus, list[str]]:
    """Held-out texts, and the kind of each."""
    if settings.data != ("self",):
        held = _halves(_file_corpus(target, settings, work, progress))[1]
        return held, ["file"] * len(held)
    file = work / "held_out.safetensors"
    if not file.exists():
        training_data.held_out(target, settings.seed, progress).save(file)
    return Corpus.load(file), [kind for kind in KINDS for _ in HELD_OUT[kind]]


def _file_corpus(target: LoadedModel, settings: Settings, work: Path, progress: Progress) -> Corpus:
    file = work / "text.safetensors"
    if not file.exists():
        limit = int(settings.minutes * 60 * 200)  # tokens: about a fifth of the time on two CPU cores
        paths = [Path(name) for name in settings.data]
        training_data.read(target, paths, FILE_PIECE, limit, progress).save(file)
    return Corpus.load(file)


def _halves(corpus: Corpus) -> tuple[Corpus, Corpus]:
    """Training and held-out texts: every tenth is held out.

    Raises ValueError when there are too few to hold one out.
    """
    if len(corpus) < 2:
        raise ValueError(f"the data have only {int(corpus.lengths.sum())} tokens; give at least {2 * FILE_PIECE}")
    texts = corpus.split()
    held = [i for i in range(len(texts)) if i % 10 == min(9, len(texts) - 1)]
    return training_data.select(corpus, [i for i in range(len(texts)) if i not in set(held)]), training_data.select(
        corpus, held
    )


def _lens(target: LoadedModel, settings: Settings, work: Path, clock: Clock, progress: Progress) -> tuple:
    short = lens.before_norm(target.model, settings.layers)
    ridge, count = lens.Ridge(target.model.config.get_text_config(decoder=True).hidden_size), 0
    held, kinds = held_out(target, settings, work, progress)
    for corpus in texts(target, settings, work, clock, progress):
        for tokens, features, start in corpus.split():
            ridge.add(lens.hidden(short, tokens)[start:], features[start:].to(target.model.device))
            count += len(tokens) - start
    matrix = ridge.solve()
    student = training.LayersStudent(lens.with_lens(target.model, settings.layers, matrix))
    rates = rates_by_kind(training.judge(student, target, held, settings.n, 1, JUDGE_EVERY), kinds)
    return lens.packed(matrix, settings.layers), {"kind": "lens"}, rates, {"trained_tokens": count}


def _distil(target: LoadedModel, settings: Settings, work: Path, clock: Clock, progress: Progress) -> tuple:
    torch.manual_seed(settings.seed)
    if settings.kind == "eagle":
        head = eagle.EagleHead(_eagle_config(target)).to(target.model.device)
        student, plan = training.EagleStudent(head, target.model.get_input_embeddings()), training.Plan(depth=2)
    else:
        student, plan = training.LayersStudent(lens.own_copy(cut(target.model, settings.layers))), training.Plan()
        for part in (student.model.base_model.layers, student.model.base_model.norm):  # the rest is the target's
            part.float().requires_grad_(True)
    held, kinds = held_out(target, settings, work, progress)
    corpus = training_data.join(list(texts(target, settings, work, clock, progress)))
    if settings.kind == "eagle":
        training.start_from_ridge(head, target.model.get_input_embeddings().weight.detach(), corpus)
    plan = replace(plan, seed=settings.seed, loss=settings.loss, n=settings.n)
    trainer = training.Trainer(student, target, corpus, 1, plan)
    checkpoint = work / "checkpoint.pt"
    if checkpoint.exists():
        trainer.resume(checkpoint)
    else:
        trainer.steps = _affordable(trainer, settings.minutes * 60 - clock.seconds, clock)
        trainer.save(checkpoint)
    task, saved = progress.add_task("training", total=trainer.steps, completed=trainer.step), clock.seconds
    while trainer.step < trainer.steps:
        loss = trainer.advance()
        progress.advance(task)
        if clock.seconds - saved > SAVE_EVERY:
            trainer.save(checkpoint)
            clock.save()
            saved = clock.seconds
            alpha, star = training.judge(student, target, held, settings.n, 1, stride=12)[0]
            words = f"training: loss {loss:.3f}, held-out α {alpha.mean():.3f}, α*_{settings.n} {star.mean():.3f}"
            progress.update(task, description=words)
            if not progress.console.is_terminal:
                progress.console.print(f"step {trainer.step}/{trainer.steps} {clock.seconds:.0f} s {words}")
    trainer.save(checkpoint)
    clock.save()
    tensors, metadata = (
        eagle.packed(student.head) if settings.kind == "eagle" else lens.packed_layers(student.model, settings.layers)
    )
    depth = 3 if settings.kind == "eagle" else 1
    rates = rates_by_kind(training.judge(student, target, held, settings.n, depth, JUDGE_EVERY), kinds)
    size = {"trained_tokens": int((corpus.lengths - corpus.starts).sum()), "steps": trainer.steps}
    return tensors, metadata, rates, size


def _affordable(trainer: training.Trainer, seconds: float, clock: Clock) -> int:
    """How many steps the time left allows, from a throw-away copy's steps at places spread evenly over the schedule:
    the loss and the depth, and with them a step's cost, change along it."""
    probe = copy.copy(trainer)
    probe.student = copy.deepcopy(trainer.student)
    parameters = [p for p in probe.student.parameters() if p.requires_grad]
    probe.optimisers = [torch.optim.Muon([p for p in parameters if p.ndim == 2], lr=0.0)]
    probe.steps, places = 1 << 20, 10
    start = clock.seconds
    for place in range(places):
        probe.step = int((place + 0.5) / places * probe.steps)
        probe.advance()
    return max(1, int(0.93 * seconds / ((clock.seconds - start) / places)))  # the rest is for judging and saving


def _eagle_config(target: LoadedModel) -> eagle.EagleConfig:
    """A layer shaped like the target's, with plain rotary positions, whatever the target's own architecture."""
    config = target.model.config.get_text_config(decoder=True)
    theta = (getattr(config, "rope_parameters", None) or {}).get("rope_theta", 10000.0)
    values = {
        "hidden_size": config.hidden_size,
        "intermediate_size": config.hidden_size * 10 // 3,
        "num_attention_heads": config.num_attention_heads,
        "num_key_value_heads": getattr(config, "num_key_value_heads", None) or config.num_attention_heads,
        "rms_norm_eps": getattr(config, "rms_norm_eps", 1e-6),
        "rope_theta": float(theta),
    }
    return eagle.EagleConfig.read(values, f"target {target.name}")


def rates_by_kind(per_depth: list[tuple], kinds: list[str]) -> dict:
    """Held-out figures: alpha and alpha*_n by kind (means over that kind's texts) and over the kinds, per depth."""
    found = {}
    for level, (alpha, star) in enumerate(per_depth):
        of = {
            kind: {
                name: round(
                    sum(v.item() for v, k in zip(values, kinds, strict=True) if k == kind) / kinds.count(kind), 4
                )
                for name, values in (("alpha", alpha), ("alpha_star", star))
            }
            for kind in dict.fromkeys(kinds)
        }
        mean = {name: round(sum(x[name] for x in of.values()) / len(of), 4) for name in ("alpha", "alpha_star")}
        found[f"depth {level + 1}"] = {"mean": mean, **of}
    return found

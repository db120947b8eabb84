"""Which loss makes the better drafter in the same time: EAGLE heads trained side by side on one text.

    python -m gpu.drafters.compare_losses FOLDER MINUTES LOSS:N:SEED LOSS:N:SEED ...

Every run is `mdsd train-drafter --data self` for the bundled target and differs from the others in --loss, --n and
--seed alone: the text, sampled once, and the time spent on it are put into each run's work folder. As many runs at a
time as there are cores, one core and one thread each, so that both losses see the same load. The heads are then judged
as their cards are, text by text; FOLDER/losses.json has the figures, differences paired by text and their intervals. A
comparison that was stopped goes on when started again.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from mdsd_theory.files import read_json, write_text

DEPTH = 3
CONFIDENCE = 0.95


class Run(NamedTuple):
    loss: str
    n: int
    seed: int

    @property
    def name(self) -> str:
        return f"{self.loss}-{self.n}-seed{self.seed}"


def parse(text: str) -> Run:
    """Raises ValueError unless it reads LOSS:N:SEED."""
    try:
        loss, n, seed = text.split(":")
        return Run(loss, int(n), int(seed))
    except ValueError as error:
        raise ValueError(f"{text!r} is not LOSS:N:SEED, as in acceptance:4:0") from error


def sample_text(folder: Path, minutes: float) -> None:
    """The text of all runs in folder/text, and the CPU seconds it took."""
    from gpu import train_drafter as job
    from gpu.models import load_target

    text = folder / "text"
    text.mkdir(parents=True, exist_ok=True)
    target = load_target(device="cpu")
    clock = job.Clock(text, target.model.device)
    settings = job.Settings(target.name, "eagle", ("self",), minutes, 0, 2, "cross-entropy", 4)
    with Progress() as progress:
        job.held_out(target, settings, text, progress)
        for _ in job.texts(target, settings, text, clock, progress):
            pass


def train(folder: Path, minutes: float, runs: list[Run]) -> None:
    """Those runs that are not finished, side by side."""
    children = []
    for core, run in zip(sorted(os.sched_getaffinity(0)), runs, strict=False):
        out, work = folder / f"{run.name}.safetensors", folder / f"{run.name}.work"
        if out.exists():
            continue
        if not work.exists():
            shutil.copytree(folder / "text", work, copy_function=os.link)
        command = [sys.executable, "-m", "mdsd_theory.cli", "train-drafter", "--kind", "eagle", "--data", "self"]
        command += ["--minutes", f"{minutes:g}", "--loss", run.loss, "--n", str(run.n), "--seed", str(run.seed)]
        log = (folder / f"{run.name}.log").open("a")
        environment = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        child = subprocess.Popen([*command, "--out", str(out)], env=environment, stdout=log, stderr=log)
        os.sched_setaffinity(child.pid, {core})
        children.append((run, child))
    failed = [run.name for run, child in children if child.wait()]
    if failed:
        raise RuntimeError(f"{', '.join(failed)} failed; see the .log files in {folder}")


def judge(folder: Path, runs: list[Run]) -> list[dict]:
    """Per run: what its card says of its size, and alpha and alpha*_4 of every held-out text by depth."""
    from gpu import train_drafter as job
    from gpu import training
    from gpu.drafters import eagle
    from gpu.models import load_target
    from gpu.training_data import Corpus

    target = load_target(device="cpu")
    held = Corpus.load(folder / "text" / "held_out.safetensors")
    before = read_json(folder / "text" / "seconds.json")
    records = []
    for run in runs:
        out = folder / f"{run.name}.safetensors"
        card = read_json(out.with_suffix(".json"))
        student = training.EagleStudent(eagle.load(out, target).head, target.model.get_input_embeddings())
        found = training.judge(student, target, held, 4, DEPTH, job.JUDGE_EVERY)
        rates = {
            f"depth {level + 1}": {
                name: [round(x, 4) for x in values.tolist()]
                for name, values in zip(("alpha", "alpha_star"), found[level], strict=True)
            }
            for level in range(DEPTH)
        }
        records.append(run._asdict() | {"steps": card["steps"], "tokens": card["trained_tokens"],
                       "text_seconds": round(before), "seconds": card["seconds"], "texts": rates})  # fmt: skip
    return records


def differences(records: list[dict]) -> list[dict]:
    """Every other run minus the cross-entropy run of its seed (of the first seed where its own has none): means over
    the texts with their Student t intervals, by depth; and the seeds of cross-entropy against each other."""
    from scipy.stats import ttest_rel

    plain = {record["seed"]: record for record in records if record["loss"] == "cross-entropy"}
    first = next(iter(plain.values()))
    found = []
    for record in records:
        base = first if record["loss"] == "cross-entropy" else plain.get(record["seed"], first)
        if record is base:
            continue
        line = {"run": [record[key] for key in Run._fields], "minus": [base[key] for key in Run._fields]}
        for depth, rates in record["texts"].items():
            line[depth] = {}
            for name, values in rates.items():
                test = ttest_rel(values, base["texts"][depth][name])
                low, high = test.confidence_interval(CONFIDENCE)
                mean = sum(a - b for a, b in zip(values, base["texts"][depth][name], strict=True)) / len(values)
                line[depth][name] = {k: round(float(v), 4) for k, v in (("mean", mean), ("low", low), ("high", high))}
        found.append(line)
    return found


def main(folder: Path, minutes: float, runs: list[Run]) -> None:
    """All of it. Raises ValueError when no run is there to compare with."""
    if not any(run.loss == "cross-entropy" for run in runs):
        raise ValueError("give at least one cross-entropy run, as in cross-entropy:4:0")
    if not (folder / "text" / "seconds.json").exists():
        sample_text(folder, minutes)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns) as progress:
        task = progress.add_task("")
        cores = len(os.sched_getaffinity(0))
        for group in (runs[k : k + cores] for k in range(0, len(runs), cores)):
            progress.update(task, description="training " + ", ".join(run.name for run in group))
            train(folder, minutes, group)
        progress.update(task, description="judging")
        records = judge(folder, runs)
    result = {
        "minutes": minutes,
        "drafts": 4,
        "confidence": CONFIDENCE,
        "runs": records,
        "differences": differences(records),
    }
    write_text(folder / "losses.json", json.dumps(result) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]), [parse(text) for text in sys.argv[3:]])

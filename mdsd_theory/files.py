"""Files that are there whole or not at all, and JSON that is JSON or refused by name."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """A temporary name beside `path` to write to, of the same suffix; it becomes `path` when the block ends.

    When the block raises, the temporary file is removed and what was at `path` stays. A process that is killed inside
    leaves `NAME.part.SUFFIX`, which nobody reads and the next writer of `path` overwrites.
    """
    temporary = path.with_name(f"{path.stem}.part{path.suffix}")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """The text as UTF-8 in one whole file."""
    with written_whole(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def read_text(path: Path, what: str = "") -> str:
    """What a UTF-8 file holds, less a byte order mark. OSError when it cannot be read, ValueError (naming `what` and
    path) when it is not UTF-8."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{what} {path} is not UTF-8 text: {error}".lstrip()) from None


def read_json(path: Path, what: str = "") -> Any:
    """What a UTF-8 JSON file holds. OSError when it cannot be read, ValueError (naming `what` and path) for no JSON."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # not UTF-8, not JSON, nested too deep
        raise ValueError(f"{what} {path} is not readable JSON: {error}".lstrip()) from None

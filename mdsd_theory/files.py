"""Files that are there whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


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

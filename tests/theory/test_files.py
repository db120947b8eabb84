"""A file appears whole or not at all."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mdsd_theory.files import read_json, write_text, written_whole


def test_what_was_there_stays_until_all_is_written(tmp_path):
    file = tmp_path / "table.csv"
    write_text(file, "old é\n")
    with written_whole(file) as temporary:
        assert (temporary.parent, temporary.suffix) == (tmp_path, ".csv")
        temporary.write_text("new\n")
        assert file.read_text(encoding="utf-8") == "old é\n"
    assert file.read_text() == "new\n"
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_leaves_the_old_file_alone(tmp_path, error):
    file = tmp_path / "table"
    write_text(file, "old")

    def interrupted():
        with written_whole(file) as temporary:
            temporary.write_text("half")
            raise error

    with pytest.raises(error):
        interrupted()
    assert list(tmp_path.iterdir()) == [file]
    assert file.read_text() == "old"


def test_a_kill_leaves_nothing_under_the_name_and_the_next_writer_cleans_up(tmp_path):
    file = tmp_path / "table.csv"
    code = f"""
from pathlib import Path
import time
from mdsd_theory.files import written_whole
with written_whole(Path({str(file)!r})) as temporary:
    temporary.write_text("half")
    print("ready", flush=True)
    time.sleep(60)
"""
    root = Path(__file__).parents[2]
    process = subprocess.Popen([sys.executable, "-c", code], cwd=root, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not file.exists()
    write_text(file, "whole")
    assert list(tmp_path.iterdir()) == [file]
    assert file.read_text() == "whole"


@pytest.mark.parametrize("content", [b"", b"{", b"[" * 100_000, b"\xff\xfe", b"[1] 2"])
def test_what_is_no_json_is_refused_by_name(tmp_path, content):
    file = tmp_path / "settings.json"
    file.write_bytes(content)
    with pytest.raises(ValueError, match=r"tree file .*settings\.json is not readable JSON"):
        read_json(file, "tree file")
    file.write_text('{"é": [1, 2.5]}', encoding="utf-8")
    assert read_json(file) == {"é": [1, 2.5]}

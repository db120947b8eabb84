"""Models by Hub id, from a Hub of our own on this machine: the same requests, answered from a folder."""

import hashlib
import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import tokenizers
import transformers

from tests.gpu.tiny_models import tiny_model

WORDS = ["<unk>", "</s>", *(f"w{i}" for i in range(30))]


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    """Two repositories with one tokenizer behind an address; yields the address."""
    root = tmp_path_factory.mktemp("hub")
    model = tokenizers.models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<unk>")
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    wrapped = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", eos_token="</s>")
    for seed, name in enumerate(("someone/target", "someone/draft")):
        tiny_model("llama" if seed == 0 else "qwen2", len(WORDS), seed).save_pretrained(root / name)
        wrapped.save_pretrained(root / name)
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("OurHub", (_Hub,), {"root": root}))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


class _Hub(BaseHTTPRequestHandler):
    """/owner/name/resolve/revision/file, and what is known of a repository: /api/models/owner/name."""

    root: Path
    commit = "0" * 40

    def do_HEAD(self):
        self.answer(body=False)

    def do_GET(self):
        self.answer(body=True)

    def answer(self, body):
        parts = self.path.split("?")[0].removeprefix("/api/models").strip("/").split("/")
        folder = self.root / "/".join(parts[:2])
        if len(parts) < 2 or not folder.is_dir():
            return self.refuse("RepoNotFound")
        if self.path.startswith("/api/models"):
            if parts[2:3] == ["tree"]:
                if len(parts) > 4:  # no folders inside
                    return self.refuse("EntryNotFound")
                told = [{"type": "file", "path": x.name, "size": x.stat().st_size, "oid": ""} for x in folder.iterdir()]
            else:
                told = {"id": "/".join(parts[:2]), "sha": self.commit, "tags": [],
                        "siblings": [{"rfilename": x.name} for x in folder.iterdir()]}  # fmt: skip
            data = json.dumps(told).encode()
        elif parts[2] == "resolve" and (folder / parts[-1]).is_file():
            data = (folder / parts[-1]).read_bytes()
        else:
            return self.refuse("EntryNotFound")
        self.send_response(200)
        self.send_header("ETag", f'"{hashlib.sha256(data).hexdigest()}"')
        self.send_header("X-Repo-Commit", self.commit)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if body:
            self.wfile.write(data)

    def refuse(self, why):
        self.send_response(404)
        self.send_header("X-Error-Code", why)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


def mdsd(hub, home, *arguments):
    environment = {**os.environ, "HF_ENDPOINT": hub, "HF_HOME": str(home), "HF_HUB_DISABLE_XET": "1"}
    environment.pop("HF_HUB_OFFLINE", None)
    return subprocess.run(
        [sys.executable, "-c", "from mdsd_theory.cli import main; main()", *arguments],
        capture_output=True, text=True, env=environment, cwd=Path(__file__).parents[2],
    )  # fmt: skip


def test_decoding_with_two_models_by_id(hub, tmp_path):
    run = mdsd(
        hub, tmp_path, "decode", "--target", "someone/target", "--draft", "someone/draft", "--prompt", "w1 w2 w3",
        "--max-tokens", "8", "--raw", "--tree", "kary:2x2", "--seed", "1",
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert "block efficiency" in run.stdout + run.stderr
    cached = {folder.name for folder in (tmp_path / "hub").iterdir() if folder.name.startswith("models--")}
    assert cached == {"models--someone--target", "models--someone--draft"}


def test_an_id_that_is_nobodys(hub, tmp_path):
    run = mdsd(hub, tmp_path, "decode", "--target", "someone/nothing", "--draft", "someone/draft", "--prompt", "w1")
    assert run.returncode == 2
    assert "someone/nothing" in run.stderr
    assert "Traceback" not in run.stderr
    assert len(run.stderr.strip().splitlines()) == 1

"""A llama.cpp server as a process, and direct questions to it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gateway.testing.ports import free_ports
from tests.polling import until_blocking

PROGRAM = Path(__file__).with_name("serve_llamacpp.py")

Document = dict[str, Any]


class LlamaServer:
    """One server."""

    def __init__(self, port: int, process: subprocess.Popen[bytes], model: Path) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.port = port
        self.process = process
        self.model = str(model)  # its name of the model

    def ask(self, path: str, document: Document | None = None) -> Any:
        """The JSON of an answer."""
        data = None if document is None else json.dumps(document).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60.0) as answer:
            return json.loads(answer.read())

    @property
    def busy(self) -> int:
        """How many slots answer now."""
        return sum(slot["is_processing"] for slot in self.ask("/slots"))

    @property
    def waiting(self) -> int:
        """How many calls wait for a slot."""
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=60.0) as answer:
            lines = answer.read().decode().splitlines()
        return int(next(float(line.split()[1]) for line in lines if line.startswith("llamacpp:requests_deferred ")))

    def status(self, path: str) -> int:
        """The status of an answer; 0 without one."""
        try:
            with urllib.request.urlopen(self.url + path, timeout=60.0) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0

    def kill(self) -> None:
        """End it at once."""
        self.process.kill()
        self.process.wait()


@contextmanager
def llama_server(model: Path, *more: str, context: int = 8192, slots: int = 4, port: int = 0) -> Iterator[LlamaServer]:
    """Serve the model; `context` tokens are divided over the slots. `more`: "embeddings"."""
    with _process(model, port or free_ports(1)[0], str(context), str(slots), *more) as server:
        assert server.process.stdout is not None
        if not server.process.stdout.readline():  # its address, once it answers
            raise RuntimeError("llama.cpp does not start")
        yield server


@contextmanager
def loading_server(folder: Path) -> Iterator[LlamaServer]:
    """A server that loads its model as long as the context lasts: the file is a pipe, and nothing comes out of it."""
    model = folder / "never.gguf"
    os.mkfifo(model)
    with _process(model, free_ports(1)[0], "512", "1") as server:
        until_blocking(lambda: server.status("/health") == 503)
        yield server


@contextmanager
def _process(model: Path, port: int, *words: str) -> Iterator[LlamaServer]:
    command = [sys.executable, "-P", str(PROGRAM), str(model), str(port), *words]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        server = LlamaServer(port, process, model)
        try:
            yield server
        finally:
            server.kill()

"""A llama.cpp server as a process, and direct questions to it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gateway.testing.ports import free_ports
from tests.polling import until_blocking

from .model_server import ModelServer

PROGRAM = Path(__file__).with_name("serve_llamacpp.py")


class LlamaServer(ModelServer):
    """One server."""

    def __init__(self, port: int, process: subprocess.Popen[bytes], model: Path) -> None:
        super().__init__(port, str(model))
        self.process = process

    @property
    def busy(self) -> int:
        """How many slots answer now."""
        return sum(slot["is_processing"] for slot in self.ask("/slots"))

    @property
    def waiting(self) -> int:
        """How many calls wait for a slot."""
        return int(self.metric("llamacpp:requests_deferred "))

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

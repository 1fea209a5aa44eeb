"""A llama.cpp server as a process, and direct questions to it."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gateway.testing.ports import free_ports

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

    def kill(self) -> None:
        """End it at once."""
        self.process.kill()
        self.process.wait()


@contextmanager
def llama_server(model: Path, *more: str, context: int = 8192, slots: int = 4, port: int = 0) -> Iterator[LlamaServer]:
    """Serve the model; `context` tokens are divided over the slots. `more`: "embeddings"."""
    port = port or free_ports(1)[0]
    words = [sys.executable, "-P", str(PROGRAM), str(model), str(port), str(context), str(slots), *more]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        server = LlamaServer(port, process, model)
        try:
            assert process.stdout is not None
            if not process.stdout.readline():  # its address, once it answers
                raise RuntimeError("llama.cpp does not start")
            yield server
        finally:
            server.kill()

"""A model server on a port of this machine, as `gateway init` and the console look for one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any


class ModelServer:
    """What it says to `GET /v1/models`, of each model to Ollama's `POST /api/show`, and to other paths."""

    def __init__(self, listed: Any = None, shown: dict[str, Any] | None = None) -> None:
        self.listed = listed
        self.told: dict[str, Any] = {}  # by path
        self.shown = shown or {}
        self.port = 0


def listed(*names: str, owned_by: str, **more: Any) -> dict[str, Any]:
    """A list of models; `more` is said of each."""
    return {"object": "list", "data": [{"id": name, "owned_by": owned_by, **more} for name in names]}


@contextmanager
def serving(model_server: ModelServer) -> Iterator[ModelServer]:
    """Serves it."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            listed = model_server.listed if self.path == "/v1/models" else None
            self._answer(model_server.told.get(self.path, listed))

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self._answer(model_server.shown.get(asked["model"]) if self.path == "/api/show" else None)

        def _answer(self, document: Any) -> None:
            body = json.dumps(document).encode()
            self.send_response(404 if document is None else 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    model_server.port = server.server_port
    Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield model_server
    finally:
        server.shutdown()
        server.server_close()

"""A server that lists its models, for a provider whose list is stored. It runs only while a release is recorded."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.discovery.lists import OLLAMA

#: A list belongs to a provider with its address, so the address is fixed. No test gets a port as low as this.
PORT = 9434
LISTED = f"""
[providers.listed]
plugin = "openai"
base_url = "http://127.0.0.1:{PORT}/v1"
discover = true

[models."listed/*"]
provider = "listed"
free = true
"""


class _Lists(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = json.dumps(OLLAMA).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextmanager
def listing_server() -> Iterator[None]:
    """It serves in the block."""
    with ThreadingHTTPServer(("127.0.0.1", PORT), _Lists) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()

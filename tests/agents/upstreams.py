"""One server with the scripted model behind the four APIs: chat completions, Responses, Messages and Gemini's."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from msgspec import Struct

from . import chat_api, gemini_api, messages_api, responses_api
from .scripted_model import Conversation, ModelReply, decide

Frames = list[tuple[str, str]]  # name and data of each event


class Served(Struct):
    """A request that the model answered."""

    api: str
    conversation: Conversation
    reply: ModelReply


class ScriptedServer(ThreadingHTTPServer):
    """Answers on a port of loopback; `served` has every answer in order."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.served: list[Served] = []
        self.unknown: list[str] = []  # requests that no API has

    @property
    def address(self) -> str:
        """`http://127.0.0.1:PORT`."""
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ScriptedServer

    def do_HEAD(self) -> None:
        self._send(200, "application/json", b"")

    def do_GET(self) -> None:
        self._send(200, "application/json", b'{"object":"list","data":[],"models":[]}')

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length) if length else self._read_chunked()
        path = self.path.partition("?")[0]
        if path.endswith("/chat/completions"):
            self._answer("chat", chat_api, body)
        elif path.endswith("/responses"):
            self._answer("responses", responses_api, body)
        elif path.endswith("/messages"):
            self._answer("messages", messages_api, body)
        elif path.endswith("/messages/count_tokens"):
            self._send(200, "application/json", b'{"input_tokens":%d}' % (len(body) // 4))
        elif path.endswith((":generateContent", ":streamGenerateContent")):
            self._answer("gemini", gemini_api, body)
        elif path.endswith(":countTokens"):
            self._send(200, "application/json", b'{"totalTokens":%d}' % (len(body) // 4))
        else:
            self.server.unknown.append(self.path)
            self._send(404, "application/json", b'{"error":{"message":"no such path","code":"unknown_url"}}')

    def _answer(self, name: str, api: Any, body: bytes) -> None:
        document = json.loads(body)
        asked: Conversation = api.read(document, self.path)
        asked.size = len(body)
        reply = decide(asked)
        self.server.served.append(Served(name, asked, reply))
        number = len(self.server.served)
        if not asked.stream:
            self._send(200, "application/json", json.dumps(api.whole(asked, reply, number)).encode())
            return
        frames: Frames = api.events(asked, reply, number)
        text = "".join(f"event: {event}\ndata: {data}\n\n" if event else f"data: {data}\n\n" for event, data in frames)
        self._send(200, "text/event-stream", text.encode())

    def _read_chunked(self) -> bytes:
        parts = []
        while size := int(self.rfile.readline() or b"0", 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        return b"".join(parts)

    def _send(self, status: int, media_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", media_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""


@contextmanager
def scripted_server() -> Iterator[ScriptedServer]:
    """A server for the time of the context."""
    server = ScriptedServer()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)

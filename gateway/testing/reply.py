"""What a `FakeUpstream` answers, and what it has seen."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import Struct

from gateway.sse import DONE, encode_data


class Reply(Struct, kw_only=True):
    """One scripted answer: a document, or frames, and how it goes wrong."""

    status: int = 200  # of HTTP
    headers: dict[str, str] = {}  # beside those of HTTP itself
    body: bytes = b""  # a whole document; ignored when there are frames
    frames: list[bytes] | None = None  # a chunked body, each frame written by itself
    delay: float = 0.0  # seconds before the headers
    interval: float = 0.0  # seconds before each frame
    end: Literal["whole", "cut", "silence"] = "whole"  # cut: close without the end of the body; silence: never end it
    cut_after: int | None = None  # close the connection after so many bytes of the body
    opens_socket: bool = False  # accept the WebSocket that the request asks for, unless it goes wrong before
    raw: bytes | None = None  # written to the socket as it is, then closed: answers that are not HTTP

    @classmethod
    def json(cls, document: Any, *, status: int = 200, headers: dict[str, str] | None = None) -> Reply:
        """A JSON document."""
        return cls(
            status=status,
            headers={"Content-Type": "application/json", **(headers or {})},
            body=msgspec.json.encode(document),
        )

    @classmethod
    def error(
        cls, status: int, message: str, *, code: Any = None, type: str = "error", headers: dict[str, str] | None = None
    ) -> Reply:
        """An error document as OpenAI shapes it."""
        return cls.json(
            {"error": {"message": message, "type": type, "param": None, "code": code}}, status=status, headers=headers
        )

    @classmethod
    def stream(cls, documents: list[Any], *, done: bool = True, interval: float = 0.0) -> Reply:
        """One data event per document, bytes taken as they are, and OpenAI's end marker."""
        frames = [item if isinstance(item, bytes) else encode_data(msgspec.json.encode(item)) for item in documents]
        return cls(headers={"Content-Type": "text/event-stream"}, frames=frames + [DONE] * done, interval=interval)

    @classmethod
    def lines(cls, documents: list[Any], *, status: int = 200, interval: float = 0.0) -> Reply:
        """NDJSON: one line of JSON per document, each a frame; bytes are taken as they are."""
        frames = [item if isinstance(item, bytes) else msgspec.json.encode(item) + b"\n" for item in documents]
        return cls(status=status, headers={"Content-Type": "application/x-ndjson"}, frames=frames, interval=interval)

    @classmethod
    def silence(cls) -> Reply:
        """Headers never come."""
        return cls(delay=3600.0)

    @classmethod
    def hang_up(cls) -> Reply:
        """The connection is closed without an answer."""
        return cls(raw=b"")


class Seen(Struct, kw_only=True):
    """One request as the upstream saw it, and what became of its answer."""

    method: str  # in upper case
    path: str  # with the query, if there is one
    headers: dict[str, str]  # names in lower case
    body: bytes  # the whole body
    port: int = 0  # of the client: requests on one connection have the same
    frames: int = 0  # written
    sent: int = 0  # bytes of the body written
    outcome: Literal["open", "answered", "cut", "left"] = "open"  # left: the client went away first
    ended: float = 0.0  # time.monotonic() of that outcome

    @property
    def json(self) -> Any:
        """The request's body, decoded."""
        return msgspec.json.decode(self.body)

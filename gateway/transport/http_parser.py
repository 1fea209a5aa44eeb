"""Requests out of bytes: llhttp (through httptools) plus the checks it leaves to the server.

`feed` takes a slice of a read buffer and returns how far it read. It never reads past the end of a head or of a body,
so a pipelined request stays in the caller's hands as bytes until its turn: llhttp itself cannot be told to stop there.
The trick is that every head and every chunked body ends with an empty line, and a body with Content-Length ends where
it says. llhttp in its strict mode refuses bare LF, obs-fold, NUL, bad names, repeated or contradicting lengths; one
test per case holds it to that, because request smuggling lives there.
"""

from __future__ import annotations

from typing import Any, Final

import httptools
import msgspec
from tornado.httputil import HTTPHeaders, RequestStartLine

from gateway.errors import BadRequest

EMPTY_LINE: Final = b"\r\n\r\n"
EMPTY_LINES_PER_TURN: Final = 256  # about 0.6 ms
FRAMING: Final = (b"content-length", b"transfer-encoding")
KNOWN_NAMES: Final = 512  # header spellings remembered per server; callers choose names, so the memory has a lid


class RequestHead(msgspec.Struct, frozen=True, gc=False):
    """What a request says before its body."""

    start_line: RequestStartLine
    headers: HTTPHeaders
    content_length: int  # 0 when the body is chunked
    chunked: bool
    keep_alive: bool
    expects_continue: bool


class RequestHeaders(HTTPHeaders):
    """Tornado's headers with a quick `get`: a missing name costs 0.13 µs, the inherited one 0.44."""

    def get(self, name: str, default: Any = None) -> Any:
        """The value of `name` in Http-Header-Case; several ones joined by commas."""
        values = self._as_list.get(name)
        if values is None:
            return default if name[:1].isupper() else super().get(name, default)
        return values[0] if len(values) == 1 else ",".join(values)


class HeaderNames:
    """Raw header names to Tornado's Http-Header-Case, remembered."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[bytes, str] = {}

    def read(self, pairs: list[tuple[bytes, bytes]]) -> RequestHeaders:
        """Build validated headers: ten of them in 1.9 µs, where `HTTPHeaders.parse` takes 26."""
        known = self._known
        lines: dict[str, list[str]] = {}
        for raw, value in pairs:
            name = known.get(raw) or self._learn(raw)
            text = value.decode("latin-1").rstrip(" \t")
            if name in lines:
                lines[name].append(text)
            else:
                lines[name] = [text]
        headers = RequestHeaders.__new__(RequestHeaders)
        # Two attributes that every Tornado 6 has; a test compares the result with HTTPHeaders.parse.
        headers._as_list = lines
        headers._combined_cache = {}
        return headers

    def _learn(self, raw: bytes) -> str:
        name = "-".join(word.capitalize() for word in raw.decode("latin-1").split("-"))
        if len(self._known) < KNOWN_NAMES and len(raw) <= 64:
            self._known[raw] = name
        return name


class RequestParser:
    """One connection's requests, one after the other.

    `feed` until `head` is there, then until `complete`; take body bytes with `take_body`; `next_request` starts over.
    """

    __slots__ = (
        "_chunked",
        "_idle_bytes",
        "_keep_alive",
        "_llhttp",
        "_max_bytes",
        "_max_count",
        "_names",
        "_pairs",
        "_pieces",
        "_remaining",
        "_seen_head",
        "_tail",
        "_url",
        "complete",
        "head",
    )

    def __init__(self, names: HeaderNames, *, max_header_bytes: int, max_header_count: int) -> None:
        self._names = names
        self._max_bytes = max_header_bytes
        self._max_count = max_header_count
        self._llhttp: httptools.HttpRequestParser | None = httptools.HttpRequestParser(self)
        self._pieces: list[bytes] = []
        self.next_request()

    def next_request(self) -> None:
        """Forget the finished request."""
        self.head: RequestHead | None = None
        self.complete = False
        self._seen_head = False
        self._keep_alive = False
        self._chunked = False
        self._remaining = 0  # body bytes still to come, when their number is known
        self._idle_bytes = (
            0  # bytes read since the request began or since its last body byte: heads, extensions, trailers
        )
        self._tail = b""  # up to three bytes that may begin an empty line
        self._url = b""
        self._pairs: list[tuple[bytes, bytes]] = []
        self._pieces.clear()

    def close(self) -> None:
        """Drop the C parser, whose bound callbacks would otherwise be a reference cycle for the collector."""
        self._llhttp = None

    @property
    def started(self) -> bool:
        """Whether a byte of the next request has arrived."""
        return self._idle_bytes > 0

    @property
    def remaining(self) -> int | None:
        """Body bytes still to come, None when the body is chunked and not complete."""
        return None if self._chunked and not self.complete else self._remaining

    def feed(self, data: bytearray, start: int, stop: int) -> int:
        """Read from data[start:stop], at most to the end of the head or of the body; return where it stopped.

        It may stop earlier, so that a body full of empty lines (36 ms for 64 KiB) does not hold everybody else up.
        """
        by_empty_line = self.head is None or self._chunked
        awaits_head = self.head is None
        turns = EMPTY_LINES_PER_TURN
        while turns and start < stop and not self.complete:
            turns -= 1
            end = self._after_empty_line(data, start, stop) if by_empty_line else min(stop, start + self._remaining)
            self._execute(data, start, end)
            if by_empty_line:
                self._bound(data, start, end)
            else:
                self._remaining -= end - start
            start = end
            if awaits_head and self._seen_head:
                if self.head is None:
                    self._build_head(self._llhttp_method(), self._llhttp_version(), keep_alive=self._keep_alive)
                break
        return start

    def take_body(self) -> bytes:
        """The body bytes read since the last call."""
        pieces = self._pieces
        body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        return body

    def _after_empty_line(self, data: bytearray, start: int, stop: int) -> int:
        tail = self._tail
        if tail:
            found = (tail + data[start : start + 3]).find(EMPTY_LINE)
            if found >= 0 and found + 4 - len(tail) <= stop - start:
                return start + found + 4 - len(tail)
        found = data.find(EMPTY_LINE, start, stop)
        return stop if found < 0 else found + 4

    def _execute(self, data: bytearray, start: int, end: int) -> None:
        assert self._llhttp is not None
        try:
            self._llhttp.feed_data(memoryview(data)[start:end])
        except httptools.HttpParserUpgrade:
            self._ignore_upgrade()
        except httptools.HttpParserError as error:
            raise BadRequest("The request is not valid HTTP", detail=str(error)) from None

    def _bound(self, data: bytearray, start: int, end: int) -> None:
        """Limit what a head, one chunk's framing or the trailers may take: llhttp keeps them in memory unbounded."""
        self._idle_bytes = 0 if self._pieces else self._idle_bytes + end - start
        if self._idle_bytes > self._max_bytes:
            raise BadRequest(f"The request headers are larger than {self._max_bytes} bytes")
        self._tail = bytes(data[end - 3 : end]) if end - start >= 3 else (self._tail + data[start:end])[-3:]

    def _ignore_upgrade(self) -> None:
        # llhttp takes what follows an upgrade for another protocol; curl --http2 sends one, with a body. It is plain
        # HTTP here: a fresh parser is brought to the point where the body begins, and the connection closes afterwards.
        pairs, url, method, version = self._pairs, self._url, self._llhttp_method(), self._llhttp_version()
        framing = [name + b": " + value for name, value in pairs if name.lower() in FRAMING]
        self._llhttp = httptools.HttpRequestParser(self)
        self.complete = False
        self._llhttp.feed_data(b"\r\n".join([b"POST / HTTP/1.1", *framing]) + EMPTY_LINE)
        self._pairs, self._url = pairs, url
        self._build_head(method, version, keep_alive=False)

    # What httptools calls back.

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._seen_head:  # else it is a trailer
            self._pairs.append((name, value))

    def on_headers_complete(self) -> None:
        self._seen_head = True
        assert self._llhttp is not None
        self._keep_alive = self._llhttp.should_keep_alive()  # forgotten once a message without a body is complete

    def on_body(self, body: bytes) -> None:
        self._pieces.append(body)

    def on_message_complete(self) -> None:
        self.complete = True

    # The head, checked once it is whole.

    def _llhttp_method(self) -> str:
        assert self._llhttp is not None
        return str(self._llhttp.get_method(), "latin-1")

    def _llhttp_version(self) -> str:
        assert self._llhttp is not None
        return self._llhttp.get_http_version()

    def _build_head(self, method: str, version: str, *, keep_alive: bool) -> None:
        if version not in ("1.1", "1.0"):
            raise BadRequest("Only HTTP/1.1 and HTTP/1.0 are spoken here")
        if len(self._pairs) > self._max_count:
            raise BadRequest(f"The request has more than {self._max_count} headers")
        headers = self._names.read(self._pairs)
        lines = headers._as_list
        hosts = lines.get("Host", [])
        if len(hosts) > 1 or (not hosts and version == "1.1"):
            raise BadRequest("A request needs exactly one Host header")
        self._chunked = "Transfer-Encoding" in lines
        if self._chunked and (version == "1.0" or lines["Transfer-Encoding"][0].lower() != "chunked"):
            raise BadRequest("The only transfer encoding is chunked, in HTTP/1.1")
        self._remaining = int(lines["Content-Length"][0]) if "Content-Length" in lines else 0
        self.head = RequestHead(
            start_line=RequestStartLine(method, _origin_form(self._url), "HTTP/" + version),
            headers=headers,
            content_length=self._remaining,
            chunked=self._chunked,
            keep_alive=keep_alive,
            expects_continue="Expect" in lines and version == "1.1" and lines["Expect"][0].lower() == "100-continue",
        )
        self._pairs = []
        self._tail = b""
        self._idle_bytes = 0


def _origin_form(url: bytes) -> str:
    """The path and query of a request target; the absolute form of proxies loses its scheme and authority."""
    target = url.decode("latin-1")
    if target[:1] == "/" or "://" not in target:
        return target
    rest = target.split("://", 1)[1]
    slash = min((at for at in (rest.find("/"), rest.find("?")) if at >= 0), default=len(rest))
    path = rest[slash:]
    return path if path.startswith("/") else "/" + path

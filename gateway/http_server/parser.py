"""Parses requests: llhttp (through httptools) plus the checks that it leaves to the server.

`feed` takes a slice of a read buffer and returns the position up to which it read. It never reads past the end of a
head or of a body, so the bytes of a pipelined request stay with the caller until its turn. llhttp itself cannot stop
there. So `feed` finds the end itself: a head and a chunked body end with an empty line, and a body with Content-Length
after that number of bytes. llhttp in its strict mode refuses bare LF, obs-fold, NUL, bad names, repeated or
contradicting lengths. There is one test per case, because such requests are used for request smuggling.

llhttp calls C functions where possible: headers go directly into a dict, which keeps the first value of a name. A
repeated name is detected by the number of line ends; such a head is parsed again by `_Pairs`, which keeps all values.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from typing import Final

import httptools

from gateway.errors import BadRequest, InvalidApiKey
from gateway.http_server.head import HeaderNames, RequestHead, RequestHeaders, text_of
from gateway.http_server.head_cache import HeadCache

EMPTY_LINE: Final = b"\r\n\r\n"
EMPTY_LINES_PER_TURN: Final = 256  # about 0.6 ms
#: A key that was read from a file with its line end: HTTP does not permit it, and the caller does not see it.
_SPACED_KEY: Final = re.compile(
    rb"^(?:authorization|(?:x-(?:goog-)?)?api-key):[^\r\n]*(?:\r(?!\n)|[\x0b\x0c]|\n(?=\r\n))",
    re.IGNORECASE | re.MULTILINE,
)
FRAMING: Final = (b"content-length", b"transfer-encoding")


@dataclass(eq=False, repr=False, slots=True)
class RequestParser:
    """One connection's requests, one after the other.

    `feed` until `head` is set, then until `complete`; take body bytes with `take_body`; `next_request` starts again.
    """

    _names: HeaderNames
    _: KW_ONLY
    max_header_bytes: int
    max_header_count: int
    head: RequestHead | None = None
    complete: bool = False
    _remembered: HeadCache = field(default_factory=HeadCache)
    _pieces: list[bytes] = field(default_factory=list)
    _fields: dict[bytes, bytes] = field(default_factory=dict)  # the first of each name, trailers behind the headers
    _url: list[bytes] = field(default_factory=list)
    # Callbacks of httptools; it keeps the bound methods, so the containers live as long as the parser does.
    on_body: Callable[[bytes], None] = field(init=False)
    on_header: Callable[[bytes, bytes], bytes] = field(init=False)
    on_url: Callable[[bytes], None] = field(init=False)
    _llhttp: httptools.HttpRequestParser | None = field(init=False)
    _seen_head: bool = False
    _keep_alive: bool = False
    _chunked: bool = False
    _remaining: int = 0  # body bytes not yet received, if their number is known
    # Bytes read since the request began or since its last body byte: heads, extensions, trailers.
    _idle_bytes: int = 0
    _tail: bytes = b""  # up to three bytes that may begin an empty line
    _raw: bytearray | None = None  # the head so far, if it comes in pieces
    _unparsed: bool = False  # whether llhttp did not parse this request, because its head equals the former one
    _request: tuple[bytes, str] | None = None  # method and version, if llhttp has dropped them

    def __post_init__(self) -> None:
        self.on_body = self._pieces.append
        self.on_header = self._fields.setdefault
        self.on_url = self._url.append
        self._llhttp = httptools.HttpRequestParser(self)

    def next_request(self) -> None:
        """Forget the finished request."""
        self.head = None
        self.complete = self._seen_head = self._keep_alive = self._chunked = self._unparsed = False
        self._remaining = self._idle_bytes = 0
        self._tail = b""
        self._raw = None
        self._request = None
        self._url.clear()
        self._fields.clear()
        self._pieces.clear()

    def close(self) -> None:
        """Drop the C parser, because its bound callbacks are a reference cycle."""
        self._llhttp = None

    @property
    def started(self) -> bool:
        """Whether a byte of the next request has arrived."""
        return self._idle_bytes > 0

    @property
    def remaining(self) -> int | None:
        """Body bytes not yet received; None if the body is chunked and not complete."""
        return None if self._chunked and not self.complete else self._remaining

    def feed(self, data: bytearray, start: int, stop: int) -> int:
        """Read from data[start:stop], at most to the end of the head or of the body; return the end position.

        It may stop earlier, so that a body full of empty lines (36 ms for 64 KiB) does not delay other connections.
        """
        awaits_head = self.head is None
        if awaits_head:
            if not self._idle_bytes and (found := data.find(EMPTY_LINE, start, stop)) >= 0:
                # The usual case: a head in one piece, read without the loop below.
                end = found + 4
                head = self._remembered.again(data, start, end)
                if head is not None and end - start <= self.max_header_bytes:
                    self._unparsed = True
                    self.head, self._remaining = head, head.content_length
                    self.complete = not self._remaining
                    return end
                self._execute(data, start, end)
                if self._seen_head and end - start <= self.max_header_bytes:
                    # The number of line ends is that of the names plus the request line and the empty line. Otherwise a
                    # name was repeated or the head is unusual: then it is read again, name by name.
                    lines = len(self._fields) + 2
                    plain = data.count(b"\n", start, end) == lines and data.count(b"\r", start, end) == lines
                    raw = bytes(data[start:end])
                    head = self._build_head(None if plain else raw)
                    if plain and self._request is None:  # no upgrade was ignored
                        self._remembered.keep(head, raw)
                    return end
                self._bound(data, start, end)
                self._raw = data[start:end]
                start = end
        elif not self._chunked:
            end = min(stop, start + self._remaining)
            self._remaining -= end - start
            if self._unparsed:
                self._pieces.append(bytes(memoryview(data)[start:end]))
                self.complete = not self._remaining
            else:
                self._execute(data, start, end)
            return end
        by_empty_line = awaits_head or self._chunked
        turns = EMPTY_LINES_PER_TURN
        while turns and start < stop and not self.complete:
            turns -= 1
            end = self._after_empty_line(data, start, stop) if by_empty_line else min(stop, start + self._remaining)
            self._execute(data, start, end)
            if awaits_head:
                if self._raw is None:
                    self._raw = bytearray()
                self._raw += data[start:end]
            if by_empty_line:
                self._bound(data, start, end)
            else:
                self._remaining -= end - start
            start = end
            if awaits_head and self._seen_head:
                self._build_head(bytes(self._raw or b""))
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
            try:
                self._llhttp.feed_data(memoryview(data)[start:end])
            except httptools.HttpParserUpgrade:
                self._ignore_upgrade()
        except httptools.HttpParserError as error:
            if self.head is None and _SPACED_KEY.search((self._raw or b"") + data[start:end]):
                raise InvalidApiKey(InvalidApiKey.HAS_SPACE, detail=str(error)) from None
            raise BadRequest("The request is not valid HTTP", detail=str(error)) from None

    def _bound(self, data: bytearray, start: int, end: int) -> None:
        """Limit the size of a head, of a chunk's framing and of the trailers; llhttp itself has no limit."""
        self._idle_bytes = 0 if self._pieces else self._idle_bytes + end - start
        if self._idle_bytes > self.max_header_bytes:
            raise BadRequest(f"The request headers are larger than {self.max_header_bytes} bytes")
        self._tail = bytes(data[end - 3 : end]) if end - start >= 3 else (self._tail + data[start:end])[-3:]

    def _ignore_upgrade(self) -> None:
        # llhttp treats the data after an upgrade as another protocol; curl --http2 sends an upgrade with a body. Here
        # it is plain HTTP: a new parser is set to the begin of the body, and the connection closes afterwards.
        assert self._llhttp is not None
        fields, url = self._fields.copy(), self._url.copy()
        self._request = self._llhttp.get_method(), self._llhttp.get_http_version()
        framing = [name + b": " + value for name, value in fields.items() if name.lower() in FRAMING]
        self._llhttp = httptools.HttpRequestParser(self)
        self.complete = False
        self._llhttp.feed_data(b"\r\n".join([b"POST / HTTP/1.1", *framing]) + EMPTY_LINE)
        self._url[:], self._keep_alive = url, False
        self._fields.clear()
        self._fields.update(fields)

    # Callbacks of httptools.

    def on_headers_complete(self) -> None:
        self._seen_head = True
        assert self._llhttp is not None
        self._keep_alive = self._llhttp.should_keep_alive()  # llhttp drops it when a message without a body is complete

    def on_message_complete(self) -> None:
        self.complete = True

    # The head, checked when it is complete.

    def _build_head(self, raw: bytes | None) -> RequestHead:
        """Make `head` of llhttp's results, or of `raw`, the head's own bytes, if the results are incomplete."""
        llhttp = self._llhttp
        assert llhttp is not None
        method, version = self._request or (llhttp.get_method(), llhttp.get_http_version())
        if version not in ("1.1", "1.0"):
            raise BadRequest("Only HTTP/1.1 and HTTP/1.0 are spoken here")
        pairs = self._fields.items() if raw is None else _Pairs(raw).found
        if len(pairs) > self.max_header_count:
            raise BadRequest(f"The request has more than {self.max_header_count} headers")
        lines = self._names.read(pairs)
        hosts = lines.get("Host")
        if version == "1.1" if hosts is None else len(hosts) > 1:
            raise BadRequest("A request needs exactly one Host header")
        self._chunked = "Transfer-Encoding" in lines
        if self._chunked and (version == "1.0" or text_of(lines["Transfer-Encoding"][0]).lower() != "chunked"):
            raise BadRequest("The only transfer encoding is chunked, in HTTP/1.1")
        self._remaining = int(lines["Content-Length"][0]) if "Content-Length" in lines else 0
        head = self.head = RequestHead(
            self._names.start_line(method, b"".join(self._url), version),
            RequestHeaders(lines),
            self._remaining,
            self._chunked,
            self._keep_alive,
            "Expect" in lines and version == "1.1" and text_of(lines["Expect"][0]).lower() == "100-continue",
        )
        self._raw = None
        self._tail = b""
        self._idle_bytes = 0
        self._fields.clear()  # the needed values are stored elsewhere now
        return head


class _Pairs:
    """Every header of a head that llhttp has accepted, repeated names included."""

    def __init__(self, head: bytes) -> None:
        self.found: list[tuple[bytes, bytes]] = []
        with suppress(httptools.HttpParserUpgrade):
            httptools.HttpRequestParser(self).feed_data(head)

    def on_header(self, name: bytes, value: bytes) -> None:
        self.found.append((name, value))

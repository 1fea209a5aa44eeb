"""The parser of requests: a stream has the same requests wherever it is cut, and those that h11 finds in it.

h11 and llhttp refuse different requests. Where both accept one, it must have the same method, headers and body for
both: anything else is request smuggling.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import h11
from msgspec import Struct

from gateway.errors import BadRequest
from gateway.http_server.head import HeaderNames
from gateway.http_server.parser import RequestParser
from tests.fuzz.choices import Choices
from tests.fuzz.cuts import pieces
from tests.fuzz.requests import Request, Requests, requests_of

MAX_HEADER_BYTES = 900
MAX_HEADERS = 20
CLEAN, HEAD, BODY = "between requests", "in a head", "in a body"
ERROR, CLOSED = "refused", "the last request was read"


class Read(Struct, frozen=True):
    """One request that was read."""

    method: bytes
    headers: list[tuple[bytes, bytes]]  # names in lower case, sorted
    body: bytes


class ParserTarget:
    """`RequestParser`."""

    name = "http_parser"
    seconds = 1.0

    def make(self, choices: Choices) -> Requests:
        return requests_of(choices)

    def check(self, case: Requests) -> None:
        data = case.encode()
        found, end = parse([data])
        assert parse(pieces(data, case.cuts)) == (found, end), data
        if case.valid:
            fits = [request for request in case.sent if len(request.encode()) <= MAX_HEADER_BYTES]
            if len(fits) == len(case.sent):
                assert (found, end) == ([expected(request) for request in case.sent], CLEAN), data
        for ours, theirs in zip(found, parsed_by_h11(data), strict=False):
            assert ours == theirs, data

    def close(self) -> None:
        """Nothing is kept."""


def parse(stream: Iterable[bytes]) -> tuple[list[Read], str]:
    """The requests that the parser reads, and where the stream ends."""
    parser = RequestParser(HeaderNames(), max_header_bytes=MAX_HEADER_BYTES, max_header_count=MAX_HEADERS)
    found: list[Read] = []
    held = bytearray()
    try:
        for piece in stream:
            held += piece
            while held:
                at = parser.feed(held, 0, len(held))
                assert at or parser.complete, "the parser reads nothing"
                del held[:at]
                if parser.head is not None and parser.complete:
                    found.append(read_request(parser))
                    if not parser.head.keep_alive:
                        return found, CLOSED
                    parser.next_request()
    except BadRequest:
        return found, ERROR
    finally:
        parser.close()
    if parser.head is not None:
        return found, BODY
    return found, HEAD if parser.started else CLEAN


def read_request(parser: RequestParser) -> Read:
    """The complete request."""
    assert parser.head is not None
    headers = [
        (name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in parser.head.headers.get_all()
    ]
    assert sum(len(name) + len(value) for name, value in headers) <= MAX_HEADER_BYTES
    assert len(headers) <= MAX_HEADERS
    return Read(parser.head.start_line.method.encode("latin-1"), sorted(headers), parser.take_body())


def expected(request: Request) -> Read:
    """What was sent."""
    headers = [(name.lower(), value.strip(b" \t")) for name, _, value in request.headers]
    headers.append((b"host", b"x"))
    if request.chunks is not None:
        headers.append((b"transfer-encoding", b"chunked"))
    elif request.body:
        headers.append((b"content-length", b"%d" % len(request.body)))
    return Read(request.method, sorted(headers), request.body)


def parsed_by_h11(data: bytes) -> list[Read]:
    """The requests before the first one that h11 refuses."""
    peer = h11.Connection(h11.SERVER)
    found: list[Read] = []
    head: Any = None
    body = b""
    try:
        peer.receive_data(data)
        while True:
            event = peer.next_event()
            if isinstance(event, h11.Request):
                head, body = event, b""
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                found.append(Read(bytes(head.method), sorted((bytes(n), bytes(v)) for n, v in head.headers), body))
                if b"upgrade" in dict(head.headers) or head.method == b"CONNECT":
                    return found
                peer.send(h11.Response(status_code=200, headers=[("Content-Length", "0")]))
                peer.send(h11.EndOfMessage())
                peer.start_next_cycle()
            else:
                return found
    except h11.ProtocolError:
        return found

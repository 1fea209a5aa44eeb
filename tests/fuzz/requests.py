"""Streams of HTTP requests, valid or not."""

from __future__ import annotations

from msgspec import Struct

from tests.fuzz.choices import Choices
from tests.fuzz.cuts import Damage, cuts_of, damaged, damages_of

METHODS = (b"POST", b"GET", b"HEAD", b"OPTIONS", b"PUT", b"DELETE")
ODD_METHODS = (b"CONNECT", b"PRI", b"get", b"", b"PO ST", b"X" * 70, b"SOURCE", b"\xff")
TARGETS = (b"/", b"/v1/chat/completions", b"/a?b=c", b"/v1/models/x%2Fy")
ODD_TARGETS = (b"*", b"", b"http://h/a", b"h:443", b"/\xff", b"//", b"/ b", b"http://h", b"/\x00", b"/#")
NAMES = (b"X-A", b"x-a", b"Accept", b"Authorization", b"User-Agent", b"X_B", b"Cookie")
ODD_NAMES = (
    b"", b" X", b"X ", b"X\t", b"X\r", b"Content-Length", b"content-length", b"Transfer-Encoding", b"Host", b"Expect",
     b"Connection", b"Upgrade", b"\xffx", b"X(", b"Trailer", b"X" * 200,
)  # fmt: skip
VALUES = (b"", b"1", b"a b", b"a, b", b"\xe4", b"x" * 50, b"\t1 \t")
ODD_VALUES = (
    b"0", b"3", b"+3", b"03", b"3, 3", b"-1", b"99999999999999999999", b"chunked", b"identity, chunked", b"chunked ",
     b"xchunked", b"close", b"keep-alive", b"h2c", b"websocket", b"100-continue", b"a\rb", b"a\nb", b"\x00", b"\x7f",
     b"Upgrade", b"upgrade, close",
)  # fmt: skip
SPACES = (b" ", b"", b"  ", b"\t")
VERSIONS = *[b"HTTP/1.1"] * 8, b"HTTP/1.0", b"HTTP/2.0", b"HTTP/1.2", b"http/1.1", b""
BODIES = (b"", b"{}", b"abc", b"\r\n\r\n", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"0\r\n\r\n", b"x" * 300)
EXTENSIONS = *[b""] * 6, b";a", b";a=b", b';a="b"', b" ", b";", b";\x01", b";a\n"
ENDS = *[b"\r\n"] * 30, b"\n", b"\r"


class Request(Struct, frozen=True):
    """One request, valid or not."""

    host: bool  # it has a Host
    method: bytes
    target: bytes
    version: bytes
    headers: list[tuple[bytes, bytes, bytes]]
    body: bytes
    chunks: int | None  # bytes of a chunk; None: Content-Length
    extension: bytes
    trailers: list[tuple[bytes, bytes, bytes]]
    end: bytes  # of a line
    before: bytes  # empty lines before it

    def encode(self) -> bytes:
        """The bytes."""
        out = [self.before, self.method, b" ", self.target, b" ", self.version, self.end]
        lines = list(self.headers)
        if self.host:
            lines.append((b"Host", b" ", b"x"))
        if self.chunks is not None:
            lines.append((b"Transfer-Encoding", b" ", b"chunked"))
        elif self.body:
            lines.append((b"Content-Length", b" ", b"%d" % len(self.body)))
        out += [b"".join((name, b":", space, value, self.end)) for name, space, value in lines]
        out.append(self.end)
        out += self._chunks() if self.chunks is not None else [self.body]
        return b"".join(out)

    def _chunks(self) -> list[bytes]:
        size = max(1, self.chunks or 1)
        parts = [self.body[at : at + size] for at in range(0, len(self.body), size)]
        out = [b"%x%b%b%b%b" % (len(part), self.extension, self.end, part, self.end) for part in parts]
        trailers = [b"".join((name, b":", space, value, self.end)) for name, space, value in self.trailers]
        return [*out, b"0", self.extension, self.end, *trailers, self.end]


Line = tuple[bytes, bytes, bytes]  # name, space, value


def plain_line(choices: Choices) -> Line:
    """A valid header."""
    return choices.of(NAMES), choices.of(SPACES), choices.of(VALUES)


def odd_line(choices: Choices) -> Line:
    """A header that may be invalid."""
    name = choices.of(ODD_NAMES) if choices.one_in(2) else choices.of(NAMES)
    return name, choices.of(SPACES), choices.of(ODD_VALUES) if choices.one_in(2) else choices.of(VALUES)


def plain_request(choices: Choices) -> Request:
    """A valid request."""
    return Request(
        host=True,
        method=choices.of(METHODS),
        target=choices.of(TARGETS),
        version=b"HTTP/1.1",
        headers=choices.many(lambda: plain_line(choices), 4),
        body=choices.of(BODIES),
        chunks=choices.number(1, 64) if choices.one_in(2) else None,
        extension=choices.pick(b"", b";a=b"),
        trailers=choices.many(lambda: plain_line(choices), 2),
        end=b"\r\n",
        before=choices.pick(b"", b"", b"\r\n"),
    )


def odd_request(choices: Choices) -> Request:
    """A request that may be invalid."""
    return Request(
        host=not choices.one_in(4),
        method=choices.of(ODD_METHODS) if choices.one_in(4) else choices.of(METHODS),
        target=choices.of(ODD_TARGETS) if choices.one_in(4) else choices.of(TARGETS),
        version=choices.of(VERSIONS),
        headers=choices.many(lambda: odd_line(choices), 25 if choices.one_in(10) else 4),
        body=choices.of(BODIES),
        chunks=choices.number(1, 64) if choices.one_in(2) else None,
        extension=choices.of(EXTENSIONS),
        trailers=choices.many(lambda: odd_line(choices), 4),
        end=choices.of(ENDS),
        before=choices.pick(b"", b"\r\n", b"\n", b"\r\n\r\n\r\n", b"\r", b" "),
    )


class Requests(Struct, frozen=True):
    """What one connection sends."""

    valid: bool  # every request is
    requests: list[Request]
    repeat: int  # times that the first request is sent
    damages: list[Damage]
    cuts: list[int]

    @property
    def sent(self) -> list[Request]:
        """The requests in their order."""
        return self.requests[:1] * self.repeat + self.requests[1:]

    def encode(self) -> bytes:
        """The bytes."""
        return damaged(b"".join(request.encode() for request in self.sent), self.damages)


def requests_of(choices: Choices) -> Requests:
    """The requests of one connection."""
    repeat = choices.pick(1, 1, 2, 4)
    if choices.one_in(3):
        plain = choices.many(lambda: plain_request(choices), 4, least=1)
        return Requests(True, plain, repeat, [], cuts_of(choices))

    def one() -> Request:
        return odd_request(choices) if choices.one_in(2) else plain_request(choices)

    return Requests(False, choices.many(one, 4, least=1), repeat, damages_of(choices), cuts_of(choices))

"""Requests that HTTP or the API forbids, made from a seed so that a failure can be replayed.

`garbage(3_000, forge)` yields cases of every way in turn. A case says how it ends and which statuses answer it; 0 among
them means that silence is an answer too, as it is for a client that has left.
"""

from __future__ import annotations

import gzip
import random
import zlib
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import NamedTuple

Chance = random.Random

BAD_JSON = b'{"model": "m1", "messages": [}'


class Case(NamedTuple):
    way: str
    data: bytes
    statuses: Set[int] = frozenset({400})
    ending: str = "wait"  # wait for an answer · fin · rst
    answers: int = 1  # those before the last are good ones
    head: bool = False


@dataclass(frozen=True)
class Forge:
    """Makes requests of one surface that carry a good credential, so that nothing is refused for want of one.

    The defaults are those of `/v1`; `of_key` makes its credential.
    """

    credential: bytes  # a header line
    credential_start: bytes = b"Authorization: "
    target: bytes = b"/v1/chat/completions"  # of a POST with a body
    readable: bytes = b"/v1/models"  # of a GET that succeeds
    prefix: bytes = b"/v1/"
    nothing: tuple[bytes, ...] = (b"/v1/nope", b"/nope", b"/v1/models/nope", b"/v1/chat/completions")  # for a HEAD
    media: bytes = b"application/json"
    #: What answers a way, where it is not what `/v1` answers.
    statuses: Mapping[str, Set[int]] = field(default_factory=dict)

    @classmethod
    def of_key(cls, key: str) -> Forge:
        """The requests of `/v1` with this key."""
        return cls(b"Authorization: Bearer " + key.encode())

    def head(self, *lines: bytes, target: bytes = b"", method: bytes = b"POST") -> bytes:
        start = method + b" " + (target or self.target) + b" HTTP/1.1"
        return b"\r\n".join([start, b"Host: x", self.credential, *lines]) + b"\r\n\r\n"

    def get(self, *, close: bool = False) -> bytes:
        """A request that succeeds, and is the last one of its connection if `close`."""
        return self.head(*[b"Connection: close"] * close, method=b"GET", target=self.readable)

    def post(self, body: bytes, *lines: bytes) -> bytes:
        return self.head(b"Content-Type: " + self.media, b"Content-Length: %d" % len(body), *lines) + body

    def chunked(self, body: bytes) -> bytes:
        return self.head(b"Content-Type: " + self.media, b"Transfer-Encoding: chunked") + body


def garbage(count: int, forge: Forge, *, seed: int = 1) -> Iterator[Case]:
    """`count` cases, each way of breaking in turn; the same seed gives the same cases."""
    chance = random.Random(seed)
    for index in range(count):
        way = WAYS[index % len(WAYS)]
        case = way(chance, forge)
        yield case._replace(way=way.__name__, statuses=forge.statuses.get(way.__name__, case.statuses))


def bad_header_name(chance: Chance, forge: Forge) -> Case:
    name = chance.choice([b"A B", b"A\x00", b"", b"A(", b"\xc3\xa9", b"A\x7f", b"A:"[:0], b" A", b"A\t", b"[a]"])
    return Case("", forge.post(BAD_JSON, name + b": b"))


def bad_header_value(chance: Chance, forge: Forge) -> Case:
    byte = bytes([chance.choice([0, 1, 8, 11, 12, 13, 27, 31, 127])])
    name = chance.choice([b"X-Odd", b"X-Client-Request-Id", b"User-Agent", b"Accept"])
    return Case("", forge.post(BAD_JSON, name + b": a" + byte + b"b"))


def too_many_headers(chance: Chance, forge: Forge) -> Case:
    return Case("", forge.post(BAD_JSON, *[b"X-%d: y" % n for n in range(chance.choice([101, 200, 2000]))]))


def headers_too_large(chance: Chance, forge: Forge) -> Case:
    big = b"a" * chance.choice([66_000, 70_000, 200_000])
    return Case("", forge.post(BAD_JSON, chance.choice([b"X-A: " + big, big + b": x", b"Cookie: " + big])))


def bare_line_feed(chance: Chance, forge: Forge) -> Case:
    lines = forge.post(BAD_JSON).split(b"\r\n")
    at = chance.randrange(1, len(lines) - 1)  # not the first one's fault alone: any line may end so
    return Case("", b"\r\n".join(lines[:at]) + b"\n" + b"\r\n".join(lines[at:]))


def contradicting_lengths(chance: Chance, forge: Forge) -> Case:
    other = chance.choice([b"Content-Length: 7", b"Content-Length: 30", b"Content-Length: 1, 1", b"content-length: 0"])
    return Case("", forge.post(BAD_JSON, other))


def odd_length(chance: Chance, forge: Forge) -> Case:
    value = chance.choice([b"-1", b"+5", b"0x5", b"5 5", b"", b"five", b"9" * 40, b"1e3", b"\xb2", b"5,5", b"1.0"])
    return Case("", forge.head(b"Content-Length: " + value) + BAD_JSON)


def length_and_chunked(chance: Chance, forge: Forge) -> Case:
    lines = [b"Content-Length: 5", b"Transfer-Encoding: chunked"]
    chance.shuffle(lines)
    return Case("", forge.head(*lines) + b"0\r\n\r\n" + forge.get())


def odd_transfer_encoding(chance: Chance, forge: Forge) -> Case:
    value = chance.choice([b"gzip", b"chunked, gzip", b"identity", b"xchunked", b"chunked;q=1", b"", b"\x0bchunked"])
    return Case("", forge.head(b"Transfer-Encoding: " + value) + b"0\r\n\r\n")


def broken_chunks(chance: Chance, forge: Forge) -> Case:
    body = chance.choice(
        [
            b"zz\r\n",
            b"5\r\nab\r\n",
            b"2\r\nabc\r\n",
            b"-1\r\n",
            b"f" * 17 + b"\r\n",
            b"1\na\n",
            b"\r\n",
            b" 1\r\na\r\n",
            b"0x1\r\na\r\n",
            b"1\r\na\r\n0\r\nBad Trailer\r\n\r\n",
        ]
    )
    return Case("", forge.chunked(body), {400}, "fin")


def endless_extension(chance: Chance, forge: Forge) -> Case:
    return Case("", forge.chunked(b"1;" + b"e" * chance.choice([66_000, 200_000])))


def truncated_body(chance: Chance, forge: Forge) -> Case:
    whole = forge.post(BAD_JSON * 10)
    return Case("", whole[: chance.randrange(1, len(whole) - 1)], {400}, "fin")


def dropped(chance: Chance, forge: Forge) -> Case:
    whole = chance.choice([forge.post(BAD_JSON * 10), forge.chunked(b"1e\r\n" + BAD_JSON + b"\r\n")])
    return Case("", whole[: chance.randrange(1, len(whole))], {0}, "rst")


def wrong_host(chance: Chance, forge: Forge) -> Case:
    host = chance.choice([b"", b"Host: a\r\nHost: b\r\n", b"Host: a,b\r\nHost: c\r\n"])
    return Case("", b"POST " + forge.target + b" HTTP/1.1\r\n" + host + forge.credential + b"\r\n\r\n")


def wrong_version(chance: Chance, forge: Forge) -> Case:
    line = chance.choice(
        [
            b"GET /",
            b"GET / HTTP/2.0",
            b"GET / HTTP/1.2",
            b"GET / HTTP/9.9",
            b"GET / HTTP/1.1x",
            b"GET / http/1.1",
            b"PRI * HTTP/2.0",
            b"GET / HTTP/1",
            b"GET / HTTP/1.1 x",
            b"\x16\x03\x01\x02\x00",
            b"\x05\x01",
        ]
    )
    return Case("", line + b"\r\nHost: x\r\n\r\n")


def wrong_method(chance: Chance, forge: Forge) -> Case:
    method = chance.choice([b"PUT", b"PATCH", b"DELETE", b"OPTIONS", b"TRACE", b"PROPFIND"])
    return Case("", forge.head(method=method, target=forge.readable), {405})


def head_of_nothing(chance: Chance, forge: Forge) -> Case:
    return Case("", forge.head(method=b"HEAD", target=chance.choice(forge.nothing)), {404, 405}, head=True)


def unknown_method(chance: Chance, forge: Forge) -> Case:
    method = chance.choice([b"FETCH", b"get", b"G\x00T", b"POST\t", b"\xc3\x89", b"", b"A" * 9000])
    return Case("", forge.head(method=method), {400})


def odd_path(chance: Chance, forge: Forge) -> Case:
    path = chance.choice(
        [
            b"/%",
            b"/%zz",
            b"/v1/%00",
            b"/v1/models/%ff%fe",
            b"/v1/../../etc/passwd",
            b"/v1/models/..%2f..%2fetc",
            b"//",
            b"/v1/models/" + b"a" * 40000,
            b"/" + b"%41" * 9000,
            b"/v1//chat/completions",
            b"/V1/models",
            b"*",
            b"http://other/v1/nope",
            b"/v1/models/%F0%9F%98%80",
            b"/v1/chat/completions/x",
            b"/\\..\\x",
            b"/v1/models?/x=%",
            b"/metrics",
            b"/healthz",
            b"/readyz",
            b"/v1/models/{model}",
            b"/.git/config",
            b"/v1/%63hat/completions",
        ]
    )
    method = b"POST" if path in {b"//", b"/v1/models?/x=%"} else b"GET"  # a GET of these two is well asked
    return Case("", forge.head(target=path.replace(b"/v1/", forge.prefix), method=method), {400, 404, 405})


def bytes_in_path(chance: Chance, forge: Forge) -> Case:
    byte = bytes([chance.choice([0, 1, 9, 32, 127, 128, 233, 255])])
    return Case("", forge.head(target=forge.prefix + b"mo" + byte + b"dels", method=b"GET"), {400, 404})


def bad_gzip(chance: Chance, forge: Forge) -> Case:
    whole = gzip.compress(BAD_JSON * 50)
    body = chance.choice([b"\x1f\x8b\x08\x00", BAD_JSON, whole[:-9], whole[: len(whole) // 2], b"", whole])
    return Case("", forge.post(body, b"Content-Encoding: gzip"), {400})


def gzip_bomb(chance: Chance, forge: Forge) -> Case:
    squeeze = zlib.compressobj(9, wbits=31)
    bomb = squeeze.compress(b" " * chance.choice([3, 20]) * 1_000_000) + squeeze.flush()
    return Case("", forge.post(bomb, b"Content-Encoding: gzip"), {413})


def wrong_media(chance: Chance, forge: Forge) -> Case:
    lines = chance.choice(
        [[b"Content-Type: text/plain"], [b"Content-Type: multipart/form-data; boundary=x"], [b"Content-Type: \xff\xfe"]]
        + [[b"Content-Type:"], [b"Content-Type: application/json, text/html"], [b"Content-Type: application/jsonp"]]
        + [
            [b"Content-Type: application/json", b"Content-Encoding: " + code]
            for code in (b"br", b"gzip, gzip", b"\xe9")
        ]
    )
    return Case("", forge.head(b"Content-Length: 2", *lines) + b"{}", {415})


def bad_credential(chance: Chance, forge: Forge) -> Case:
    value = chance.choice(
        [
            b"Bearer sk-" + b"a" * 50000,
            b"Bearer sk-\xc3\xa9",
            b"Bearer \xff",
            b"Basic c2s6",
            b"Bearer",
            b"",
            b"\xe9" * 99,
            b"Bearer sk-",
            b"sk-abc",
            b"Bearer sk-a, Bearer sk-b",
            b"Bearer sk-a sk-b",
            b"Bearer {a:acme}",
            b"Bearer sk-a*",
        ]
    )
    head = b"POST " + forge.target + b" HTTP/1.1\r\nHost: x\r\n" + forge.credential_start + value
    return Case("", head + b"\r\nContent-Length: 5000000\r\n\r\n", {401})


def too_large(chance: Chance, forge: Forge) -> Case:
    length = chance.choice([b"33554433", b"1000000000000", b"18446744073709551615"])
    return Case("", forge.head(b"Content-Length: " + length), {413})


def garbage_after_a_request(chance: Chance, forge: Forge) -> Case:
    """What follows a good request on its connection is judged by itself."""
    times = chance.choice([1, 2, 5])
    return Case(
        "", forge.get() * times + bytes(chance.randrange(128, 256) for _ in range(40)), {400}, answers=times + 1
    )


def odd_expectation(chance: Chance, forge: Forge) -> Case:
    line = chance.choice([b"Expect: 200-maybe", b"Expect: \xff", b"Upgrade: websocket\r\nConnection: Upgrade"])
    return Case("", forge.post(BAD_JSON, line), {400})


def flipped(chance: Chance, forge: Forge) -> Case:
    """Bytes of a bad request replaced at random; silence is right where the result is no whole request."""
    data = bytearray(forge.post(BAD_JSON))
    for _ in range(chance.randint(1, 5)):
        data[chance.randrange(len(data))] = chance.randrange(256)
    return Case("", bytes(data), {0, 400, 401, 403, 404, 405, 408, 413, 415}, "fin")


WAYS: list[Callable[[Chance, Forge], Case]] = [
    bad_header_name, bad_header_value, too_many_headers, headers_too_large, bare_line_feed, contradicting_lengths,
    odd_length, length_and_chunked, odd_transfer_encoding, broken_chunks, endless_extension, truncated_body, dropped,
    wrong_host, wrong_version, wrong_method, head_of_nothing, unknown_method, odd_path, bytes_in_path, bad_gzip,
    gzip_bomb, wrong_media, bad_credential, too_large, garbage_after_a_request, odd_expectation, flipped,
]  # fmt: skip

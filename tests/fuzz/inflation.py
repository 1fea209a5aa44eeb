"""Compressed bodies of callers and of upstreams: the same content wherever they are cut, within the limits."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import Sequence

from msgspec import Struct

from gateway.errors import GatewayError, InvalidJSON, RequestTooLarge, UpstreamInvalidResponse
from gateway.http_client.inflate import STEP, Inflater
from gateway.uploads.inflate import FREE, MOST_RATIO, BodyInflater
from gateway.uploads.inflate import STEP as BODY_STEP
from tests.fuzz.choices import Choices
from tests.fuzz.cuts import Damage, cuts_of, damaged, damages_of, pieces

MOST = 512 * 1024  # bytes of an inflated body
CONTENTS = (
    b"",
    b"{}",
    b"a" * 100,
    b"ab" * 40_000,
    bytes(range(256)) * 300,
    b"x" * (MOST + 1),
    bytes(FREE),
    bytes(FREE + 1),
)


class Compressed(Struct, frozen=True):
    """One body."""

    coding: str
    content: bytes
    level: int
    members: int  # gzip data one after the other
    flushes: int  # blocks without content
    after: bytes
    damages: list[Damage]
    cuts: list[int]

    @property
    def valid(self) -> bool:
        """Whether it is one complete stream."""
        return self.members == 1 and not self.after and not self.damages

    def encode(self) -> bytes:
        """The bytes."""
        wbits = {"gzip": 31, "deflate": 15, "raw": -15}[self.coding]
        squeeze = zlib.compressobj(self.level, wbits=wbits)
        data = squeeze.compress(self.content)
        data += b"".join(squeeze.flush(zlib.Z_FULL_FLUSH) for _ in range(self.flushes)) + squeeze.flush()
        return damaged(data * self.members + self.after, self.damages)


class InflationTarget:
    """`BodyInflater` of requests and `Inflater` of answers."""

    name = "inflation"
    seconds = 1.0

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()

    def make(self, choices: Choices) -> Compressed:
        return Compressed(
            coding=choices.pick("gzip", "gzip", "deflate", "raw"),
            content=choices.data(200) if choices.one_in(2) else choices.of(CONTENTS),
            level=choices.pick(6, 1, 9, 0),
            members=choices.pick(1, 1, 1, 2),
            flushes=choices.pick(0, 0, 1, 5),
            after=choices.pick(b"", b"", b"x", b"\0" * 100, b"\x1f\x8b"),
            damages=damages_of(choices) if choices.one_in(2) else [],
            cuts=cuts_of(choices),
        )

    def check(self, case: Compressed) -> None:
        data = case.encode()
        cuts = [] if len(data) > 3000 and -1 in case.cuts else case.cuts
        self._check_request(case, data, cuts)
        self._check_answer(case, data, cuts)

    def close(self) -> None:
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    def _check_request(self, case: Compressed, data: bytes, cuts: Sequence[int]) -> None:
        whole = self._loop.run_until_complete(inflate_request([data]))
        cut = self._loop.run_until_complete(inflate_request(pieces(data, cuts)))
        # The ratio is that of the bytes so far, so a body that is refused when it is cut may be taken as a whole.
        if cut is not RequestTooLarge and whole is not RequestTooLarge:
            assert whole == cut, (whole, cut)
        if isinstance(whole, bytes):
            assert whole == gzip.decompress(data)
            assert len(whole) <= MOST
        elif case.valid and case.coding == "gzip" and whole is not RequestTooLarge:
            raise AssertionError(f"a valid body was refused: {whole}")
        if case.valid and case.coding == "gzip" and len(case.content) <= FREE:
            assert whole == cut == case.content

    def _check_answer(self, case: Compressed, data: bytes, cuts: Sequence[int]) -> None:
        whole, cut = inflate_answer(case, [data]), inflate_answer(case, pieces(data, cuts))
        assert whole == cut, (whole, cut)
        if case.valid:
            assert whole == case.content
        elif isinstance(whole, bytes):
            wbits = 31 if case.coding == "gzip" else 15 if data[:1] and data[0] & 15 == 8 else -15
            assert not data or whole == zlib.decompress(data, wbits)


async def inflate_request(stream: Sequence[bytes]) -> bytes | type[GatewayError]:
    """The inflated body, or the class of its error."""
    inflater, plain, consumed = BodyInflater(MOST), bytearray(), 0

    async def take(piece: bytes) -> None:
        assert len(piece) <= (FREE if len(plain) < FREE else BODY_STEP)
        plain.extend(piece)
        assert len(plain) <= FREE or len(plain) <= MOST_RATIO * consumed

    try:
        for piece in stream:
            consumed += len(piece)
            await inflater.feed(piece, take)
        inflater.finish()
    except (InvalidJSON, RequestTooLarge) as error:
        return type(error)
    return bytes(plain)


def inflate_answer(case: Compressed, stream: Sequence[bytes]) -> bytes | str:
    """The inflated answer, or what is wrong with it."""
    inflater, plain = Inflater("gzip" if case.coding == "gzip" else "deflate"), bytearray()
    try:
        for piece in stream:
            inflater.feed(piece)
            while step := inflater.step():
                assert len(step) <= STEP
                plain += step
    except UpstreamInvalidResponse:
        return "invalid"
    return bytes(plain) if inflater.complete else "truncated"

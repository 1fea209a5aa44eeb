"""Notes from which address each served call came, as `database.caller_addresses` says: shortened, whole, or not.

Each worker notes them in memory and appends them as batches to a stream of the store; the importer moves the batches to
the database. Ledger lines do not have them: their hash chain would keep every address for ever. The addresses of the
last seconds are lost if a worker is killed. What waits is bounded, and leaves the store after `database.keep_addresses`
even without an importer.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from functools import lru_cache
from typing import Literal

import msgspec
from msgspec import Struct

from gateway.http_server.client_address import client_address, networks, shortened
from gateway.ledger.batch_sender import BatchSender
from gateway.store.links import Links

Kept = Literal["off", "shortened", "whole"]

STREAM = "history:addresses"
KEPT = 1000  # batches that wait for an importer at most; the oldest are dropped
TOGETHER = 1000  # calls in a batch: some 40 KB, and 100 KB if each has another key and address
MOST = 10_000  # calls of a worker that wait for the store; 3 MB, and 25 MB if each has the longest X-Forwarded-For
FULL = 2000  # calls that are sent at once and not after `EVERY`
EVERY = 10.0  # seconds
REMEMBERED = 4096  # addresses whose short form a worker knows


Use = tuple[str, str, list[str]]  # key id, address, request ids


class AddressBatch(Struct, frozen=True):
    """The addresses of some calls of one worker; `at` is when the store got it, and no other batch has the same."""

    at: int  # microseconds since 1970
    uses: list[Use]


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(list[Use])


#: A call: key id, request id, the other end of the connection, X-Forwarded-For, and the proxies that are trusted.
Noted = tuple[str, str, str, str, tuple[str, ...]]


class CallerAddresses:
    """The addresses that one worker has noted and that are not in the store yet."""

    def __init__(self, links: Links, kept: Kept, keep: timedelta) -> None:
        self.keeps = kept != "off"
        self._links = links
        self._is_whole = kept == "whole"
        self._keep = keep
        self._waiting: list[Noted] = []
        self.sender = BatchSender(self.send, EVERY)

    def note(self, noted: Noted) -> None:
        """Keep it until the next batch, in which its address is read: the request does not wait for that."""
        if len(self._waiting) < MOST:  # else the store is away, and no call is served without it
            self._waiting.append(noted)
            if len(self._waiting) == FULL:
                self.sender.send_soon()

    async def send(self) -> None:
        """Append what was noted to the stream; after an error it is kept and sent again."""
        while self._waiting:
            some = self._waiting[:TOGETHER]
            await append_addresses(self._links, self.batch_of(some), self._keep)
            del self._waiting[: len(some)]

    def batch_of(self, calls: Sequence[Noted]) -> AddressBatch:
        """The batch of these calls, with what is kept of their addresses."""
        uses: dict[tuple[str, str], list[str]] = {}
        for key_id, request_id, peer, forwarded, trusted in calls:
            use = key_id, _kept(peer, forwarded, trusted, self._is_whole)
            uses.setdefault(use, []).append(request_id)
        return AddressBatch(time.time_ns() // 1000, [(*use, ids) for use, ids in uses.items()])


@lru_cache(maxsize=REMEMBERED)
def _kept(peer: str, forwarded: str, trusted: tuple[str, ...], is_whole: bool) -> str:
    """What is kept of the client's address."""
    address = client_address(peer, forwarded, networks(trusted))
    return address if is_whole else shortened(address)


async def append_addresses(links: Links, batch: AddressBatch, keep: timedelta) -> None:
    """Append a batch to the stream, and remove those from it that are older than `keep`."""
    call, seconds = links.link(STREAM).call, int(keep.total_seconds())
    await call("XADD", STREAM, "MAXLEN", "~", KEPT, "*", "b", _encoder.encode(batch.uses))
    await call("XTRIM", STREAM, "MINID", batch.at // 1000 - seconds * 1000)
    await call("EXPIRE", STREAM, seconds)


async def read_addresses(links: Links, most: int) -> list[tuple[str, AddressBatch | None]]:
    """The oldest batches with their ids in the stream; None for one that cannot be read."""
    reply = await links.link(STREAM).call("XRANGE", STREAM, "-", "+", "COUNT", most)
    return [(entry.decode(), _decoded(entry.decode(), fields)) for entry, fields in reply]


async def remove_addresses(links: Links, entries: list[str]) -> None:
    """Remove batches that are in the database, by their ids in the stream."""
    await links.link(STREAM).call("XDEL", STREAM, *entries)


def _decoded(entry: str, fields: list[bytes]) -> AddressBatch | None:
    milliseconds, _, number = entry.partition("-")
    try:
        return AddressBatch(int(milliseconds) * 1000 + int(number), _decoder.decode(fields[1]))
    except (ValueError, RecursionError, IndexError):
        return None

"""Counts the requests that were refused before their admission, by key, model, error code and hour.

An admitted call has a ledger line, and a refused one has none. So each worker counts refusals in memory and appends
them once a minute, as one batch, to a stream of the store; the importer moves the batches to the database. Counts of
the last minute are lost if a worker is killed. What it keeps is bounded, whatever callers send: models are those of the
configuration, codes those of the error tree, and further keys count in the total only.
"""

from __future__ import annotations

import secrets
import time

import msgspec
from msgspec import Struct

from gateway.ledger.batch_sender import BatchSender
from gateway.store.links import Links

STREAM = "history:refusals"
KEPT = 2000  # batches that wait for an importer at most; the oldest are dropped
MOST = 1000  # different refusals in a batch
EVERY = 60.0  # seconds
HOUR = 3600

Label = tuple[int, str, str, str, str]  # hour since 1970, account, key id, model, code


class RefusalBatch(Struct, frozen=True):
    """The refusals of one worker in about a minute; a batch that is sent twice has the same id."""

    id: str
    counts: list[tuple[int, str, str, str, str, int]]  # a label and its number of requests


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(RefusalBatch)


class RefusalCounts:
    """The refusals of one worker that are not in the store yet."""

    def __init__(self, links: Links) -> None:
        self._links = links
        self._counts: dict[Label, int] = {}
        self._batch: RefusalBatch | None = None  # sent without an answer; it is sent again
        self.sender = BatchSender(self.send, EVERY)

    def count(self, account: str, key_id: str, model: str, code: str) -> None:
        """Count a request; account and key are empty for an unknown key, the model for one that is not configured."""
        hour, counts = int(time.time()) // HOUR, self._counts
        label = (hour, account, key_id, model, code)
        if label not in counts and len(counts) >= MOST:
            label = (hour, "", "", "", code)
        counts[label] = counts.get(label, 0) + 1

    async def send(self) -> None:
        """Append what was counted to the stream; after an error the batch is kept and sent again."""
        while self._batch is not None or self._counts:
            if self._batch is None:
                counts, self._counts = self._counts, {}
                self._batch = RefusalBatch(secrets.token_hex(8), [(*label, n) for label, n in counts.items()])
            await append_batch(self._links, self._batch)
            self._batch = None


async def append_batch(links: Links, batch: RefusalBatch) -> None:
    """Append a batch to the stream."""
    await links.link(STREAM).call("XADD", STREAM, "MAXLEN", "~", KEPT, "*", "b", _encoder.encode(batch))


async def read_batches(links: Links, most: int) -> list[tuple[str, RefusalBatch | None]]:
    """The oldest batches with their ids in the stream; None for one that cannot be read."""
    reply = await links.link(STREAM).call("XRANGE", STREAM, "-", "+", "COUNT", most)
    return [(entry.decode(), _decoded(fields)) for entry, fields in reply]


async def remove_batches(links: Links, entries: list[str]) -> None:
    """Remove batches that are in the database, by their ids in the stream."""
    await links.link(STREAM).call("XDEL", STREAM, *entries)


def _decoded(fields: list[bytes]) -> RefusalBatch | None:
    try:
        return _decoder.decode(fields[1])
    except (ValueError, RecursionError, IndexError):
        return None

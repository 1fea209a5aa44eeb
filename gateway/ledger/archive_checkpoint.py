"""The archive checkpoint: the sums of an account's archived lines. With it the remaining lines still prove the balance.

A Redis stream cannot be extended at its front. So the checkpoint is a Redis hash beside it, `{a:<account>}:ca`, and
readers treat it as the line before the first one. It holds the number, id and balance of the last archived line, the
last hash of the chain over all archived lines, and their sum per key.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import aclosing
from datetime import timedelta

import msgspec
from msgspec import Struct

from gateway.ledger.line import LedgerLine, milliseconds, read_lines
from gateway.ledger.paging import scan_hash
from gateway.store.command import Script
from gateway.store.links import Links, slot

CARRY = "carry"  # the kind of the line that stands for lines which are not in the store
OK, MOVED, UNKNOWN, YOUNG = 0, 1, 2, 3  # replies of trim.lua
MIN_AGE = timedelta(hours=25)  # a marker is kept for 24 h, a journal's segment for a minute after its last confirmation


class _Owner(Struct):
    """The only field of a line's meta that the sums per key need."""

    key: str = ""


_owner_decoder = msgspec.json.Decoder(_Owner)


class ArchiveCheckpoint(Struct):
    """The sums of the lines 1 … n of an account."""

    n: int = 0
    id: str = "0-0"
    balance: int = 0
    hash: str = ""
    by_key: dict[str, int] = {}

    def add(self, line: LedgerLine, *, chain: bool = True) -> None:
        """Add the account's next line. Without `chain` the hash is not updated, which saves 3 µs."""
        self.n, self.id = line.n, line.id
        if chain:
            self.hash = line.chained(self.hash)
        self.balance += line.amount
        key_id = _owner_decoder.decode(line.meta_text).key if line.meta_text else ""
        if key_id:
            self.by_key[key_id] = self.by_key.get(key_id, 0) + line.amount

    def copy(self) -> ArchiveCheckpoint:
        """An independent copy."""
        return ArchiveCheckpoint(self.n, self.id, self.balance, self.hash, dict(self.by_key))

    @property
    def milliseconds(self) -> int:
        """Redis time of the last archived line in Unix milliseconds; 0 when nothing was archived."""
        return milliseconds(self.id)

    def line(self, account: str) -> LedgerLine:
        """The line that `gateway usage` shows in place of the archived lines."""
        meta = f'{{"lines":{self.n}}}'
        return LedgerLine(account, self.id, self.n, CARRY, CARRY, self.balance, self.balance, meta)


async def read_archive_checkpoint(links: Links, account: str) -> ArchiveCheckpoint:
    """The account's archive checkpoint; an empty one when nothing was archived."""
    return archive_checkpoint_of(await read_archive_checkpoint_fields(links, account))


async def read_archive_checkpoint_fields(links: Links, account: str) -> dict[str, str]:
    """The fields of the account's archive checkpoint as they are stored."""
    key = f"{slot(account)}:ca"
    link = links.link(key)
    if not await link.call("HLEN", key):
        return {}
    while True:
        fields = await scan_hash(link, key)
        n = await link.call("HGET", key, "n")
        if fields.get("n") == (n.decode() if n is not None else None):  # nothing was trimmed between two pages
            return fields


async def archived_lines(links: Links, account: str) -> int:
    """The number of the account's archived lines."""
    key = f"{slot(account)}:ca"
    return int(await links.link(key).call("HGET", key, "n") or b"0")


def archive_checkpoint_of(fields: dict[str, str]) -> ArchiveCheckpoint:
    """The checkpoint in the fields of its hash."""
    if not fields:
        return ArchiveCheckpoint()
    by_key = {name[2:]: int(value) for name, value in fields.items() if name.startswith("k:")}
    return ArchiveCheckpoint(int(fields["n"]), fields["id"], int(fields["bal"]), fields["hash"], by_key)


async def advance(
    links: Links, script: Script, account: str, *, before: ArchiveCheckpoint, after: ArchiveCheckpoint
) -> int:
    """Move the checkpoint past lines and remove them from the stream, if it still is `before`.

    `script` is trim.lua. Returns OK; MOVED if the checkpoint is another one now, UNKNOWN if the store has no
    such line, YOUNG if it is below `MIN_AGE`; these three change nothing.
    """
    key = slot(account)
    age = MIN_AGE // timedelta(microseconds=1)
    args: list[str | int] = [before.n, before.hash, age, after.n, after.balance, after.id, after.hash]
    for key_id, total in after.by_key.items():
        if total != before.by_key.get(key_id):
            args += (key_id, total)
    code: int = await links.link(key).eval(script, [key], args)
    return code


async def search_settled(links: Links, account: str, admitted: Mapping[str, int]) -> dict[str, bool | None]:
    """By request id, whether the request has a line; None if lines since its admission have left the store.

    `admitted` are the times of the admissions, in microseconds. The lines are read once for all requests.
    """
    if not admitted:
        return {}
    missing = set(admitted)
    since = str(min(admitted.values()) // 1000)
    async with aclosing(read_lines(links, account, since=since)) as lines:
        async for line in lines:
            missing.discard(line.request_id)
            if not missing:
                break
    answers: dict[str, bool | None] = dict.fromkeys(admitted, True)
    if missing:
        # Read after the lines, so that lines moved in between are not mistaken for lines that never existed.
        left = (await read_archive_checkpoint(links, account)).milliseconds
        answers |= {request_id: None if admitted[request_id] // 1000 <= left else False for request_id in missing}
    return answers

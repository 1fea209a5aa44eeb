"""The carry: what an account's archived lines come to, so that the lines left in the stream still prove the balance.

A stream takes nothing in at its front, so the carry is a hash beside it, `{a:<account>}:ca`, and every reader takes it
for the line before the first. It holds the number, id and balance of the last archived line, the head of the hash chain
over all of them, and their sum per key.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from gateway.ledger.line import LedgerLine, milliseconds
from gateway.ledger.scripts import Links, slot


class _Owner(Struct):
    """The one name of a line's meta that sums depend on."""

    key: str = ""


_owner_decoder = msgspec.json.Decoder(_Owner)


class ArchiveCheckpoint(Struct):
    """What the lines 1 … n of an account come to."""

    n: int = 0
    id: str = "0-0"
    balance: int = 0
    hash: str = ""
    by_key: dict[str, int] = {}

    def add(self, line: LedgerLine, *, chain: bool = True) -> None:
        """Follow the account to its next line; without `chain` the hash stays behind, which saves 3 µs."""
        self.n, self.id = line.n, line.id
        if chain:
            self.hash = line.chained(self.hash)
        self.balance += line.amount
        key_id = _owner_decoder.decode(line.meta_text).key if line.meta_text else ""
        if key_id:
            self.by_key[key_id] = self.by_key.get(key_id, 0) + line.amount

    def copy(self) -> ArchiveCheckpoint:
        """One that goes on by itself."""
        return ArchiveCheckpoint(self.n, self.id, self.balance, self.hash, dict(self.by_key))

    @property
    def milliseconds(self) -> int:
        """When its last line was booked; 0 when nothing was archived."""
        return milliseconds(self.id)

    def line(self, account: str) -> LedgerLine:
        """As `gateway usage` shows it, in the place of the lines it stands for."""
        meta = f'{{"lines":{self.n}}}'
        return LedgerLine(account, self.id, self.n, "carry", "carry", self.balance, self.balance, meta)


async def read_archive_checkpoint(links: Links, account: str) -> ArchiveCheckpoint:
    """The account's carry; an empty one when nothing was archived."""
    key = slot(account)
    told = await links.link(key).call("HGETALL", f"{key}:ca")
    return archive_checkpoint_of(told)


def archive_checkpoint_of(told: Any) -> ArchiveCheckpoint:
    """A carry from what HGETALL answers, in either protocol."""
    items = told.items() if isinstance(told, dict) else zip(told[::2], told[1::2], strict=True)
    fields = {name.decode(): value.decode() for name, value in items}
    if not fields:
        return ArchiveCheckpoint()
    by_key = {name[2:]: int(value) for name, value in fields.items() if name.startswith("k:")}
    return ArchiveCheckpoint(int(fields["n"]), fields["id"], int(fields["bal"]), fields["hash"], by_key)

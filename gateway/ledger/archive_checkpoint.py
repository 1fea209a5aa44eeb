"""The carry: what an account's archived lines come to, so that the lines left in the stream still prove the balance.

A stream takes nothing in at its front, so the carry is a hash beside it, `{a:<account>}:ca`, and every reader takes it
for the line before the first. It holds the number, id and balance of the last archived line, the head of the hash chain
over all of them, and their sum per key.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
from msgspec import Struct

from gateway.ledger.line import LedgerLine
from gateway.ledger.scripts import Links, slot


class _Owner(Struct):
    """The one name of a line's meta that sums depend on."""

    key: str = ""


_encoder = msgspec.json.Encoder()
_owner_decoder = msgspec.json.Decoder(_Owner)


class ArchivedLine(Struct, frozen=True, forbid_unknown_fields=True):
    """A ledger line with its account and its place in the hash chain; a line of an archive file."""

    account: str
    id: str
    n: int
    request_id: str = msgspec.field(name="rid")
    kind: str
    amount: int
    balance: int
    meta: str  # as the stream has it, to the byte
    hash: str = ""

    def chained(self, before: str) -> str:
        """The chain's head once this line follows the head `before`."""
        told = (before, self.account, self.id, self.n, self.request_id, self.kind, self.amount, self.balance, self.meta)
        return hashlib.sha256(_encoder.encode(told)).hexdigest()

    @property
    def milliseconds(self) -> int:
        """When Redis booked it."""
        return milliseconds(self.id)

    def line(self) -> LedgerLine:
        """As the stream's readers know it."""
        meta = msgspec.json.decode(self.meta) if self.meta else {}
        return LedgerLine(self.id, self.n, self.request_id, self.kind, self.amount, self.balance, meta)


class ArchiveCheckpoint(Struct):
    """What the lines 1 … n of an account come to."""

    n: int = 0
    id: str = "0-0"
    balance: int = 0
    hash: str = ""
    by_key: dict[str, int] = {}

    def add(self, line: ArchivedLine, *, chain: bool = True) -> None:
        """Follow the account to its next line; without `chain` the hash stays behind, which saves 3 µs."""
        self.n, self.id = line.n, line.id
        if chain:
            self.hash = line.chained(self.hash)
        self.balance += line.amount
        key_id = _owner_decoder.decode(line.meta).key if line.meta else ""
        if key_id:
            self.by_key[key_id] = self.by_key.get(key_id, 0) + line.amount

    def copy(self) -> ArchiveCheckpoint:
        """One that goes on by itself."""
        return ArchiveCheckpoint(self.n, self.id, self.balance, self.hash, dict(self.by_key))

    @property
    def milliseconds(self) -> int:
        """When its last line was booked; 0 when nothing was archived."""
        return milliseconds(self.id)

    def line(self) -> LedgerLine:
        """As `gateway usage` shows it, in the place of the lines it stands for."""
        return LedgerLine(self.id, self.n, "carry", "carry", self.balance, self.balance, {"lines": self.n})


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


def archived(account: str, id_: bytes, fields: list[bytes]) -> ArchivedLine:
    """A stream entry as a line to archive, not chained yet."""
    told = dict(zip(fields[::2], fields[1::2], strict=True))
    return ArchivedLine(
        account,
        id_.decode(),
        int(told[b"n"]),
        told[b"rid"].decode(),
        told[b"kind"].decode(),
        int(told[b"amount"]),
        int(told[b"bal"]),
        told[b"meta"].decode(),
    )


def milliseconds(id_: str) -> int:
    """The moment in a stream entry's id."""
    return int(id_.partition("-")[0])

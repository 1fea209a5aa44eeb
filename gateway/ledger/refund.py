"""Refunds: give back the charge of a settled call, whole or in part. The script keeps their sum within the charge.

A refund has a line of its own, with the operation as its id; its meta names the call. It also lowers what the key has
spent, so a budget gets its money back.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from functools import partial
from typing import Literal

import msgspec
from msgspec import Struct

from gateway.amounts import MAX_AMOUNT
from gateway.errors import InvalidValue
from gateway.ledger.archive_checkpoint import ArchiveCheckpoint
from gateway.ledger.line import LedgerLine, read_line, read_lines, unreadable_line
from gateway.ledger.scripts import Scripts
from gateway.store.links import Links, slot

RefundStatus = Literal["done", "repeated", "clash", "cap", "more", "unknown", "moved", "no account"]
_STATUSES: dict[int, RefundStatus] = {
    0: "done", 1: "repeated", 2: "clash", 3: "cap", 4: "more", 5: "unknown", 6: "moved"
}  # fmt: skip
CHARGES = frozenset({"use", "reclaim", "adj", "refund"})  # kinds of the lines that make up the charge of a call


class Refunded(Struct, frozen=True):
    """The result of a refund: its status, the amount and the new balance, in nano-units.

    `more`: nothing was booked, because only `amount` is left of the charge. `moved`: lines have left the store since
    the database was read; read it again.
    """

    status: RefundStatus
    amount: int
    balance: int
    operation: str


class ArchivedCharge(Struct, frozen=True):
    """The lines of a call that have left the store, as the database has them, and the checkpoint that covers them.

    The database has the same hash chain up to the checkpoint. So the lines are those of the store, as long as the store
    has this checkpoint, which the script compares.
    """

    checkpoint: ArchiveCheckpoint
    lines: Sequence[LedgerLine]


class RefundMeta(Struct, omit_defaults=True):
    """Meta of the line of a refund."""

    key: str
    model: str
    refunds: str  # the request id
    charged_at: int  # Unix milliseconds of the charge
    note: str = ""
    user: str = ""  # the id of the user who has the key
    tags: dict[str, str] | None = None  # of the call
    session: str = ""  # of the call


_encoder = msgspec.json.Encoder()


async def find_charge(links: Links, account: str, request_id: str) -> list[LedgerLine]:
    """The lines in the store that make up the charge of a call, oldest first.

    A call settled within a day is found by its marker, which names its last line. An older one is searched for from the
    first line of the account. InvalidValue for a line that cannot be read, unless it says that it is of another call.
    """
    key = slot(account)
    marker = await links.link(key).call("GET", f"{key}:st:{request_id}")
    last = marker.decode().rpartition(" ")[2] if marker else "-"
    since, until = ("-", "+") if last == "-" else (last, last)
    return [
        line
        async for line in read_lines(links, account, since=since, until=until, read=partial(_read, request_id))
        if line.request_id == request_id and line.kind in CHARGES
    ]


def _read(request_id: str, account: str, id_: bytes, fields: list[bytes]) -> LedgerLine:
    try:
        return read_line(account, id_, fields)
    except (ValueError, LookupError):
        stored = dict(zip(fields[::2], fields[1::2], strict=False)).get(b"rid", b"\xff").decode(errors="replace")
        if stored == request_id or not stored.isascii():
            text = f"ledger line {id_.decode()} cannot be read and may be of this call; see `gateway audit`"
            raise InvalidValue(text) from None
        return unreadable_line(account, id_)


async def refund(
    links: Links,
    scripts: Scripts,
    account: str,
    request_id: str,
    *,
    lines: Sequence[LedgerLine],
    archived: ArchivedCharge | None = None,
    amount: int | None = None,
    operation: str | None = None,
    note: str = "",
) -> Refunded:
    """Give back `amount` of a call's charge, None for all that is left; a repeated operation changes nothing.

    `lines` are those of `find_charge`. Without the line of the charge there or in `archived` the status is `unknown`,
    unless the operation was done before.
    """
    key, operation = slot(account), operation or "op_" + secrets.token_hex(16)
    earlier = archived.lines if archived is not None else ()
    last = lines[-1] if lines else earlier[-1] if earlier else None
    meta = RefundMeta("", "", request_id, 0, note)
    if last is not None:
        charge = last.meta
        meta = RefundMeta(
            charge["key"],
            charge["model"],
            request_id,
            last.milliseconds,
            note,
            charge.get("user", ""),
            charge.get("tags"),
            charge.get("session", ""),
        )
    code, booked, balance = await links.link(key).eval(
        scripts.refund,
        [key],
        [
            operation,
            request_id,
            "" if amount is None else str(amount),
            meta.key,
            _encoder.encode(meta),
            str(MAX_AMOUNT),
            meta.charged_at,
            str(archived.checkpoint.n) if archived is not None else "",
            archived.checkpoint.hash if archived is not None else "",
            str(sum(line.amount for line in earlier)) if earlier else "",
            *(line.id for line in lines),
        ],
    )
    return Refunded(_STATUSES.get(code, "no account"), int(booked), int(balance), operation)

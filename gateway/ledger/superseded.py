"""Superseded lines: what an older store lacks of a ledger, and what books it again.

A line is booked again under the id that it had: a call under its request id, a credit, a debit or a refund under its
operation id. So a journal that is sent later, an operator who repeats the credit, and two operators who book at once
change the balance once. An opening balance has no id of its own; it is booked under the id of its stream entry.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from gateway.ledger.archive_checkpoint import search_settled
from gateway.ledger.entry import Entry
from gateway.ledger.gather_all import gather_bounded
from gateway.ledger.line import LedgerLine
from gateway.ledger.scripts import Scripts
from gateway.store.links import Links, slot

OPENING = "superseded-"  # begins the operation id of an opening balance
CALLS = frozenset({"use", "reclaim"})
AT_ONCE = 50  # scripts in flight; each takes about 0.1 ms of the store's time
DUP, OLD, NOACCT = 1, 4, 20  # codes of settle.lua


class _Meta(Struct):
    """The part of a line's meta that names its call."""

    key: str = ""
    note: str = ""
    refunds: str = ""  # the request id of the call that a refund belongs to


class Settled(Struct, frozen=True):
    """What became of the charge of a call: whether it was charged now, and how much, in nano-units, never positive.

    `reason`: why it cannot be charged; empty if it is charged, now or before.
    """

    is_new: bool = False
    charged: int = 0
    reason: str = ""


_decoder = msgspec.json.Decoder(_Meta)
_NOTHING = _Meta()


def meta_of(line: LedgerLine) -> _Meta:
    """Key, note and refunded request of a line; empty if its meta is of another form."""
    try:
        return _decoder.decode(line.meta_text) if line.meta_text else _NOTHING
    except msgspec.MsgspecError:
        return _NOTHING


def is_of_call(line: LedgerLine) -> bool:
    """Whether the line is a part of what a call was charged. An operator's refund is none; it has an id of its own."""
    if line.kind in CALLS:
        return True
    meta = meta_of(line)
    return line.kind in ("adj", "refund") and bool(meta.key) and not meta.refunds


def booking_id(line: LedgerLine) -> str:
    """The id under which the line is booked again."""
    return f"{OPENING}{line.id}" if line.kind == "open" else line.request_id


def booking_kind(line: LedgerLine) -> str:
    """The kind of the line that books it again."""
    if is_of_call(line):
        return "use"
    return "topup" if line.kind == "open" else line.kind


async def are_booked(links: Links, lines: Sequence[LedgerLine]) -> list[bool]:
    """For each line, whether the store has booked it again, also if the importer has not copied that yet.

    StoreUnavailable. The marker of a call expires after a day; its line is in the database by then.
    """
    return await gather_bounded(_is_booked(links, line) for line in lines)


async def _is_booked(links: Links, line: LedgerLine) -> bool:
    key = slot(line.account)
    link = links.link(key)
    if is_of_call(line):
        marker = await link.call("GET", f"{key}:st:{line.request_id}")
        kind = marker.decode().partition(" ")[0] if marker else ""
        return kind == "use" or (kind == "reclaim" and line.kind == "reclaim")
    booked = await link.call("HGET", f"{key}:op", booking_id(line))
    return bool(booked is not None and booked.decode() == f"{booking_kind(line)} {line.amount}")


async def is_marked(links: Links, account: str, request_id: str) -> bool:
    """Whether the store knows what a call was charged."""
    key = slot(account)
    return bool(await links.link(key).call("EXISTS", f"{key}:st:{request_id}"))


def entry_of(lines: Sequence[LedgerLine]) -> Entry:
    """The settlement of a call, with what all its lines say that it cost. At least one line.

    It holds nothing: the call is charged what no other call holds, and the rest is uncollected.
    """
    first, last = lines[0], lines[-1]
    owed = sum(line.uncollected - line.amount for line in lines)
    at = min(line.milliseconds for line in lines) * 1000
    key = next(filter(None, (meta_of(line).key for line in reversed(lines))), "")
    return Entry(first.account, first.request_id, key, "use", -max(owed, 0), 0, at, last.meta_text, hold=0)


async def settle_again(links: Links, scripts: Scripts, account: str, entries: Sequence[Entry]) -> list[Settled]:
    """Charge calls of an account that have no line in the database; for each what became of it. StoreUnavailable."""
    results: dict[str, Settled] = {}
    old: list[Entry] = []
    for entry, code, charged in await _settle(links, scripts, account, entries):
        if code == OLD:
            old.append(entry)
        else:
            results[entry.request_id] = _result(code, charged)
    found = await search_settled(links, account, {entry.request_id: entry.at for entry in old})
    for entry in old:
        entry.force = 1
    unbooked = [entry for entry in old if not found[entry.request_id]]  # lines that left the store are in the database
    for entry, code, charged in await _settle(links, scripts, account, unbooked):
        results[entry.request_id] = _result(code, charged)
    return [results.get(entry.request_id, Settled()) for entry in entries]


async def _settle(
    links: Links, scripts: Scripts, account: str, entries: Sequence[Entry]
) -> list[tuple[Entry, int, int]]:
    """Entry, code and charged amount of each."""
    key = slot(account)
    sent = (
        links.link(key).eval(
            scripts.settle,
            [key],
            [one.request_id, one.key_id, one.kind, one.amount, one.tokens, one.at, one.force, one.meta, 0],
        )
        for one in entries
    )
    replies = await gather_bounded(sent, AT_ONCE)
    return [
        (entry, int(reply[0]), int(reply[1]) if len(reply) > 1 else 0)
        for entry, reply in zip(entries, replies, strict=True)
    ]


def _result(code: int, charged: int) -> Settled:
    if code == NOACCT:
        return Settled(reason="no account")
    return Settled(is_new=code != DUP, charged=charged)

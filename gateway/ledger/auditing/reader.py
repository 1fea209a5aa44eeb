"""Reads what the audit compares of an account: at one moment, or in pages if the account holds much.

Pages are moments of their own. They are used only if the account's sequence number, its held amount and its counts are
the same before and after; after `TRIES` attempts the account is moving, and only the parts of one moment are compared.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from gateway.ledger.archive_checkpoint import read_archive_checkpoint_fields
from gateway.ledger.paging import PAGE, scan_pairs, scan_scores, scan_set
from gateway.ledger.scripts import Scripts
from gateway.store.command import text_fields
from gateway.store.links import Links, slot

TRIES = 3
# Keys that one script reads, with their leases and members: 1,000 took 5 to 6 ms of the store.
KEYS_AT_ONCE = 500


class Head(Struct, frozen=True):
    """The account at one moment; texts as stored, None where there is none."""

    balance: bytes | None
    held: bytes | None
    floor: bytes | None
    seq: bytes | None
    last: bytes  # id of the last ledger line, empty for none
    holds: int
    expiries: int
    keys: int
    carried: int  # fields of the archive checkpoint
    carried_lines: bytes
    now: bytes  # µs
    lease: bytes  # request id of the lease that ends last, empty for none
    lease_ends: bytes  # µs; negative when the leases are unreadable
    price_epoch: bytes | None  # None without prices of its own
    ordered: int  # keys in their order, see `listing.ordered_set`; -1 if it is no sorted set

    def same(self, other: Head) -> bool:
        """Whether pages that were read between the two belong together."""
        return (self.seq, self.balance, self.held, self.holds, self.expiries, self.keys, self.carried_lines) == (
            other.seq,
            other.balance,
            other.held,
            other.holds,
            other.expiries,
            other.keys,
            other.carried_lines,
        )


class KeySums(Struct, frozen=True):
    """A key in the account's set."""

    state: bytes  # empty when there is no such key
    spent: bytes
    held: bytes
    lease: bytes  # as in `Head`
    lease_ends: bytes
    user: bytes = b""  # who has the key; empty for none


class MemberSums(Struct, frozen=True):
    """A user of keys of the account."""

    spent: bytes
    held: bytes


class Contents(Struct, frozen=True):
    """The holds, keys and archive checkpoint of the account."""

    holds: dict[bytes, bytes]
    expiries: dict[bytes, float]  # µs by request id
    keys: dict[str, KeySums]
    carried: dict[str, str]
    members: dict[str, MemberSums]


async def read_account(links: Links, scripts: Scripts, account: str) -> tuple[Head, Contents | None]:
    """The account; None in place of its contents if it is moving."""
    for _ in range(TRIES):
        head, contents = await _snapshot(links, scripts, account, most=PAGE)
        if contents is None:
            contents = await _read_pages(links, scripts, account)
            after, _ = await _snapshot(links, scripts, account, most=-1)
            if not head.same(after):
                continue
        return head, contents
    return head, None


async def _snapshot(links: Links, scripts: Scripts, account: str, *, most: int) -> tuple[Head, Contents | None]:
    key = slot(account)
    reply: list[Any] = await links.link(key).eval(scripts.snapshot, [key], [most])
    head, contents = Head(*reply[:15]), reply[15:]
    if not contents:
        return head, None
    holds, expiries, sums, carried, members = contents
    return head, Contents(
        _pairs(holds),
        {request_id: float(ends) for request_id, ends in _pairs(expiries).items()},
        _key_sums(sums),
        text_fields(carried),
        _member_sums(members),
    )


async def _read_pages(links: Links, scripts: Scripts, account: str) -> Contents:
    key = slot(account)
    link = links.link(key)
    key_ids = sorted(await scan_set(link, f"{key}:ks"))
    keys, members = dict[str, KeySums](), dict[str, MemberSums]()
    for start in range(0, len(key_ids), KEYS_AT_ONCE):
        of_keys, of_members = await link.eval(scripts.key_page, [key], key_ids[start : start + KEYS_AT_ONCE])
        keys |= _key_sums(of_keys)
        members |= _member_sums(of_members)
    return Contents(
        await scan_pairs(link, f"{key}:rv"),
        await scan_scores(link, f"{key}:rx"),
        keys,
        await read_archive_checkpoint_fields(links, account),
        members,
    )


def _key_sums(flat: list[bytes]) -> dict[str, KeySums]:
    return {flat[at].decode(): KeySums(*flat[at + 1 : at + 7]) for at in range(0, len(flat), 7)}


def _member_sums(flat: list[bytes]) -> dict[str, MemberSums]:
    return {flat[at].decode(): MemberSums(flat[at + 1], flat[at + 2]) for at in range(0, len(flat), 3)}


def _pairs(flat: list[bytes]) -> dict[bytes, bytes]:
    return dict(zip(flat[::2], flat[1::2], strict=True))

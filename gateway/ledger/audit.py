"""Proves the balances: every account's ledger is added up and held against what the account says.

Rules: `sequence` lines count 1, 2, 3 …; `running` each line's balance is the one before plus its amount; `balance` the
sum is the account's balance; `seq` the account's counter is the last line's number; `held` the holds add up to what is
held; `expiries` every hold expires; `spent` and `key_held` the same per key. All of an account is compared as of one
moment, so an audit may run while the gateway serves, and on a replica.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from gateway.ledger.line import read_lines
from gateway.ledger.scripts import Links, Scripts, slot


class Mismatch(Struct, frozen=True):
    """What should be, and what is."""

    account: str
    rule: str
    expected: str
    found: str


class AuditReport(Struct):
    """The `gateway audit` document."""

    accounts: int = 0
    lines: int = 0
    mismatches: list[Mismatch] = []


class _Held(Struct):
    """What the hold records add up to."""

    total: int = 0
    by_key: dict[str, int] = {}


class _Booked(Struct):
    """What the ledger lines add up to."""

    lines: int = 0
    balance: int = 0
    by_key: dict[str, int] = {}


async def audit_account(links: Links, scripts: Scripts, account: str, *, report: AuditReport) -> None:
    """Check one account and add what was found to `report`."""
    key = slot(account)
    fields, records, expiries, last, sums = await links.link(key).eval(scripts.snapshot, [key], [])
    told = {name.decode(): value.decode() for name, value in _pairs(fields)}
    report.accounts += 1
    booked = await _add_lines(links, account, last.decode(), report=report)
    held = _add_holds(records)

    def expect(rule: str, expected: object, found: object) -> None:
        if str(expected) != str(found):
            report.mismatches.append(Mismatch(account, rule, str(expected), str(found)))

    expect("balance", booked.balance, told.get("bal"))
    expect("seq", booked.lines, told.get("seq"))
    expect("held", held.total, told.get("held"))
    expect("expiries", sorted(r for r, _ in _pairs(records)), sorted(r for r, _ in _pairs(expiries)))
    for kid, spent, key_held in zip(sums[::3], sums[1::3], sums[2::3], strict=True):
        name = kid.decode()
        expect(f"spent {name}", -booked.by_key.get(name, 0), spent.decode())
        expect(f"key_held {name}", held.by_key.get(name, 0), key_held.decode())


async def _add_lines(links: Links, account: str, last: str, *, report: AuditReport) -> _Booked:
    booked = _Booked()
    if not last:
        return booked
    async for line in read_lines(links, account, until=last):
        booked.lines += 1
        booked.balance += line.amount
        if line.n != booked.lines:
            report.mismatches.append(Mismatch(account, "sequence", str(booked.lines), str(line.n)))
            booked.lines = line.n
        if line.balance != booked.balance:
            report.mismatches.append(Mismatch(account, f"running {line.n}", str(booked.balance), str(line.balance)))
            booked.balance = line.balance
        kid = line.meta.get("key")
        if kid:
            booked.by_key[kid] = booked.by_key.get(kid, 0) + line.amount
    report.lines += booked.lines
    return booked


def _add_holds(records: list[bytes]) -> _Held:
    held = _Held()
    for _, record in _pairs(records):
        _, amount, _, _, _, flags, kid, _ = record.split(b" ", 7)
        held.total += int(amount)
        if b"b" in flags:
            name = kid.decode()
            held.by_key[name] = held.by_key.get(name, 0) + int(amount)
    return held


def _pairs(flat: list[Any]) -> list[tuple[bytes, bytes]]:
    return list(zip(flat[::2], flat[1::2], strict=True))

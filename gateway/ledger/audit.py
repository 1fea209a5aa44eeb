"""Proves the balances: adds up every account's ledger and compares the sums with the stored balances.

Rules:

- `sequence`: lines count 1, 2, 3 …
- `running`: each line's balance is the one before plus its amount.
- `balance`: the sum is the account's balance.
- `seq`: the account's counter is the last line's number.
- `held`: the holds add up to the amount held.
- `expiries`: every hold has an expiry.
- `spent` and `key_held`: the same sums per key.

One snapshot of an account is compared, so an audit may run while the gateway serves, and on a replica.

The sums of compacted lines are taken from the archive checkpoint. If the archive is given, `archive …` rules compare
its hashes and sums with the checkpoint, and lines that a crash left in both places with the stream.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from msgspec import Struct

from gateway.ledger.archive import ArchiveProof
from gateway.ledger.archive_checkpoint import (
    ArchiveCheckpoint,
    archive_checkpoint_of,
    read_archive_checkpoint,
)
from gateway.ledger.line import read_lines
from gateway.ledger.scripts import Links, Scripts, slot
from gateway.store.command import text_fields

TRIES = 5  # a compaction may move lines between two reads


class Mismatch(Struct, frozen=True):
    """A rule that failed, with the expected and the found value."""

    account: str
    rule: str
    expected: str
    found: str


class AuditReport(Struct):
    """The `gateway audit` document."""

    accounts: int = 0
    lines: int = 0
    mismatches: list[Mismatch] = []
    unreachable: list[str] = []  # accounts that were not audited because their server is unreachable

    def expect(self, account: str, rule: str, expected: object, found: object) -> None:
        """Add a mismatch if the two values differ as texts."""
        if str(expected) != str(found):
            self.mismatches.append(Mismatch(account, rule, str(expected), str(found)))


class _Held(Struct):
    """The sums of the hold records, in nano-units."""

    total: int = 0
    by_key: dict[str, int] = {}


async def audit_account(
    links: Links, scripts: Scripts, account: str, *, report: AuditReport, proof: ArchiveProof | None = None
) -> None:
    """Check one account, and with `proof` also its archives, and add the result to `report`."""
    for _ in range(TRIES):
        found = AuditReport()
        checkpoint = await _audit_once(links, scripts, account, report=found, proof=proof)
        if (await read_archive_checkpoint(links, account)).n == checkpoint.n:
            break
    report.accounts += 1
    report.lines += found.lines
    report.mismatches += found.mismatches


async def _audit_once(
    links: Links, scripts: Scripts, account: str, *, report: AuditReport, proof: ArchiveProof | None
) -> ArchiveCheckpoint:
    key = slot(account)
    fields, records, expiries, last, sums, carried = await links.link(key).eval(scripts.snapshot, [key], [])
    stored = text_fields(fields)
    checkpoint = archive_checkpoint_of(text_fields(carried))

    expect = partial(report.expect, account)
    if proof is not None:
        for rule, expected, found in (*proof.faults, *_checkpoint_faults(checkpoint, proof)):
            expect(rule, expected, found)
        report.lines += min(proof.lines, checkpoint.n)
    surplus = proof.surplus if proof is not None else {}
    booked = await _add_lines(
        links, account, last.decode(), checkpoint=checkpoint.copy(), surplus=surplus, report=report
    )
    held = _add_holds(records)
    expect("balance", booked.balance, stored.get("bal"))
    expect("seq", booked.n, stored.get("seq"))
    expect("held", held.total, stored.get("held"))
    expect("expiries", sorted(r for r, _ in _pairs(records)), sorted(r for r, _ in _pairs(expiries)))
    for key_id, spent, key_held in zip(sums[::3], sums[1::3], sums[2::3], strict=True):
        name = key_id.decode()
        expect(f"spent {name}", -booked.by_key.get(name, 0), spent.decode())
        expect(f"key_held {name}", held.by_key.get(name, 0), key_held.decode())
    return checkpoint


def _checkpoint_faults(checkpoint: ArchiveCheckpoint, proof: ArchiveProof) -> list[tuple[str, object, object]]:
    """Pairs to compare, as (rule, the archives' value, the checkpoint's value)."""
    at = proof.at_checkpoint
    if not checkpoint.n:
        return []
    if at is None or proof.first != 1:
        found = f"lines {proof.first} to {proof.head.n}" if proof.lines else "none"
        return [("archive", f"lines 1 to {checkpoint.n}", found)]
    return [
        ("archive balance", at.balance, checkpoint.balance),
        ("archive hash", at.hash, checkpoint.hash),
        ("archive id", at.id, checkpoint.id),
        ("archive keys", sorted(at.by_key.items()), sorted(checkpoint.by_key.items())),
    ]


async def _add_lines(
    links: Links,
    account: str,
    last: str,
    *,
    checkpoint: ArchiveCheckpoint,
    surplus: dict[int, str],
    report: AuditReport,
) -> ArchiveCheckpoint:
    """Add the lines of the stream to `checkpoint` and return it; report the lines that do not fit."""
    chained = max(surplus, default=0)
    async for line in read_lines(links, account, until=last or "-"):
        report.lines += 1
        expected = checkpoint.n + 1, checkpoint.balance + line.amount
        checkpoint.add(line, chain=line.n <= chained)
        report.expect(account, "sequence", expected[0], line.n)
        if line.balance != expected[1]:
            report.expect(account, f"running {line.n}", expected[1], line.balance)
            checkpoint.balance = line.balance
        if line.n in surplus:
            report.expect(account, f"archive hash {line.n}", checkpoint.hash, surplus[line.n])
    if chained > checkpoint.n:
        report.expect(account, "archive", f"line {chained}", f"none after {checkpoint.n}")
    return checkpoint


def _add_holds(records: list[bytes]) -> _Held:
    held = _Held()
    for _, record in _pairs(records):
        _, amount, _, _, _, flags, key_id, _ = record.split(b" ", 7)
        held.total += int(amount)
        if b"b" in flags:
            name = key_id.decode()
            held.by_key[name] = held.by_key.get(name, 0) + int(amount)
    return held


def _pairs(flat: list[Any]) -> list[tuple[bytes, bytes]]:
    return list(zip(flat[::2], flat[1::2], strict=True))

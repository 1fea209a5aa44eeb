"""Old ledger lines move from the store into an archive file; the carry stands for them from then on.

Archive first (written, synced, read back), then one script that moves the carry and drops the lines, page by page. So a
crash at any point leaves lines in both places at worst, and the next run recognises them by their hashes and goes on.
Sharp edge: a settlement that comes from a journal after its marker has expired is looked up in the stream, so a line
stays there for `MIN_AGE` at least; one that comes later still is set aside for the operator, never charged on a guess.
"""

from __future__ import annotations

from datetime import timedelta

from msgspec import Struct, structs

from gateway.ledger.archive import Archive, ArchiveError
from gateway.ledger.archive_checkpoint import ArchiveCheckpoint
from gateway.ledger.line import LedgerLine, read_line
from gateway.ledger.scripts import Links, Scripts, slot

MIN_AGE = timedelta(hours=25)  # a marker lives 24 h, a journal's segment a minute longer than its last confirmation
PAGE = 500  # lines per script, which keep Redis busy for 0.2 ms; 20,000 lines a second in all

OK, MOVED, UNKNOWN, YOUNG = 0, 1, 2, 3


class Compacted(Struct):
    """The `gateway compact` document."""

    accounts: int = 0  # that had lines to move
    lines: int = 0


async def compact_account(
    links: Links,
    scripts: Scripts,
    account: str,
    *,
    before: int,
    archive: Archive,
    checkpoint: ArchiveCheckpoint,
    report: Compacted,
) -> None:
    """Move the account's lines of before that millisecond, and those which a crash left in both places.

    `checkpoint` is the one that the archive was opened with.
    """
    await _old_enough(links, account, before)
    held = _held_hashes(archive, account, checkpoint)
    moved = 0
    while True:
        step, lines = checkpoint.copy(), []
        for line in await _first_lines(links, account):
            if line.n not in held and line.milliseconds >= before:
                break
            _fits(step, line)
            step.add(line)
            if held.get(line.n, step.hash) != step.hash:
                raise ArchiveError(f"{archive.path} has another line {line.n} of {account} than the store")
            if line.n not in held:
                lines.append(structs.replace(line, hash=step.hash))
        if step.n == checkpoint.n:
            break
        archive.append(lines)
        await _drop(links, scripts, account, before=checkpoint, after=step)
        moved += step.n - checkpoint.n
        checkpoint = step
    report.lines += moved
    report.accounts += moved > 0


async def _old_enough(links: Links, account: str, before: int) -> None:
    seconds, microseconds = await links.link(slot(account)).call("TIME")
    if before > int(seconds) * 1000 + int(microseconds) // 1000 - MIN_AGE // timedelta(milliseconds=1):
        raise ArchiveError(f"lines stay in the store for {MIN_AGE // timedelta(hours=1)} h: give an earlier moment")


def _held_hashes(archive: Archive, account: str, checkpoint: ArchiveCheckpoint) -> dict[int, str]:
    """The lines that the file has and the stream may have too, once it is sure that the file goes on at the carry."""
    proof = archive.proofs.get(account)
    if proof is None:
        return {}
    if proof.first > checkpoint.n + 1 or proof.head.n < checkpoint.n:
        raise ArchiveError(
            f"{archive.path} has lines {proof.first} to {proof.head.n} of {account}, but {checkpoint.n} were archived:"
            " continue the last archive, or begin a new file"
        )
    if proof.at_carry is not None and proof.at_carry.hash != checkpoint.hash:
        raise ArchiveError(f"{archive.path} has another line {checkpoint.n} of {account} than was archived")
    return proof.surplus


def _fits(checkpoint: ArchiveCheckpoint, line: LedgerLine) -> None:
    if line.n != checkpoint.n + 1 or line.balance != checkpoint.balance + line.amount:
        raise ArchiveError(f"the ledger of {line.account} does not add up at line {line.n}; see gateway audit")


async def _first_lines(links: Links, account: str) -> list[LedgerLine]:
    key = slot(account)
    page = await links.link(key).call("XRANGE", f"{key}:lg", "-", "+", "COUNT", PAGE)
    return [read_line(account, id_, fields) for id_, fields in page]


async def _drop(
    links: Links, scripts: Scripts, account: str, *, before: ArchiveCheckpoint, after: ArchiveCheckpoint
) -> None:
    key = slot(account)
    age = MIN_AGE // timedelta(microseconds=1)
    args: list[str | int] = [before.n, before.hash, age, after.n, after.balance, after.id, after.hash]
    for key_id, total in after.by_key.items():
        if total != before.by_key.get(key_id):
            args += (key_id, total)
    code = await links.link(key).eval(scripts.compact, [key], args)
    if code == MOVED:
        raise ArchiveError(f"another process compacts {account}; nothing was lost, run it again")
    if code == UNKNOWN:
        raise ArchiveError(f"line {after.n} of {account} has changed in the store; see gateway audit")
    if code == YOUNG:
        raise ArchiveError(f"line {after.n} of {account} is younger than {MIN_AGE // timedelta(hours=1)} h")

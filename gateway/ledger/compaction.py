"""Moves old ledger lines from the store into an archive file; the archive checkpoint keeps their sums in the store.

For each page, the lines are first written to the archive, synced and read back. Then one script updates the checkpoint
and deletes the lines. A crash at any point can leave lines in both places but loses none. The next run recognises such
lines by their hashes and continues. Sharp edge: a settlement may come from a journal after its marker has expired. It
is then looked up in the stream, so a line stays in the stream for at least `MIN_AGE`. A settlement that comes after its
line may have been moved is set aside for the operator and not charged.
"""

from __future__ import annotations

from datetime import timedelta

from msgspec import Struct, structs

from gateway.ledger.archive import Archive, ArchiveError
from gateway.ledger.archive_checkpoint import MIN_AGE, MOVED, UNKNOWN, YOUNG, ArchiveCheckpoint, advance
from gateway.ledger.line import LedgerLine, read_line
from gateway.ledger.scripts import Links, Scripts, slot

PAGE = 500  # lines per script: 0.2 ms of Redis's time; in total 20,000 lines per second


class Compacted(Struct):
    """The `gateway compact` document."""

    accounts: int = 0  # with lines that were moved
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
    """Move the account's lines older than `before`, in Unix milliseconds, and lines that a crash left in both places.

    `checkpoint` is the one that the archive was opened with.
    """
    await _check_age(links, account, before)
    held = _held_hashes(archive, account, checkpoint)
    moved = 0
    while True:
        step, lines = checkpoint.copy(), []
        for line in await _first_lines(links, account):
            if line.n not in held and line.milliseconds >= before:
                break
            _check_line(step, line)
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


async def _check_age(links: Links, account: str, before: int) -> None:
    seconds, microseconds = await links.link(slot(account)).call("TIME")
    if before > int(seconds) * 1000 + int(microseconds) // 1000 - MIN_AGE // timedelta(milliseconds=1):
        raise ArchiveError(f"lines stay in the store for {MIN_AGE // timedelta(hours=1)} h: give an earlier moment")


def _held_hashes(archive: Archive, account: str, checkpoint: ArchiveCheckpoint) -> dict[int, str]:
    """Hashes by number of the lines that are in the file and perhaps also in the stream.

    A file that does not continue at the checkpoint is an ArchiveError.
    """
    proof = archive.proofs.get(account)
    if proof is None:
        return {}
    if proof.first > checkpoint.n + 1 or proof.head.n < checkpoint.n:
        raise ArchiveError(
            f"{archive.path} has lines {proof.first} to {proof.head.n} of {account}, but {checkpoint.n} were archived:"
            " continue the last archive, or begin a new file"
        )
    if proof.at_checkpoint is not None and proof.at_checkpoint.hash != checkpoint.hash:
        raise ArchiveError(f"{archive.path} has another line {checkpoint.n} of {account} than was archived")
    return proof.surplus


def _check_line(checkpoint: ArchiveCheckpoint, line: LedgerLine) -> None:
    if line.n != checkpoint.n + 1 or line.balance != checkpoint.balance + line.amount:
        raise ArchiveError(f"the ledger of {line.account} does not add up at line {line.n}; see gateway audit")


async def _first_lines(links: Links, account: str) -> list[LedgerLine]:
    key = slot(account)
    page = await links.link(key).call("XRANGE", f"{key}:lg", "-", "+", "COUNT", PAGE)
    return [read_line(account, id_, fields) for id_, fields in page]


async def _drop(
    links: Links, scripts: Scripts, account: str, *, before: ArchiveCheckpoint, after: ArchiveCheckpoint
) -> None:
    code = await advance(links, scripts.compact, account, before=before, after=after)
    if code == MOVED:
        raise ArchiveError(f"another process compacts {account}; nothing was lost, run it again")
    if code == UNKNOWN:
        raise ArchiveError(f"line {after.n} of {account} has changed in the store; see gateway audit")
    if code == YOUNG:
        raise ArchiveError(f"line {after.n} of {account} is younger than {MIN_AGE // timedelta(hours=1)} h")

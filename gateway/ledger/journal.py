"""Settlements are written to disk before they are sent to Redis, so that a dead worker or a dead store loses none.

    journal = Journal(Path("var/journal"))
    segment = journal.append(entries)     # one write, before Redis
    journal.confirm(segment)              # Redis has it; the segment's file goes `keep` seconds later

Each process owns its files and holds a lock on `<owner>.lock`. If the lock is free, the owner is dead. Another process
then takes over the owner's files as segments of its own, and its checkpoint file (`inflight_checkpoint.py`); see
`recovery.py`. A full segment is closed and a new one begun; files are never rewritten. Sharp edge: nothing is fsynced.
A killed process loses nothing; a power failure may lose the last seconds, as with the store's `everysec`.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import secrets
import time
from collections.abc import Callable, Generator
from pathlib import Path

import msgspec
from msgspec import Struct

from gateway.ledger.entry import Entry
from gateway.ledger.inflight_checkpoint import InflightCheckpoint
from gateway.ledger.refused import REFUSED, RefusedFile

log = logging.getLogger("gateway.ledger")

NOWHERE = -1  # not in a journal
ELSEWHERE = -2  # in a journal, but other code counts its confirmation
KEEP = 60.0  # seconds after the last confirmation: an asynchronous failover can lose what was confirmed before it
SEGMENT_SECONDS = 30.0
MARK_EVERY = 1.0  # seconds
SEGMENT_BYTES = 4 << 20
SETTLED = ".settled.jsonl"  # end of the name of a file whose entries the store had confirmed when its owner stopped

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Entry)


class Segment(Struct):
    """One file: how many of its entries Redis has not confirmed, and when the last was confirmed.

    `unconfirmed`: Redis may have lost entries that it confirmed. This is a flag and not a count: a settlement that
    waited for the reconnect is confirmed after it, which proves nothing about earlier ones.
    """

    number: int
    path: Path
    descriptor: int
    opened: float
    pending: int = 0
    unconfirmed: bool = False
    size: int = 0
    touched: float = 0.0
    settled: bool = False  # the store had confirmed all entries when the owner before this one stopped
    appended: int = 0  # entries written
    marks: list[tuple[float, int]] = []  # a time, and the entries written before it; at most one mark a second
    marked: float = 0.0  # the time of the last mark

    @property
    def closed(self) -> bool:
        return self.descriptor < 0

    @property
    def due(self) -> bool:
        """Whether the segment has to be sent again."""
        return self.unconfirmed or self.pending > 0

    @property
    def oldest(self) -> float:
        """When the oldest entry without a confirmation was written, if they are confirmed in their order."""
        if self.unconfirmed:
            return self.opened
        confirmed = self.appended - self.pending
        return next((at for at, before in reversed(self.marks) if before <= confirmed), self.opened)


class Backlog(Struct, frozen=True):
    """What the store has not confirmed: entries, the bytes of their files, and the age of the oldest in seconds."""

    records: int
    bytes: int
    age: float


class Journal:
    """This process's journal in a folder that all workers share."""

    def __init__(self, folder: Path, *, keep: float = KEEP, segment_seconds: float = SEGMENT_SECONDS) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.folder = folder
        #: Whether every server of the store answers. While one does not, no segment is removed: the server that
        #: replaces it may lack confirmed entries, and the replacement may take any time.
        self.store_is_whole: Callable[[], bool] = lambda: True
        self._keep = keep
        self._segment_seconds = segment_seconds
        self._owner = f"{os.getpid()}-{secrets.token_hex(4)}"
        self._lock = _take_lock(folder / f"{self._owner}.lock")
        self.checkpoint = InflightCheckpoint(folder / f"{self._owner}.board")  # the calls that are not in a segment yet
        self._segments: dict[int, Segment] = {}
        self._current: Segment | None = None
        self._numbers = 0
        self._refused = RefusedFile(folder)

    @property
    def unconfirmed(self) -> int:
        """Entries that may not be in Redis."""
        return sum(max(segment.pending, segment.unconfirmed) for segment in self._segments.values())

    @property
    def backlog(self) -> Backlog:
        """The entries that may not be in Redis. Of a file that another process wrote the entries are not known: 1."""
        due = [segment for segment in self._segments.values() if segment.due]
        records = sum(segment.appended if segment.unconfirmed else segment.pending for segment in due)
        records += sum(not segment.appended for segment in due)
        oldest = min((segment.oldest for segment in due), default=None)
        age = 0.0 if oldest is None else time.monotonic() - oldest
        return Backlog(records, sum(segment.size for segment in due), age)

    def append(self, entries: list[Entry]) -> int:
        """Write entries and return their segment. An error of the disk is logged and returns NOWHERE."""
        lines = _encoder.encode_lines(entries)
        try:
            segment = self._open_segment()
            written = os.write(segment.descriptor, lines)
            if written != len(lines):
                raise OSError(f"only {written} of {len(lines)} bytes were written")
        except OSError as error:
            log.error("the journal cannot be written, settlements go to the store alone: %s", error)
            self.rotate()  # otherwise the next line would be appended to an incomplete one
            return NOWHERE
        segment.pending += len(entries)
        segment.appended += len(entries)
        segment.size += written
        for entry in entries:
            self.checkpoint.clear(entry.request_id)
        return segment.number

    def confirm(self, number: int) -> None:
        """Count one entry of a segment as stored in Redis."""
        segment = self._segments.get(number)
        if segment is not None:
            segment.pending = max(0, segment.pending - 1)
            segment.touched = time.monotonic()

    def refuse(self, entry: Entry, reason: str) -> None:
        """Set an entry aside for the operator, once, unless it charges nothing."""
        if not entry.amount:
            log.warning("the release of request %s of account %s failed: %s", entry.request_id, entry.account, reason)
            return
        try:
            if not self._refused.add(entry):
                return
        except OSError as error:
            log.error("%s cannot be written: %s", REFUSED, error)
        log.error("settlement %s of account %s set aside in %s: %s", entry.request_id, entry.account, REFUSED, reason)

    def rotate(self) -> list[Segment]:
        """Close the current segment and return all segments, oldest first."""
        if self._current is not None:
            os.close(self._current.descriptor)
            self._current.descriptor = -1
            self._current = None
        return list(self._segments.values())

    def mark_unconfirmed(self) -> None:
        """Make all segments due again, because a new or restarted server may lack confirmed entries."""
        for segment in self.rotate():
            segment.unconfirmed = True

    def take_over_file(self, path: Path) -> None:
        """Move a dead owner's file into this journal as a segment that is due; later it is kept like the others."""
        self._numbers += 1
        settled = path.name.endswith(SETTLED)
        mine = self._path(self._numbers, SETTLED if settled else ".jsonl")
        path.rename(mine)
        now = time.monotonic()
        segment = Segment(self._numbers, mine, -1, opened=now, unconfirmed=True, touched=now, settled=settled)
        with contextlib.suppress(OSError):
            found = mine.stat()
            segment.size, segment.opened = found.st_size, now - max(0.0, time.time() - found.st_mtime)
        self._segments[self._numbers] = segment

    def settle(self, segment: Segment) -> None:
        """Mark all entries of a segment as stored in Redis."""
        segment.pending, segment.unconfirmed = 0, False
        segment.touched = time.monotonic()

    def sweep(self) -> None:
        """Remove closed segments whose last confirmation is more than `keep` seconds ago."""
        now = time.monotonic()
        current = self._current
        if current is not None and now - current.opened > self._segment_seconds:
            self.rotate()
        if not self.store_is_whole():
            return
        for segment in list(self._segments.values()):
            if segment.closed and not segment.due and now - segment.touched > self._keep:
                segment.path.unlink(missing_ok=True)
                del self._segments[segment.number]

    def close(self) -> None:
        """Close the files. The next process sends them again; settlements already booked stay unchanged.

        The name of a file tells the next process whether the store has confirmed all of it.
        """
        for segment in self.rotate():
            if not segment.due and not segment.path.name.endswith(SETTLED):
                with contextlib.suppress(OSError):
                    segment.path.rename(self._path(segment.number, SETTLED))
        self.checkpoint.close()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def orphans(self) -> list[tuple[Path, list[Path]]]:
        """The lock and the files of every dead owner."""
        found = []
        for lock in sorted(self.folder.glob("*.lock")):
            owner = lock.name.removesuffix(".lock")
            if owner != self._owner and not _is_locked(lock):
                found.append((lock, sorted(self.folder.glob(f"{owner}.*.jsonl"))))
        return found

    def _path(self, number: int, end: str = ".jsonl") -> Path:
        return self.folder / f"{self._owner}.{number:08d}{end}"

    def _open_segment(self) -> Segment:
        """The segment to write to. Each new segment removes old ones, so no timer is needed while nothing is written.

        This also holds for a segment that replaces a young one: a store that fails every few seconds makes many.
        """
        current, now = self._current, time.monotonic()
        if current is not None and (current.size > SEGMENT_BYTES or now - current.opened > self._segment_seconds):
            self.rotate()
        elif current is not None and now - current.marked > MARK_EVERY:
            current.marks.append((now, current.appended))
            current.marked = now
        if self._current is None:
            self.sweep()
            self._numbers += 1
            path = self._path(self._numbers)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            self._current = Segment(self._numbers, path, descriptor, opened=now, touched=now, marked=now)
            self._segments[self._numbers] = self._current
        return self._current


def read_entries(path: Path) -> Generator[Entry]:
    """The entries of a file; a line that a crash left incomplete is skipped and logged. Close it to close the file."""
    with path.open("rb") as file:
        for line in file:
            try:
                yield _decoder.decode(line)
            except (ValueError, RecursionError) as error:
                log.error("%s: a line is unreadable and skipped: %s", path.name, error)


def _take_lock(path: Path) -> int:
    draft = path.with_suffix(".new")  # locked before it gets its name, so that no process sees it unlocked
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    draft.rename(path)
    return descriptor


def _is_locked(path: Path) -> bool:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False

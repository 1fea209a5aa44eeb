"""Settlements on disk before they are in Redis, so that neither a dead worker nor a dead store loses one.

    journal = Journal(Path("var/journal"))
    segment = journal.append(entries)     # one write, before Redis
    journal.confirm(segment)              # Redis has it; the segment's file goes `keep` seconds later

Each process owns its files and holds a lock on `<owner>.lock`; those of an owner whose lock is free belong to the dead,
as does its checkpoint file (`inflight_checkpoint.py`), and become segments of the heir (`recovery.py`). Files are
closed in segments rather than rewritten. Sharp edge: nothing is fsynced. A killed process loses nothing; a power cut
may lose the last seconds, as the store's everysec does.
"""

from __future__ import annotations

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

log = logging.getLogger("gateway.ledger")

NOWHERE = -1  # not in a journal
ELSEWHERE = -2  # in a journal, but somebody else keeps its account
KEEP = 60.0  # seconds after the last confirmation: an asynchronous failover can lose what was confirmed before it
SEGMENT_SECONDS = 30.0
SEGMENT_BYTES = 4 << 20
REFUSED = "refused.jsonl"  # entries that no account takes: for the operator's eyes

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Entry)


class Segment(Struct):
    """One file: how many of its entries Redis has not confirmed, and when it was last busy.

    `unconfirmed`: Redis may have forgotten what it confirmed. This is no matter of counting, for a settlement that
    waited for the reconnect is confirmed after it, and says nothing of those before it.
    """

    number: int
    path: Path
    descriptor: int
    opened: float
    pending: int = 0
    unconfirmed: bool = False
    size: int = 0
    touched: float = 0.0

    @property
    def closed(self) -> bool:
        return self.descriptor < 0

    @property
    def due(self) -> bool:
        """Whether it has to be sent again."""
        return self.unconfirmed or self.pending > 0


class Journal:
    """This process's journal in a folder that all workers share."""

    def __init__(self, folder: Path, *, keep: float = KEEP, segment_seconds: float = SEGMENT_SECONDS) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.folder = folder
        #: Whether every server of the store answers. While one is away nothing is forgotten: the server that takes over
        #: may know less than was confirmed, however long it takes until one does.
        self.store_is_whole: Callable[[], bool] = _always
        self._keep = keep
        self._segment_seconds = segment_seconds
        self._owner = f"{os.getpid()}-{secrets.token_hex(4)}"
        self._lock = _take_lock(folder / f"{self._owner}.lock")
        self.checkpoint = InflightCheckpoint(folder / f"{self._owner}.board")  # the calls that are in no segment yet
        self._segments: dict[int, Segment] = {}
        self._current: Segment | None = None
        self._numbers = 0

    @property
    def unconfirmed(self) -> int:
        """Entries that may not be in Redis."""
        return sum(max(segment.pending, segment.unconfirmed) for segment in self._segments.values())

    def append(self, entries: list[Entry]) -> int:
        """Write entries and return their segment; NOWHERE when the disk refuses, which is logged."""
        lines = _encoder.encode_lines(entries)
        try:
            segment = self._open_segment()
            written = os.write(segment.descriptor, lines)
            if written != len(lines):
                raise OSError(f"only {written} of {len(lines)} bytes were written")
        except OSError as error:
            log.error("the journal cannot be written, settlements go to the store alone: %s", error)
            self.rotate()  # a torn line must not swallow the next one
            return NOWHERE
        segment.pending += len(entries)
        segment.size += written
        for entry in entries:
            self.checkpoint.clear(entry.request_id)
        return segment.number

    def confirm(self, number: int) -> None:
        """One entry of a segment is in Redis."""
        segment = self._segments.get(number)
        if segment is not None:
            segment.pending = max(0, segment.pending - 1)
            segment.touched = time.monotonic()

    def refuse(self, entry: Entry, reason: str) -> None:
        """Set an entry aside for the operator."""
        log.error("settlement %s of account %s set aside in %s: %s", entry.request_id, entry.account, REFUSED, reason)
        try:
            with (self.folder / REFUSED).open("ab") as file:
                file.write(_encoder.encode(entry) + b"\n")
        except OSError as error:
            log.error("%s cannot be written: %s", REFUSED, error)

    def rotate(self) -> list[Segment]:
        """Close the current segment; all that are kept, oldest first."""
        if self._current is not None:
            os.close(self._current.descriptor)
            self._current.descriptor = -1
            self._current = None
        return list(self._segments.values())

    def mark_unconfirmed(self) -> None:
        """Another server, or another life of it, may know less than was confirmed: all that is kept is due again."""
        for segment in self.rotate():
            segment.unconfirmed = True

    def read(self, segment: Segment) -> Generator[Entry]:
        """The entries of one segment; close it, or the file stays open."""
        return read_entries(segment.path)

    def take_over_file(self, path: Path) -> None:
        """Make a dead owner's file a segment of this journal, by moving it: due now, and then kept as long as any."""
        self._numbers += 1
        mine = self._path(self._numbers)
        path.rename(mine)
        now = time.monotonic()
        self._segments[self._numbers] = Segment(self._numbers, mine, -1, opened=now, unconfirmed=True, touched=now)

    def settle(self, segment: Segment) -> None:
        """All of a segment is in Redis."""
        segment.pending, segment.unconfirmed = 0, False
        segment.touched = time.monotonic()

    def sweep(self) -> None:
        """Remove segments that are closed and confirmed for long enough."""
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
        """Let go of the files; the next process replays them, which changes nothing that is booked."""
        self.rotate()
        self.checkpoint.close()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def orphans(self) -> list[tuple[Path, list[Path]]]:
        """Lock and files of every owner that is dead."""
        found = []
        for lock in sorted(self.folder.glob("*.lock")):
            owner = lock.name.removesuffix(".lock")
            if owner != self._owner and not _is_locked(lock):
                found.append((lock, sorted(self.folder.glob(f"{owner}.*.jsonl"))))
        return found

    def _path(self, number: int) -> Path:
        return self.folder / f"{self._owner}.{number:08d}.jsonl"

    def _open_segment(self) -> Segment:
        """The segment to write to; with each new one old ones go, so no timer is needed while nothing is written.

        Also with one that replaces a young one: a store that fails every few seconds closes them all early.
        """
        current = self._current
        if current is not None and (
            current.size > SEGMENT_BYTES or time.monotonic() - current.opened > self._segment_seconds
        ):
            self.rotate()
        if self._current is None:
            self.sweep()
            self._numbers += 1
            path = self._path(self._numbers)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            now = time.monotonic()
            self._current = Segment(self._numbers, path, descriptor, opened=now, touched=now)
            self._segments[self._numbers] = self._current
        return self._current


def _always() -> bool:
    return True


def read_entries(path: Path) -> Generator[Entry]:
    """The entries of a file; a line torn by a crash is skipped and logged."""
    with path.open("rb") as file:
        for line in file:
            try:
                yield _decoder.decode(line)
            except msgspec.MsgspecError as error:
                log.error("%s: a line is unreadable and skipped: %s", path.name, error)


def _take_lock(path: Path) -> int:
    draft = path.with_suffix(".new")  # it gets its name locked, or somebody could take its owner for dead in between
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

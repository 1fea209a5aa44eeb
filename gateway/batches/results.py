"""The log of the results of one batch: what makes it resumable after a kill at any moment.

::

    log, kept = ResultLog.open(path)     # `kept`: what an earlier process has written; a torn end is cut off
    log.append(result)                   # one write, in the step of the event loop in which the call is settled
    await asyncio.to_thread(log.sync)

A result is the answer of a line together with the settlement of its call. The settlement goes to the journal in a later
step of the event loop, so whenever a process is killed, one of these holds: the line has no result, and its call was
not settled (recovery releases the hold, and the line runs again); or the line has a result, whose settlement is sent
again by the next process, which the store books once. Sharp edge: a power failure may lose results that were not
synced, as it may lose the last settlements.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Raw, Struct

from gateway.ledger.entry import Entry

_encode = msgspec.json.Encoder().encode


class Result(Struct, array_like=True, frozen=True):
    """What became of one line."""

    number: int  # of the line in the input, from 1
    is_ok: bool  # it goes into the output file, else into the file of errors
    cost: int  # nano-units that the call owes
    entry: Entry | None  # the settlement; None for a line that costs nothing
    line: Raw  # of the file, JSON


_decoder = msgspec.json.Decoder(Result)


class Kept(Struct):
    """What a log had when it was opened."""

    numbers: set[int]
    completed: int = 0
    cost: int = 0
    entries: list[Entry] = []  # settlements that may be in no journal


class ResultLog:
    """The results of one batch, in the order in which they came."""

    def __init__(self, path: Path, descriptor: int, size: int) -> None:
        self.path = path
        self.size = size  # bytes
        self._descriptor = descriptor

    @classmethod
    def open(cls, path: Path, *, settled: int = 0) -> tuple[ResultLog, Kept]:
        """Open a log, or make it. `settled`: bytes whose settlements are known to be in a journal. OSError."""
        kept, size = Kept(set()), 0
        for start, result in _complete(path):
            size = start[1]
            if result.number in kept.numbers:
                continue
            kept.numbers.add(result.number)
            kept.completed += result.is_ok
            kept.cost += result.cost
            if result.entry is not None and start[0] >= settled:
                kept.entries.append(result.entry)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.ftruncate(descriptor, size)
        os.lseek(descriptor, size, os.SEEK_SET)
        return cls(path, descriptor, size), kept

    def append(self, result: Result) -> None:
        """Add a result; after an OSError nothing of it is in the log."""
        data = _encode(result) + b"\n"
        try:
            written = os.write(self._descriptor, data)
            if written != len(data):
                raise OSError(f"only {written} of {len(data)} bytes were written")
        except OSError:
            os.ftruncate(self._descriptor, self.size)
            os.lseek(self._descriptor, self.size, os.SEEK_SET)
            raise
        self.size += len(data)

    def sync(self) -> None:
        """Make what was added durable."""
        os.fsync(self._descriptor)

    def results(self) -> Iterator[Result]:
        """Each line's result, from the start."""
        numbers = set[int]()
        for _, result in _complete(self.path):
            if result.number not in numbers:
                numbers.add(result.number)
                yield result

    def close(self) -> None:
        """Close the file."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def _complete(path: Path) -> Iterator[tuple[tuple[int, int], Result]]:
    """Start, end and content of the results of a file, up to the first one that is not whole."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        start = 0
        for data in file:
            if not data.endswith(b"\n"):
                return
            try:
                result = _decoder.decode(data)
            except (msgspec.MsgspecError, UnicodeDecodeError):
                return
            yield (start, start + len(data)), result
            start += len(data)

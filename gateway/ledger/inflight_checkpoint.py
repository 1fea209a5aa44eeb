"""The running calls of a worker and the charge of each at this moment, in a file that survives a killed worker.

::

    checkpoint.admit(account, request_id, key_id)  # before the call is admitted
    slot = checkpoint.put(request_id, body)        # when its answer begins
    slot.delivered(units)                          # with each chunk: one write into a mapped page, 0.07 µs
    checkpoint.clear(request_id)                   # once its settlement is in the journal

The kernel keeps the pages of a killed process. The process that takes over its journal settles the calls in its file.
Sharp edge: the kernel decides when the pages reach the disk. After a crash of the machine the amounts stored by the
lease renewals are newer, so only the names of the calls are read from a file of another boot.
"""

from __future__ import annotations

import logging
import mmap
import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from gateway.ledger.checkpoint_record import encode_admitted, read_checkpoint
from gateway.ledger.entry import Entry

log = logging.getLogger("gateway.ledger")

SLOT = 1024  # bytes of one call: its state, the units delivered, its record
SLOTS = 256  # slots by which the file grows
WORD = 8
ROOM = SLOT - 2 * WORD
LAYOUT = b"board 1\n"  # the first bytes of the file; another release may have another layout
BOOT = Path("/proc/sys/kernel/random/boot_id")


class Slot:
    """The place of a call in the file."""

    __slots__ = ("_block", "_state", "_words", "shared")

    def __init__(self, block: mmap.mmap | bytearray, words: memoryview, *, state: int) -> None:
        self.shared = False  # whether a caller has it, and may write to it after it was freed
        self._block = block
        self._words = words  # the block as 64-bit words: a kill cannot interrupt the store of an aligned word
        self._state = state  # number of the slot's first word

    def delivered(self, units: int) -> None:
        """Store the total of delivered units."""
        self._words[self._state + 1] = units

    def write(self, body: bytes, units: int = 0) -> None:
        """Fill a free slot. The state is written last and marks the slot as taken."""
        start = (self._state + 2) * WORD
        self._block[start : start + len(body)] = body
        self._words[self._state + 1] = units
        self._words[self._state] = _state_of(body)

    def vacate(self, waste: Slot) -> Slot:
        """Free the slot and return an object for its next use. Later writes to this object go to `waste`."""
        self._words[self._state] = 0
        if not self.shared:
            return self
        free = Slot(self._block, self._words, state=self._state)
        self._block, self._words, self._state = waste._block, waste._words, waste._state
        return free


class InflightCheckpoint:
    """The running calls of this process by request id; without a path it stores nothing.

    A call that is put and cleared costs 1.1 µs, a stream with its record 3.5 µs.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._grows = path is not None
        self._size = 0
        self._free: list[Slot] = []
        self._slots: dict[str, Slot] = {}
        waste = bytearray(2 * WORD)
        self._waste = Slot(waste, memoryview(waste).cast("q"), state=0)

    def admit(self, account: str, request_id: str, key_id: str) -> None:
        """Store a call that has delivered nothing yet."""
        self._write(request_id, encode_admitted(account, request_id, key_id))

    def put(self, request_id: str, body: bytes, units: int = 0) -> Slot:
        """Store a call that delivers, as `encode_stream` made it, and return the slot for its units.

        A call that has such a slot and is put again keeps the old one if there is no room for the new one.
        """
        slot = self._write(request_id, body, units)
        if slot is self._waste:
            slot = self._slots.get(request_id, slot)
        slot.shared = True
        return slot

    def _write(self, request_id: str, body: bytes, units: int = 0) -> Slot:
        """Write a call's new slot before its old one is freed, so that the file has one at every moment.

        If the disk is full or the call's names are too long, the call has no slot. After a crash it is then charged the
        amount of its last lease renewal.
        """
        if not self._free and not self._grow():
            return self._waste
        if len(body) > ROOM:
            return self._waste
        place = self._free.pop()
        place.write(body, units)
        before = self._slots.get(request_id)
        self._slots[request_id] = place
        if before is not None:
            self._free.append(before.vacate(self._waste))
        return place

    def clear(self, request_id: str) -> None:
        """Remove a call that has ended and whose settlement is in the journal or in the store."""
        place = self._slots.pop(request_id, None)
        if place is not None:
            self._free.append(place.vacate(self._waste))

    def close(self) -> None:
        """Close the file; it is removed unless it contains calls."""
        if self._path is not None and not self._slots:
            self._path.unlink(missing_ok=True)
        self._grows = False
        self._free.clear()
        self._slots.clear()

    def _grow(self) -> bool:
        if self._path is None or not self._grows:
            return False
        try:
            block = self._map_more(self._path)
        except OSError as error:
            self._grows = False
            log.error("the checkpoint file cannot grow, calls beyond %d are not in it: %s", len(self._slots), error)
            return False
        words = memoryview(block).cast("q")
        first = 0 if self._size else 1  # the first slot of the file holds its head
        self._free += [Slot(block, words, state=slot * SLOT // WORD) for slot in reversed(range(first, SLOTS))]
        self._size += len(block)
        return True

    def _map_more(self, path: Path) -> mmap.mmap:
        content = (b"" if self._size else _head()).ljust(SLOT * SLOTS, b"\0")
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            # Zeros are written instead of a truncate: on a full disk, a write into a hole raises SIGBUS.
            if os.pwrite(descriptor, content, self._size) != len(content):
                raise OSError("the disk is full")
            return mmap.mmap(descriptor, len(content), offset=self._size)
        finally:
            os.close(descriptor)


class Orphans(Struct):
    """The calls of a dead process: settlements of those that delivered, and the request ids of others by account."""

    entries: list[Entry] = []
    others: dict[str, list[str]] = {}


def read_inflight_checkpoint(path: Path) -> Orphans:
    """The calls in a checkpoint file; none if the file does not exist."""
    left = Orphans()
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return left
    counted = content.startswith(_head())
    for body, units in _bodies(content, path.name):
        try:
            account, request_id, entry = read_checkpoint(body, units)
        except ValueError as error:  # also msgspec's errors
            _log_unreadable(path.name, error)
            continue
        if counted and entry is not None:
            left.entries.append(entry)
        else:
            left.others.setdefault(account, []).append(request_id)
    return left


def _bodies(content: bytes, name: str) -> Iterator[tuple[bytes, int]]:
    """The body and the units of every slot that is taken and complete."""
    if not content.startswith(LAYOUT):
        return
    for start in range(SLOT, len(content) - SLOT + 1, SLOT):
        state, units = struct.unpack_from("@qq", content, start)
        if not state:
            continue
        at = start + 2 * WORD
        body = content[at : at + (state & 0xFFFF)]
        if state == _state_of(body):
            yield body, units
        else:
            _log_unreadable(name, "torn")


def _log_unreadable(name: str, reason: object) -> None:
    log.error("%s: a call is unreadable and is charged when its lease ends: %s", name, reason)


def _state_of(body: bytes) -> int:
    """A checksum and the length, never 0. The checksum detects pages that a crash of the machine left incomplete."""
    return zlib.crc32(body) << 16 | len(body)


def _head() -> bytes:
    """The layout and the id of the boot in which the file was written."""
    try:
        return LAYOUT + BOOT.read_bytes()
    except OSError:
        return LAYOUT  # not Linux

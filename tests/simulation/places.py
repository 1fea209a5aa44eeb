"""What the processes of one machine share: its clock, its boot, and its disk."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast
from unittest import mock

from gateway.ledger import inflight_checkpoint
from tests.simulation.processes import CURRENT, Process

PAGE = inflight_checkpoint.SLOT  # bytes that reach the disk together
Files = dict[str, bytes]  # by name


class Place:
    """One machine."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder = name, folder
        self.boot = 1
        self.ahead = 0.0  # seconds by which its clock is ahead
        self.is_full = False  # its disk

    def files(self) -> Files:
        """What the disk has at this moment."""
        return {path.name: path.read_bytes() for path in self.folder.iterdir() if path.is_file()}

    def lose_writes(self, before: Files, dice: random.Random) -> None:
        """Another boot. Of what was written since `before`, a part never reached the disk.

        An appended file may end at any byte, and each page of a mapped one may be the old one. A new file may be
        missing, and a removed one may be back.
        """
        self.boot += 1
        now = self.files()
        for name in sorted(before.keys() | now.keys()):
            path = self.folder / name
            old, new = before.get(name), now.get(name)
            if new is None:
                if dice.random() < 0.3:
                    path.write_bytes(cast("bytes", old))
            elif old is None and dice.random() < 0.3:
                path.unlink()
            elif name.endswith(".board"):
                path.write_bytes(_pages(old or b"", new, dice))
            elif name.endswith(".jsonl"):
                path.write_bytes(new[: dice.randrange(min(len(old or b""), len(new)), len(new) + 1)])


def _pages(old: bytes, new: bytes, dice: random.Random) -> bytes:
    old = old.ljust(len(new), b"\0")
    starts = range(0, len(new), PAGE)
    return b"".join((new if dice.random() < 0.5 else old)[start : start + PAGE] for start in starts)


def place() -> Place | None:
    """The machine of the running process."""
    process: Process | None = CURRENT.get(None)
    return None if process is None else process.place


class _Boot:
    """In the place of the kernel's file with the id of the boot."""

    def read_bytes(self) -> bytes:
        found = place()
        return b"boot %d of %b\n" % ((found.boot, found.name.encode()) if found is not None else (0, b"nothing"))


def _limited(write: Callable[..., int]) -> Callable[..., int]:
    """A full disk takes the half of the bytes, or none."""

    def limited(descriptor: int, content: Any, *rest: Any) -> int:
        found = place()
        if found is not None and found.is_full:
            if len(content) < PAGE:
                raise OSError(errno.ENOSPC, "No space left on device")
            content = content[: len(content) // 2]
        return write(descriptor, content, *rest)

    return limited


@contextmanager
def disks_of_places() -> Iterator[None]:
    """Writes and boots are those of the machine of the running process."""
    with (
        mock.patch.object(inflight_checkpoint, "BOOT", _Boot()),
        mock.patch.object(os, "write", _limited(os.write)),
        mock.patch.object(os, "pwrite", _limited(os.pwrite)),
    ):
        yield

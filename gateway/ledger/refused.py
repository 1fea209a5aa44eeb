"""`refused.jsonl`: settlements that the store refused, for the operator; `gateway refused` reads and books them.

Workers append to the file. `take` renames it first, so that a worker that appends meanwhile begins a new one. What is
not booked is appended again. If the command is killed in between, the next one finds the renamed file. Sharp edge: an
entry may be booked any number of times, because the store charges a request once.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable
from pathlib import Path

import msgspec

from gateway.ledger.entry import Entry

REFUSED = "refused.jsonl"
TAKEN = "refused.taken-*.jsonl"

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Entry)


class RefusedFileError(Exception):
    """The file cannot be read; the text is one line for the operator."""


class RefusedFile:
    """The file in one journal folder, with the ids of the requests that are in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / REFUSED
        self._known: set[tuple[str, str]] = set()
        self._stamp: tuple[int, int] = (0, 0)

    def add(self, entry: Entry) -> bool:
        """Append an entry; False if the file has one of this request, because a journal was sent again."""
        self._look()
        mark = (entry.account, entry.request_id)
        if mark in self._known:
            return False
        self._append([entry])
        self._known.add(mark)
        self._stamp = _stamp_of(self.path)
        return True

    def read(self) -> list[Entry]:
        """All entries, each request once, the first that was set aside first."""
        return _once_each(entry for path in (*self._taken(), self.path) for entry in _entries(path))

    def take(self) -> list[Entry]:
        """All entries; from now on the file is empty until `give_back`."""
        self.read()  # a file with a line that cannot be read stays as it is
        if self.path.exists():
            self.path.rename(self.folder / TAKEN.replace("*", f"{os.getpid()}-{secrets.token_hex(4)}"))
        return self.read()

    def give_back(self, entries: Iterable[Entry]) -> None:
        """Keep these of the taken entries, and forget the others."""
        taken = self._taken()
        left = list(entries)
        if left:
            self._append(left)
        for path in taken:
            path.unlink(missing_ok=True)

    def _taken(self) -> list[Path]:
        return sorted(self.folder.glob(TAKEN))

    def _append(self, entries: list[Entry]) -> None:
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, _encoder.encode_lines(entries))
        finally:
            os.close(descriptor)

    def _look(self) -> None:
        """Read the file again if another process has changed it."""
        stamp = _stamp_of(self.path)
        if stamp != self._stamp:
            self._stamp = stamp
            try:
                self._known = {(entry.account, entry.request_id) for entry in _entries(self.path)}
            except RefusedFileError:
                self._known = set()  # the entry is kept, perhaps twice; `gateway refused` names the line


def _entries(path: Path) -> list[Entry]:
    """The entries of a file; RefusedFileError names a line that cannot be read."""
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        return []
    found = []
    for number, line in enumerate(lines, 1):
        try:
            found.append(_decoder.decode(line))
        except (ValueError, RecursionError) as error:
            raise RefusedFileError(f"{path}, line {number}: {error}") from None
    return found


def _once_each(entries: Iterable[Entry]) -> list[Entry]:
    found: dict[tuple[str, str], Entry] = {}
    for entry in entries:
        found.setdefault((entry.account, entry.request_id), entry)
    return list(found.values())


def _stamp_of(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError:
        return (0, 0)
    return found.st_ino, found.st_size

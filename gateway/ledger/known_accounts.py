"""The number of accounts that the store is known to have, in a file beside the journal.

An emptied store audits clean by itself: nothing in it says what is gone. Accounts are never deleted, so a smaller
number than before is a loss. Sharp edge: each machine knows only what its own commands and audits have seen.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Struct

NAME = "accounts.json"


class _Known(Struct):
    """The content of the file."""

    accounts: Annotated[int, msgspec.Meta(ge=0)] = 0


class KnownAccounts:
    """The file in a data directory."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME

    def read(self) -> int:
        """The number; 0 if there is no file, or an unreadable one."""
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=_Known).accounts
        except (OSError, ValueError, RecursionError):
            return 0

    def write(self, number: int) -> None:
        """Replace the number; OSError if the folder cannot be written."""
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = self._path.with_suffix(".new")
        draft.write_bytes(msgspec.json.encode(_Known(number)) + b"\n")
        draft.replace(self._path)

    def raise_to(self, number: int) -> None:
        """`write`, unless the number is not above the one that is known."""
        if number > self.read():
            self.write(number)

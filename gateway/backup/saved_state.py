"""The states of accounts and keys in a backup, to compare them with a newer state. Reading checks the whole file."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from gateway.backup.account_export import OF_ACCOUNT
from gateway.backup.account_pages import KEY
from gateway.backup.records import Part


class SavedAccount(Struct):
    """An account as the backup has it."""

    state: str = ""
    seq: int = 0
    last_id: str = "-"  # of its last ledger line in the store
    keys: dict[str, str] = {}  # states by key id


class SavedState(Struct):
    """What a backup has of a store."""

    accounts: dict[str, SavedAccount] = {}
    records: int = 0
    database: str = ""  # id of the database with its history


def read_saved_state(parts: Iterable[Part]) -> SavedState:
    """Read all parts; BackupError of `read_records` if the file is damaged."""
    saved = SavedState()
    for part in parts:
        saved.records += 1
        if match := OF_ACCOUNT.fullmatch(part.key):
            _note(saved.accounts.setdefault(match[1], SavedAccount()), match[2], part)
        elif part.key == "history:database":
            saved.database = part.values[0].decode()
    return saved


def _note(account: SavedAccount, end: str, part: Part) -> None:
    if end == "":
        fields = _fields(part)
        account.state, account.seq = fields.get("state", ""), int(fields.get("seq", "0"))
    elif end.startswith(KEY):
        account.keys[end.removeprefix(KEY)] = _fields(part).get("state", account.keys.get(end.removeprefix(KEY), ""))
    elif end == ":lg":
        account.last_id = part.values[-1][0].decode()


def _fields(part: Part) -> dict[str, Any]:
    values = [value.decode(errors="replace") for value in part.values]
    return dict(zip(values[::2], values[1::2], strict=True))

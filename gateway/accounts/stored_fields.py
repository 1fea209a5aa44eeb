"""Reads the fields of an account or a key from its hash, so that one which cannot be read hides no other.

Such a field counts as absent, and the record gets the state `UNREADABLE`. A newer version of the gateway, or a hand in
the store, may have written it; setting it again mends it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import TypeVar

UNREADABLE = "unreadable"  # in place of the state `active`

T = TypeVar("T")


class StoredFields:
    """The fields of one hash by name; values as stored."""

    def __init__(self, pairs: Iterable[tuple[bytes, bytes | None]]) -> None:
        self._values = {name.decode(errors="replace"): value for name, value in pairs if value is not None}
        self.unreadable: list[str] = []  # names, in the order in which they were asked for

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def __getitem__(self, name: str) -> str:
        """A text; characters that are not UTF-8 are replaced. KeyError if it is not stored."""
        return self._values[name].decode(errors="replace")

    def get(self, name: str, default: str = "") -> str:
        """A text, or `default` if it is not stored."""
        return self[name] if name in self._values else default

    def read(self, name: str, parse: Callable[[str], T], default: T) -> T:
        """What `parse` makes of a text; `default` if it is not stored or `parse` raises ValueError."""
        if name not in self._values:
            return default
        try:
            return parse(self[name])
        except (ValueError, OverflowError):
            self.unreadable.append(name)
            return default

    def number(self, name: str) -> int | None:
        """An integer; None if it is not stored."""
        return self.read(name, int, None)

    def moment(self, name: str) -> datetime | None:
        """A time that is stored in Unix seconds; None if it is not stored."""
        return self.read(name, _moment, None)

    def state(self) -> str:
        """The stored state, `UNREADABLE` in place of an active one if a field that was asked for cannot be read."""
        stored = self.get("state")
        return UNREADABLE if self.unreadable and stored == "active" else stored


def hash_pairs(reply: dict[bytes, bytes] | list[bytes]) -> Iterable[tuple[bytes, bytes]]:
    """Names and values of a hash in a reply: a dict in RESP3, a flat list in RESP2."""
    return reply.items() if isinstance(reply, dict) else zip(reply[::2], reply[1::2], strict=True)


def _moment(text: str) -> datetime:
    return datetime.fromtimestamp(int(text), UTC)

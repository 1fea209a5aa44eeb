"""The values of the model, and when each ends."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from tests.simulation.replies import WRONG_TYPE, Fault

V = TypeVar("V")
Id = tuple[int, int]
LAST: Id = (2**64 - 1, 2**64 - 1)


def integer(text: bytes, error: str = "ERR value is not an integer or out of range") -> int:
    """A signed integer of 64 bits as the server reads it."""
    sign = text[:1] == b"-"
    digits = text[1:] if sign else text
    if not digits.isdigit() or (digits[:1] == b"0" and (len(digits) > 1 or sign)):
        raise Fault(error)
    value = int(text)
    if not -(2**63) <= value < 2**63:
        raise Fault(error)
    return value


def score_of(text: bytes) -> float:
    """A score as the server reads it."""
    try:
        value = float(text)
    except ValueError:
        raise Fault("ERR value is not a valid float") from None
    if value != value:
        raise Fault("ERR value is not a valid float")
    return value


class ZSet:
    """A sorted set."""

    def __init__(self) -> None:
        self.scores: dict[bytes, float] = {}

    def ordered(self) -> list[tuple[bytes, float]]:
        """Its members by score, then by name."""
        return sorted(self.scores.items(), key=lambda pair: (pair[1], pair[0]))

    def __len__(self) -> int:
        return len(self.scores)


class Stream:
    """A stream: its entries by id, and the last id that it gave, which outlives the entry."""

    def __init__(self) -> None:
        self.entries: dict[Id, list[bytes]] = {}  # in the order of their ids
        self.last: Id = (0, 0)

    def __len__(self) -> int:
        return 1  # an empty stream stays, because its last id does

    def add(self, wanted: bytes, fields: list[bytes], *, now: int) -> bytes:
        """Append an entry; returns its id."""
        if wanted == b"*":
            found = (now, 0) if now > self.last[0] else (self.last[0], self.last[1] + 1)
        else:
            found = self._next(int(wanted[:-2])) if wanted.endswith(b"-*") else _id(wanted, 0)
            if found <= self.last:
                raise Fault("ERR The ID specified in XADD is equal or smaller than the target stream top item")
        self.entries[found] = fields
        self.last = found
        return b"%d-%d" % found

    def _next(self, time: int) -> Id:
        return (time, self.last[1] + 1) if time == self.last[0] else (time, 0)

    def between(self, first: bytes, last: bytes) -> list[list[Any]]:
        """The entries of a range of ids; `(` leaves the end out."""
        least, most = _edge(first, 0), _edge(last, LAST[1])
        return [
            [b"%d-%d" % found, fields]
            for found, fields in self.entries.items()
            if (found > least if first[:1] == b"(" else found >= least)
            and (found < most if last[:1] == b"(" else found <= most)
        ]

    def remove(self, ids: Iterable[bytes]) -> int:
        """Remove entries; returns how many were there."""
        return sum(self.entries.pop(_id(one, 0), None) is not None for one in ids)

    def trim(self, least: bytes) -> int:
        """Remove the entries before an id."""
        gone = [found for found in self.entries if found < _id(least, 0)]
        for found in gone:
            del self.entries[found]
        return len(gone)


def _edge(text: bytes, step: int) -> Id:
    if text in (b"-", b"+"):
        return (0, 0) if text == b"-" else LAST
    return _id(text.removeprefix(b"("), step)


def _id(text: bytes, step: int) -> Id:
    before, _, after = text.partition(b"-")
    if not before.isdigit() or not (after or b"0").isdigit():
        raise Fault("ERR Invalid stream ID specified as stream command argument")
    return int(before), int(after) if after else step


class Keyspace:
    """Values by name; `now` gives Unix milliseconds. A value whose time is over is gone when it is next asked for."""

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self.values: dict[bytes, Any] = {}
        self.ends: dict[bytes, int] = {}

    def get(self, name: bytes) -> Any:
        """The value; None if there is none."""
        end = self.ends.get(name)
        if end is not None and end <= self._now():
            self.remove(name)
        return self.values.get(name)

    def typed(self, name: bytes, kind: type[V]) -> V | None:
        """The value of this type; None if there is none."""
        found = self.get(name)
        if found is not None and type(found) is not kind:
            raise Fault(WRONG_TYPE)
        return found

    def read(self, name: bytes, kind: type[V]) -> V:
        """The value of this type, or an empty one that is not kept."""
        found = self.typed(name, kind)
        return kind() if found is None else found

    def made(self, name: bytes, kind: type[V]) -> V:
        """The value of this type; an empty one is kept, so `tidy` must follow if it may stay empty."""
        found = self.typed(name, kind)
        if found is None:
            found = self.values[name] = kind()
        return found

    def tidy(self, name: bytes) -> None:
        """Remove a value that has become empty."""
        found = self.values.get(name)
        if found is not None and not isinstance(found, bytes) and not _size(found):
            self.remove(name)

    def put(self, name: bytes, value: Any) -> None:
        """Replace a value of any type; it has no end."""
        self.values[name] = value
        self.ends.pop(name, None)

    def change(self, name: bytes, value: Any) -> None:
        """Replace a value, which keeps its end."""
        self.values[name] = value

    def remove(self, name: bytes) -> bool:
        """Whether there was a value."""
        alive = name not in self.ends or self.ends[name] > self._now()
        self.ends.pop(name, None)
        return self.values.pop(name, None) is not None and alive

    def rename(self, name: bytes, to: bytes) -> None:
        """Move a value with its end over another one."""
        value, end = self.values.pop(name), self.ends.pop(name, None)
        self.put(to, value)
        if end is not None:
            self.ends[to] = end

    def expire(self, name: bytes, at: int) -> None:
        """End a value at this time, or now."""
        if at <= self._now():
            self.remove(name)
        else:
            self.ends[name] = at


def _size(found: Any) -> int:
    if isinstance(found, Stream):
        return len(found.entries) or int(found.last != (0, 0))
    return len(found)

"""Texts at the ends of what a parameter of a query may be, and beyond: numbers, times, cursors and names."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import msgspec

from gateway.database.address import DatabaseAddress

T = TypeVar("T")

TEXTS = (
    "-1", "0", "00", "1_0", "1e1", "0x10", "1.5", "\u0661", "\u00b2", "9" * 17, "9" * 18, "1" * 400,
    f"{2**63}", f"{2**64}",
    "9e999999", "1e999999999", "-9e999999", "NaN", "sNaN", "Infinity", "-0",
    "0001-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59Z", "9999-12-31T23:59:59-14:00",
    "1969-12-31T23:59:59Z", "1970-01-01T00:00:00Z", "1970-01-01T00:00:00+14:00", "9998-12-31T23:59:59-14:00",
    "2026-10-01T00:00:00", "2026-02-30T00:00:00Z", "20261001T000000Z", "10000-01-01T00:00:00Z",
    "0001-01-01", "9999-12-31", "1970-01-01", "9998-12-31", "2026-W01-1", "0000-00", "9999-12", "2026-13",
    "true", "null", "[]", "{}", "%", "'", '"><script>', "\ud7ff\ue000", "\U0001f600", "../..", "x" * 5000,
    "a,b,,c", "=",
    "-".join("9" * 18 for _ in range(2)), f"1.{'9' * 18}-{'9' * 18}.-{'9' * 18}", "9.9.9.acme", "9" * 17 + ".1.1.acme",
    f"{'9' * 17}.{'9' * 17}.{'9' * 17}.acme", f"{'9' * 17}.{'9' * 17}.acme", f"1.{'9' * 18}.acme", "cost", "duration",
)  # fmt: skip
#: Times that leave the calendar in another time zone, or in the computation of a range.
MOMENTS = (
    "0001-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00", "1969-12-31T23:59:59Z", "1970-01-01T00:00:00+14:00",
    "9999-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "9999-12-31T23:59:59-14:00",
)  # fmt: skip
#: Values of one position of a cursor.
ENDS = (0, -1, 1, 2**63 - 1, 2**63, 2**64 - 1, -(2**63), "", "x", "\0", "\U0001f600", "acme", "x" * 5000)


def divided(texts: Iterable[T], database: DatabaseAddress, at: int) -> list[T]:
    """A third of the texts for PostgreSQL and the others for SQLite, so that each is tried once; `at` turns the third.

    What is wrong with a text does not depend on the database, but for the few values that one of them cannot store.
    """
    return [text for number, text in enumerate(texts, at) if (number % 3 == 0) == (database.file is None)]


def cursors(kind: str) -> Iterator[str]:
    """Cursors of lists of a kind: with one to three positions, each at its ends, and what is no list at all."""
    for value in ENDS:
        for position in ([value], [value, "x"], ["acme", value], ["acme", value, "key_x"], [value, value, value]):
            yield cursor([kind, *position])
    others: list[Any] = [kind, [kind], [], {}, [[kind]], [None, 1], [kind, 1.5], [kind, None], [kind, [1]]]
    yield from map(cursor, others)


def cursor(value: Any) -> str:
    """The value as the text of a cursor."""
    return urlsafe_b64encode(msgspec.msgpack.encode(value)).decode().rstrip("=")

"""Events and their deliveries, as the store keeps them and as a webhook gets them."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Struct

MOST_TOGETHER = 1000  # keys in one event: the script that notes them takes the store 1 ms
MOST_LISTED = 50  # keys that an event names

TEST = "test"  # the type of an event that an operator asked for


class Event(Struct, frozen=True):
    """Something that happened; `at` is RFC 3339 in UTC, `account` is empty for an event of the gateway."""

    id: str
    type: str
    at: str
    account: str
    data: dict[str, Any]

    def body(self) -> bytes:
        """The JSON document that a webhook gets; the same bytes at each attempt."""
        return msgspec.json.encode({"type": self.type, "timestamp": self.at, "data": self.data})


def new_event(type_: str, data: dict[str, Any], *, account: str = "") -> Event:
    """An event of this moment."""
    at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return Event(f"msg_{secrets.token_hex(16)}", type_, at, account, data)


class Delivery(Struct, frozen=True, omit_defaults=True):
    """An event on its way to one channel: `webhook`, `mail:ADDRESS`, `owners`, or `owner:USER_ID`."""

    event: Event
    channel: str
    attempts: int = 0
    problem: str = ""  # of the last attempt

    @property
    def member(self) -> str:
        """Its name in the queue."""
        return f"{self.event.id} {self.channel}"

    @property
    def kind(self) -> str:
        """The kind of its channel, for the metrics."""
        return "webhook" if self.channel == "webhook" else "mail"

    def text(self) -> bytes:
        """As the store keeps it."""
        return msgspec.json.encode(self)


class Condition(Struct, frozen=True):
    """Whether something holds now that is an event when it begins to hold.

    A higher `level`, or another `mark`, is a crossing of its own. A condition with a `value` no longer holds only when
    the value is above the one at its crossing, so that a balance has to rise. Conditions of keys of one account that
    begin to hold at the same time are one event.
    """

    type: str
    subject: str
    level: int  # 0: it does not hold
    data: dict[str, Any]
    account: str = ""
    mark: str = ""
    value: int | None = None
    of_key: bool = False

    @property
    def group(self) -> tuple[str, ...]:
        """What conditions have in common that are one event."""
        return (self.account, str(self.level)) if self.of_key else (self.account, str(self.level), self.subject)


def data_of(conditions: Sequence[Condition]) -> dict[str, Any]:
    """The data of the one event of conditions of a group: those of the first, and how many keys there are."""
    first = conditions[0]
    if not first.of_key:
        return first.data
    return {**first.data, "count": len(conditions), "keys": [one.subject for one in conditions[:MOST_LISTED]]}


def groups_of(conditions: Iterable[Condition]) -> list[list[Condition]]:
    """Conditions of one type in groups of one event, at most `MOST_TOGETHER` each; keys that expire first are first."""
    found: dict[tuple[str, ...], list[Condition]] = {}
    for condition in conditions:
        found.setdefault(condition.group, []).append(condition)
    pieces = []
    for group in found.values():
        group.sort(key=lambda one: (one.data.get("expires", ""), one.subject))
        pieces += [group[start : start + MOST_TOGETHER] for start in range(0, len(group), MOST_TOGETHER)]
    return pieces


_decoder = msgspec.json.Decoder(Delivery)


def read_delivery(text: bytes) -> Delivery | None:
    """A delivery in the store; None if this release cannot read it."""
    try:
        return _decoder.decode(text)
    except (ValueError, RecursionError):
        return None

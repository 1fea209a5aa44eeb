"""The queue of events, and which conditions hold, in the store: both survive a restart and are shared by all machines.

An event is queued by the script that notes its crossing, so no crossing has two events, and a process that ends at any
moment loses none. A delivery that is claimed and not finished is claimed again, with the same event id.

The queue is bounded. An account has a share of it, and where the queue is full, the oldest delivery of the account that
has the most is dropped: the events of one account push out neither those of another nor the gateway's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib import resources

from msgspec import Struct

from gateway.notifications.events import Condition, Delivery, Event, read_delivery
from gateway.store.command import Argument, Script
from gateway.store.links import Links

DUE, DELIVERIES, CREATED, FAILED = (f"{{notify}}:{name}" for name in ("due", "deliveries", "created", "failed"))
STATES = "{notify}:state:"  # and the type of the event
MOST, SHARE = 10_000, 500  # deliveries that wait: all, and those of one account
MOST_FAILED, SHARE_FAILED = 1000, 100  # deliveries that are kept after they failed
LEASE = 60_000  # ms; longer than any attempt takes
PAGE = 200  # deliveries read at once


class State(Struct, frozen=True):
    """A condition that holds, or held until `cleared` (Unix ms; 0: it holds)."""

    level: int = 0
    cleared: int = 0
    value: int | None = None
    mark: str = ""

    @property
    def holds(self) -> bool:
        """Whether it holds."""
        return self.level > 0 and not self.cleared

    @classmethod
    def read(cls, text: bytes | None) -> State:
        """A state in the store; one that cannot be read counts as none, so its event may be sent again."""
        try:
            level, cleared, value, mark = (text or b"0 0 - ").decode().split(" ", 3)
            return cls(int(level), int(cleared), None if value == "-" else int(value), mark)
        except ValueError:
            return cls()


class Noted(Struct, frozen=True):
    """What came of conditions that hold: whether their event is queued, or which of them need one of their own."""

    is_queued: bool
    dropped: int  # old deliveries, because the account or the queue had too many
    crossings: list[Condition]


class Queue:
    """The queue in one store."""

    def __init__(self, links: Links) -> None:
        self._links = links
        self._is_indexed = False
        self._clear = _load("clear")
        self._raise, self._claim, self._finish, self._again, self._index = (
            _load("lists", name) for name in ("raise", "claim", "finish", "again", "index")
        )

    async def states(self, type_: str, subjects: Sequence[str]) -> list[State]:
        """The states of these subjects."""
        if not subjects:
            return []
        name = STATES + type_
        return [State.read(text) for text in await self._links.link(name).call("HMGET", name, *subjects)]

    async def subjects(self, type_: str) -> list[str]:
        """All subjects that have a state; for types with few."""
        name = STATES + type_
        return [subject.decode() for subject in await self._links.link(name).call("HKEYS", name)]

    async def note(self, conditions: Sequence[Condition], event: Event, channels: Iterable[str]) -> Noted:
        """Note that conditions of one type and account hold; queues their event if each of them is a crossing.

        If only some are, because another machine noted the others at this moment, nothing is queued.
        """
        if not self._is_indexed:
            await self.index()
        name = STATES + conditions[0].type
        args: list[Argument] = [event.account, SHARE, MOST, len(conditions)]
        for condition in conditions:
            value = "-" if condition.value is None else str(condition.value)
            args += (condition.subject, condition.level, condition.mark, value)
        for channel in channels:
            delivery = Delivery(event, channel)
            args += (delivery.member, delivery.text())
        keys = [name, DUE, DELIVERIES, CREATED]
        is_queued, dropped, *crossings = await self._links.link(name).eval(self._raise, keys, args)
        return Noted(bool(is_queued), int(dropped), [conditions[int(number) - 1] for number in crossings])

    async def index(self) -> None:
        """Note whose the deliveries are that a version before queued, so that they count for their accounts."""
        for name in (CREATED, FAILED):
            listed = await self._listed(name, MOST, newest=False)
            for start in range(0, len(listed), PAGE):
                args: list[Argument] = []
                for delivery, _ in listed[start : start + PAGE]:
                    args += (delivery.event.account, delivery.member)
                await self._links.link(name).eval(self._index, [name], args)
        self._is_indexed = True

    async def lower(self, condition: Condition) -> None:
        """Note that a condition holds at a lower level; for subjects that one machine reports."""
        name = STATES + condition.type
        await self._links.link(name).call("HSET", name, condition.subject, f"{condition.level} 0 - {condition.mark}")

    async def clear(self, type_: str, subject: str, *, rest: float = 0.0) -> None:
        """Note that a condition does not hold; after `rest` seconds its next crossing is an event again."""
        name = STATES + type_
        await self._links.link(name).eval(self._clear, [name], [subject, int(rest * 1000)])

    async def claim(self, most: int) -> list[Delivery]:
        """Deliveries that are due, which no other sender gets within `LEASE`."""
        link = self._links.link(DUE)
        found = await link.eval(self._claim, [DUE, DELIVERIES, CREATED], [most, LEASE])
        claimed = map(read_delivery, found[1::2])
        return [delivery for delivery in claimed if delivery is not None]  # others are for a machine of another release

    async def done(self, delivery: Delivery, *, instead: Iterable[str] = ()) -> int:
        """Remove a delivery; deliveries of its event to the channels `instead` take its place.

        Returns how many old deliveries were dropped for them.
        """
        rest: list[Argument] = []
        for channel in instead:
            other = Delivery(delivery.event, channel)
            rest += (other.member, other.text())
        return await self._end("done", delivery, b"", 0, SHARE, MOST, *rest)

    async def retry(self, delivery: Delivery, *, after: float) -> None:
        """Try a delivery again after so many seconds."""
        await self._end("retry", delivery, delivery.text(), int(after * 1000), 0, 0)

    async def fail(self, delivery: Delivery) -> None:
        """Give a delivery up; it is kept for `gateway notify list`."""
        await self._end("failed", delivery, delivery.text(), 0, SHARE_FAILED, MOST_FAILED)

    async def counts(self) -> tuple[int, int]:
        """How many deliveries wait, and how many failed ones are kept."""
        link = self._links.link(DUE)
        waiting, failed = link.call("ZCARD", CREATED), link.call("ZCARD", FAILED)
        return int(await waiting), int(await failed)

    async def waiting(self, most: int) -> list[tuple[Delivery, float]]:
        """The deliveries that are due first, each with its next attempt in Unix seconds."""
        return await self._listed(DUE, most, newest=False)

    async def failed(self, most: int) -> list[tuple[Delivery, float]]:
        """The deliveries that failed last, each with the time in Unix seconds."""
        return await self._listed(FAILED, most, newest=True)

    async def try_again(self, event_id: str = "") -> int:
        """Queue failed deliveries of an event, or all of them, again; returns their number."""
        link, count = self._links.link(FAILED), 0
        for member in await link.call("ZRANGE", FAILED, 0, -1):
            delivery = read_delivery(await link.call("HGET", DELIVERIES, member) or b"")
            if delivery is not None and event_id in ("", delivery.event.id):
                again = Delivery(delivery.event, delivery.channel)
                args: list[Argument] = [delivery.event.account, member, again.text(), SHARE, MOST]
                count += await link.eval(self._again, [DUE, DELIVERIES, CREATED, FAILED], args)
        return count

    async def _listed(self, name: str, most: int, *, newest: bool) -> list[tuple[Delivery, float]]:
        link = self._links.link(name)
        order = ("REV",) if newest else ()
        found: list[tuple[Delivery, float]] = []
        for start in range(0, most, PAGE):
            stop = min(start + PAGE, most) - 1
            members = await link.call("ZRANGE", name, start, stop, *order)
            if not members:
                break
            texts, scores = link.call("HMGET", DELIVERIES, *members), link.call("ZMSCORE", name, *members)
            for text, score in zip(await texts, await scores, strict=True):
                delivery = read_delivery(text) if text is not None else None
                if delivery is not None and score is not None:
                    found.append((delivery, float(score) / 1000))
        return found

    async def _end(self, action: str, delivery: Delivery, text: bytes, *rest: Argument) -> int:
        keys = [DUE, DELIVERIES, CREATED, FAILED]
        args: list[Argument] = [action, delivery.event.account, delivery.member, text, *rest]
        return int(await self._links.link(DUE).eval(self._finish, keys, args))


def _load(*parts: str) -> Script:
    folder = resources.files("gateway.notifications") / "lua"
    return Script("\n".join((folder / f"notify_{part}.lua").read_text(encoding="utf-8") for part in parts))

"""Turns that are shared fairly between those who ask for work: addresses, people or tokens.

A free turn goes to the waiting one that had the fewest turns of late, and of these to the one that waits longest. So an
address that sends one request after the other delays itself and not the others. With a `share`, one of them has at most
so many turns at a time, so that long work of it leaves turns to the others.

IPv6 networks with the same first 48 bits are a group, because one customer may have all of them; each other name is a
group of its own. Groups are compared before the names in them: a free turn goes to the group that had the fewest, and
the group of which the most wait makes room for others.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final

from gateway.errors import TooManyRequests
from gateway.http_server.client_address import network_of, wider_network
from gateway.web.window_counts import WindowCounts

MOST_OF_ONE: Final = 64  # that wait for one address: more than the wrong passwords that it may try
MOST: Final = 512  # that wait for all addresses
WINDOW: Final = 60.0  # seconds in which turns are counted
REMEMBERED: Final = 10_000  # addresses, people and tokens

Turn = asyncio.Future[None]


class FairTurns:
    """`at_once` turns at a time, of which one name has `share` at most; more than can wait get `refusal`."""

    def __init__(
        self,
        at_once: int,
        *,
        refusal: str,
        share: int | None = None,
        most_of_one: int = MOST_OF_ONE,
        most: int = MOST,
    ) -> None:
        self._free = at_once
        self._share = at_once if share is None else share
        self._refusal = refusal
        self._most_of_one = most_of_one
        self._most = most
        self._running: Counter[str] = Counter()  # turns that are had now
        self._waiting: dict[str, deque[Turn]] = {}  # in the order in which names began to wait
        self._groups: dict[str, str] = {}  # of the names that wait
        self._count = 0
        self._had = WindowCounts(WINDOW, remembered=REMEMBERED)
        self._had_of_group = WindowCounts(WINDOW, remembered=REMEMBERED)

    def turn(self, address: str) -> AbstractAsyncContextManager[None]:
        """`turn_of` a client's address. IPv6 addresses count by their first 64 bits."""
        return self.turn_of(network_of(address))

    @asynccontextmanager
    async def turn_of(self, name: str) -> AsyncIterator[None]:
        """Wait for a turn; TooManyRequests if too many wait."""
        group = wider_network(name)
        if self._free and self._running[name] < self._share:
            self._free -= 1
            self._running[name] += 1
        else:
            await self._wait(name, group)
        self._had.add(name)
        self._had_of_group.add(group)
        try:
            yield
        finally:
            self._pass_on(name)

    async def _wait(self, name: str, group: str) -> None:
        self._make_room(name, group)
        turn: Turn = asyncio.get_running_loop().create_future()
        self._groups[name] = group
        self._waiting.setdefault(name, deque()).append(turn)
        self._count += 1
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self._pass_on(name)  # it was given a turn at this moment
            elif turn in self._waiting.get(name, ()):
                self._take_out(name, turn)
            raise

    def _make_room(self, name: str, group: str) -> None:
        """The newest of the name with the most, in the group with the most, makes room for one that has fewer.

        TooManyRequests if there is none.
        """
        if len(self._waiting.get(name, ())) >= self._most_of_one:
            raise TooManyRequests(self._refusal)
        if self._count < self._most:
            return
        of_groups: Counter[str] = Counter()
        for other, turns in self._waiting.items():
            of_groups[self._groups[other]] += len(turns)
        largest, most = of_groups.most_common(1)[0]
        top, own = self._top_of(largest), of_groups[group]
        if group == largest:
            most, own = len(self._waiting[top]), len(self._waiting.get(name, ()))
        if most <= own + 1:
            raise TooManyRequests(self._refusal)
        newest = self._waiting[top][-1]
        self._take_out(top, newest)
        newest.set_exception(TooManyRequests(self._refusal))

    def _top_of(self, group: str) -> str:
        """The name of a group of which the most wait; of several, the one that began to wait last."""
        names = [name for name in self._waiting if self._groups[name] == group]
        return max(reversed(names), key=lambda name: len(self._waiting[name]))

    def _pass_on(self, done: str) -> None:
        """Give the turn that `done` had to the waiting group, and in it the name, with the fewest turns of late."""
        self._running[done] -= 1
        if not self._running[done]:
            del self._running[done]
        able = [name for name in self._waiting if self._running[name] < self._share]
        if not able:
            self._free += 1
            return
        name = min(able, key=self._turns_had)
        turn = self._waiting[name][0]
        self._take_out(name, turn)
        self._running[name] += 1
        turn.set_result(None)

    def _turns_had(self, name: str) -> tuple[int, int]:
        """Of the group of a name that waits, and of the name itself."""
        return self._had_of_group.count(self._groups[name])[0], self._had.count(name)[0]

    def _take_out(self, name: str, turn: Turn) -> None:
        turns = self._waiting[name]
        turns.remove(turn)
        self._count -= 1
        if not turns:
            del self._waiting[name], self._groups[name]

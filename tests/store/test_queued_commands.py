"""Commands that wait behind others are not late while the server replies, and not because the event loop is late."""

from __future__ import annotations

import asyncio
import socket
import time
from typing import Any

import pytest
import uvloop

from gateway.errors import StoreUnavailable
from gateway.store.command import pack
from gateway.store.connection import LATE, MOST_QUEUED, RedisConnection, Unanswered
from gateway.store.resend import RepeatableCall
from tests.delays import store_is_paused_for
from tests.polling import PATIENCE, turns, until_blocking

pytestmark = pytest.mark.slow

TIMEOUT = 2.0  # seconds; long, so that a slow test machine does not reach it
EVERY = 0.05  # seconds between two replies
REPLY = b"+OK\r\n"
GET = pack(("GET", "x"))


class Pair:
    """A connection whose server is the test."""

    def __init__(self, timeout: float = TIMEOUT) -> None:
        self.server, self._ours = socket.socketpair()
        self.late = 0
        self.lost: list[str] = []
        self.connection = RedisConnection(
            asyncio.get_running_loop(), timeout=timeout, on_lost=self._is_lost, on_late=self._is_late
        )

    async def open(self) -> None:
        await asyncio.get_running_loop().create_connection(lambda: self.connection, sock=self._ours)

    async def close(self) -> None:
        self.connection.abort("the test is over")
        self.server.close()
        await turns()  # uvloop closes its sockets in the next one

    def call(self) -> asyncio.Future[Any]:
        future = RepeatableCall(loop=asyncio.get_running_loop())
        self.connection.send(GET, future, again=GET)
        return future

    async def reply_steadily(self, count: int) -> None:
        for _ in range(count):
            await store_is_paused_for(EVERY)
            if self.lost:
                return
            self.server.send(REPLY)

    def _is_late(self, connection: RedisConnection) -> None:
        self.late += 1

    def _is_lost(self, connection: RedisConnection, reason: str, unanswered: list[Unanswered]) -> None:
        self.lost.append(reason)
        for _, reply, _, _ in unanswered:
            reply.set_exception(StoreUnavailable(detail=reason))


async def test_commands_behind_others_wait_for_longer_than_the_timeout_while_the_server_replies() -> None:
    pair = Pair()
    await pair.open()
    calls = [pair.call() for _ in range(int(1.3 * TIMEOUT / EVERY))]
    await pair.reply_steadily(len(calls))
    assert await asyncio.gather(*calls) == [b"OK"] * len(calls)
    assert (pair.late, pair.lost) == (0, [])
    await pair.close()


@pytest.mark.holds("operations/redis.md#a-slow-store-5")
async def test_connection_is_given_up_when_a_command_has_waited_for_many_timeouts() -> None:
    timeout = 4 * EVERY
    pair = Pair(timeout)
    await pair.open()
    calls = [pair.call() for _ in range(int(20 * MOST_QUEUED * timeout / EVERY))]
    await pair.reply_steadily(len(calls))
    assert pair.lost == [f"no reply within {timeout:g} s"]
    assert any(call.done() and call.exception() for call in calls)
    await asyncio.gather(*calls, return_exceptions=True)
    await pair.close()


def test_command_that_has_waited_long_for_a_connection_fails_when_its_server_is_silent() -> None:
    async def test() -> None:
        pair = Pair(timeout := 4 * EVERY)
        loop = asyncio.get_running_loop()
        await pair.open()
        waited = RepeatableCall(loop=loop)
        pair.connection.adopt_queue([(GET, waited, loop.time() - 10 * timeout, True)])
        async with asyncio.timeout(PATIENCE):
            with pytest.raises(StoreUnavailable):
                await waited
        assert pair.lost == [f"no reply within {timeout:g} s"]
        await pair.close()

    uvloop.run(test())  # its `call_at` gives no timer for a time that has passed


def test_reply_that_has_arrived_is_not_late_for_a_loop_that_was_late() -> None:
    async def test() -> None:
        pair = Pair()
        await pair.open()
        call = pair.call()
        await turns()  # it is written
        pair.server.send(REPLY)
        later = time.monotonic() + 2 * LATE * TIMEOUT
        until_blocking(lambda: time.monotonic() > later)
        assert await call == b"OK"
        assert pair.late == 0
        await pair.close()

    uvloop.run(test())  # which calls its timers before it reads

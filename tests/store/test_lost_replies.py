"""Connections that are reset in place of a reply: what was in flight is sent again, as often as the time allows."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.errors import StoreFate, StoreUnavailable
from gateway.store.address import RedisAddress
from gateway.store.command import Script
from gateway.store.link import MOST_LOSSES, RedisLink
from gateway.store.resend import READS
from tests.polling import at_once, until
from tests.store.reply_loser import SCRIPTS, ReplyLoser

TIMEOUT = 5.0  # seconds; long, so that a slow test machine does not reach it
ONCE = Script(
    "return { redis.call('SADD', KEYS[1], ARGV[1]), ARGV[1] }"
)  # as an admission: the same number changes nothing


@asynccontextmanager
async def behind(loser: ReplyLoser, *, timeout: float = TIMEOUT) -> AsyncIterator[RedisLink]:
    """A link to the store through the proxy; the store is empty and has the script."""
    link = RedisLink(RedisAddress(port=loser.port), timeout=timeout)
    try:
        await link.connect()
        await link.call("FLUSHALL")
        await link.eval(ONCE, ["{n}"], [0])
        yield link
    finally:
        loser.every = 0
        await link.close()


def counted(link: RedisLink, number: int) -> Any:
    """The script with this number, as the ledger sends it."""
    return link.call_repeatable("EVALSHA", ONCE.sha1, 1, "{n}", number)


@pytest.mark.holds("operations/redis.md#a-slow-store-2")
@pytest.mark.parametrize("every", [7, 3, 2])
@pytest.mark.parametrize("of", [SCRIPTS, None], ids=["scripts", "all"])
async def test_all_calls_in_flight_on_lost_connections_are_answered(
    valkey: Path, every: int, of: frozenset[str] | None
) -> None:
    async with ReplyLoser(valkey) as loser, behind(loser) as link:
        await link.call("SET", "text", "here")
        loser.every, loser.of = every, of
        calls = [call for n in range(1, 21) for call in (counted(link, n), link.call("GET", "text"))]
        replies = await asyncio.gather(*calls)
        loser.every = 0
        assert [int(reply[1]) for reply in replies[::2]] == list(range(1, 21))
        assert replies[1::2] == [b"here"] * 20
        assert await link.call("SCARD", "{n}") == 21
        assert loser.lost >= 20 // every


async def test_callers_that_take_turns_lose_little_time(valkey: Path) -> None:
    async with ReplyLoser(valkey) as loser, behind(loser) as link:
        numbers = iter(range(1, 201))

        async def caller() -> None:
            for number in numbers:
                assert int((await counted(link, number))[1]) == number

        loser.every = 7
        await asyncio.gather(*(caller() for _ in range(16)))
        assert loser.lost >= 200 // 7
        assert loser.connections >= loser.lost


async def test_write_that_is_not_repeatable_is_not_sent_again(valkey: Path) -> None:
    async with ReplyLoser(valkey) as loser, behind(loser) as link:
        loser.every, loser.of = 1, frozenset({"INCR"})
        write, read = link.call("INCR", "sum"), link.call("ECHO", "here")
        with pytest.raises(StoreUnavailable) as caught:
            await write
        assert caught.value.fate is StoreFate.UNKNOWN
        with pytest.raises(StoreUnavailable):
            await read  # behind it, and not known to be a read
        assert await link.call("GET", "sum") == b"1"


@pytest.mark.holds("operations/redis.md#a-slow-store-2")
@pytest.mark.slow
async def test_command_whose_reply_is_always_lost_is_given_up_and_the_others_are_answered(valkey: Path) -> None:
    async with ReplyLoser(valkey) as loser, behind(loser) as link:
        before = loser.connections
        loser.every, loser.of = 1, frozenset({"ECHO"})
        lost, others, done = link.call_repeatable("ECHO", "never"), 0, False
        while not done:
            done = lost.done()
            assert int((await counted(link, others))[1]) == others
            others += 1
        with pytest.raises(StoreUnavailable) as caught:
            await lost
        assert caught.value.fate is StoreFate.UNKNOWN
        # A reset discards earlier replies, too, that a preempted link has not read: the loss then counts for them.
        assert MOST_LOSSES <= loser.connections - before <= 2 * MOST_LOSSES


async def test_server_that_answers_no_script_is_asked_a_few_times_until_the_timeout(valkey: Path) -> None:
    timeout = 1.0
    async with ReplyLoser(valkey) as loser, behind(loser, timeout=timeout) as link:
        before, loser.every = loser.connections, 1
        started = time.monotonic()
        async with at_once(within=timeout * 2):
            results = await asyncio.gather(*(counted(link, n) for n in range(50)), return_exceptions=True)
        assert {type(result) for result in results} == {StoreUnavailable}
        assert {result.fate for result in results if isinstance(result, StoreUnavailable)} == {StoreFate.UNKNOWN}
        assert time.monotonic() - started > timeout * 0.5
        assert loser.connections - before <= MOST_LOSSES + 2


async def test_call_behind_lost_replies_fails_at_its_timeout(valkey: Path) -> None:
    timeout = 0.5
    async with ReplyLoser(valkey) as loser, behind(loser, timeout=timeout) as link:
        loser.every = 1
        for _ in range(3):
            async with at_once(within=timeout * 2):
                with pytest.raises(StoreUnavailable):
                    await counted(link, 1)
        loser.every = 0

        async def answered() -> bool:
            with contextlib.suppress(StoreUnavailable):
                return int((await counted(link, 1))[1]) == 1
            return False

        await until(answered)


async def test_commands_that_are_always_sent_again_are_reads_for_the_server(valkey: Path) -> None:
    async with ReplyLoser(valkey) as loser, behind(loser) as link:
        for name, about in zip(sorted(READS), await link.call("COMMAND", "INFO", *sorted(READS)), strict=True):
            assert b"write" not in about[2], name

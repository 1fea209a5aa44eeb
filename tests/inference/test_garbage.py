"""Requests leave nothing to the garbage collector, which rarely looks at what lived as long as a stream.

An exception's traceback holds the frames it went through, and they hold the request, its answer and their files: a
cycle as soon as one of them holds the exception. Hours of such failures were megabytes, and open files.
"""

from __future__ import annotations

import asyncio

import pytest
from msgspec import structs

from gateway.testing import FakeUpstream, Reply
from tests.api.conftest import Client
from tests.api.endpoints.test_chat_stream import HELLO
from tests.leftovers import garbage, handlers
from tests.polling import until

pytestmark = pytest.mark.slow


async def test_answers_whole_and_streamed_leave_no_cycle(client: Client, no_collector: None) -> None:
    for _ in range(3):
        assert (await client.chat())[0].status == 200
        assert (await client.stream())[2] is None
    await until(lambda: handlers() == 0)


async def test_refusals_of_the_upstream_leave_no_cycle(
    client: Client, upstream: FakeUpstream, no_collector: None
) -> None:
    for _ in range(3):
        upstream.enqueue(Reply.error(500, "no"), Reply.error(400, "no"))
        assert (await client.stream())[0].status == 502
        assert (await client.chat())[0].status == 400
    await until(lambda: handlers() == 0)


async def test_clients_that_disconnect_from_a_stream_leave_no_cycle(
    client: Client, upstream: FakeUpstream, no_collector: None
) -> None:
    for number in range(3):
        upstream.enqueue(Reply.stream(HELLO * 20, interval=0.02))
        reading = asyncio.create_task(client.stream())
        await upstream.wait_started(number, frames=3)
        reading.cancel()
        assert (await upstream.wait_ended(number)).outcome == "left"
    await until(lambda: handlers() == 0)
    assert not garbage()


FAILURES = {
    "refused": [Reply.error(400, "no")],
    "failed": [Reply.error(500, "no")],
    "overloaded, twice": [Reply.error(503, "no")] * 2,
    "hung up": [Reply.hang_up()],
    "hung up, twice": [Reply.hang_up()] * 2,
    "no answer that anybody knows": [Reply.json({"choices": 7})],
}


@pytest.mark.parametrize("name", FAILURES)
@pytest.mark.parametrize("stream", [False, True])
async def test_failures_of_the_upstream_leave_nothing_to_the_collector(
    client: Client, upstream: FakeUpstream, no_collector: None, name: str, stream: bool
) -> None:
    for _ in range(3):
        upstream.enqueue(*FAILURES[name])
        if stream:
            await client.stream()
        else:
            await client.chat()
    await until(lambda: handlers() == 0)
    assert not garbage()


async def test_streams_that_the_upstream_cuts_leave_nothing_to_the_collector(
    client: Client, upstream: FakeUpstream, no_collector: None
) -> None:
    for _ in range(3):
        upstream.enqueue(structs.replace(Reply.stream(HELLO[:3], done=False), end="cut"))
        assert (await client.stream())[2] is not None
    await until(lambda: handlers() == 0)
    assert not garbage()

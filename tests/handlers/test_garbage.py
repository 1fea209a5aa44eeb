"""Requests leave nothing to the garbage collector, which rarely looks at what lived as long as a stream.

Where an upstream cuts its answer, the transport's exception and its traceback hold each other: there it has to do.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator

import pytest

from gateway.handlers.base import BaseHandler
from gateway.testing import FakeUpstream, Reply
from tests.polling import until

from .conftest import Client
from .test_chat_stream import HELLO


@pytest.fixture
def no_collector() -> Iterator[None]:
    """Nothing is collected meanwhile."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def handlers() -> int:
    """How many requests are still in memory."""
    return sum(isinstance(thing, BaseHandler) for thing in gc.get_objects())


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


async def test_clients_that_leave_a_stream_leave_no_cycle(
    client: Client, upstream: FakeUpstream, no_collector: None
) -> None:
    for number in range(3):
        upstream.enqueue(Reply.stream(HELLO * 20, interval=0.02))
        reading = asyncio.create_task(client.stream())
        await upstream.wait_started(number, frames=3)
        reading.cancel()
        assert (await upstream.wait_ended(number)).outcome == "left"
    await until(lambda: handlers() == 0)

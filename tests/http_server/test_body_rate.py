"""A body must keep up the minimum rate to its end, and end in time."""

from __future__ import annotations

from typing import Any

import pytest
from tornado.web import RequestHandler, stream_request_body

from gateway.http_server.body_progress import BodyProgress
from gateway.http_server.limits import ServerLimits
from tests.delays import caller_is_silent_for

pytestmark = pytest.mark.slow

POST = b"POST / HTTP/1.1\r\nHost: x\r\n"


@stream_request_body
class Takes(RequestHandler):
    """Takes a body."""

    def data_received(self, chunk: bytes) -> None:
        pass

    def post(self) -> None:
        self.write("taken")


def seconds_until_late(sizes: dict[float, int], **limits: Any) -> float:
    """When a body is late that has `sizes` bytes at these times and then grows by a byte every second."""
    progress, now, tick = BodyProgress(), 0.0, 0.5
    progress.begin(0, now)
    while now < 100_000:
        now += tick
        sent = max((size for at, size in sizes.items() if at <= now), default=0) + int(now)
        progress.size = sent
        if progress.late(sent, now, None, ServerLimits(**limits)):
            return now
    return now


def test_body_that_begins_fast_and_then_trickles_is_late_within_two_windows() -> None:
    # On average over the whole body, 30 MB at once would allow eight hours at a byte a second.
    late = seconds_until_late({0.5: 30_000_000}, body_idle_timeout=30.0, min_body_rate=1024)
    assert 30.0 < late <= 60.0


def test_body_at_the_minimum_rate_ends_with_the_total_time() -> None:
    steady = {float(second): 2_048 * second for second in range(2_000)}
    assert seconds_until_late(steady, body_total_timeout=900.0) == pytest.approx(900.0, abs=1.0)


def test_time_in_which_the_application_is_busy_counts_for_neither_limit() -> None:
    progress, limits = BodyProgress(), ServerLimits(body_idle_timeout=10.0, body_total_timeout=20.0)
    progress.begin(0, 0.0)
    for now in range(0, 100, 10):  # however rarely the server looks at its connections
        progress.stop_clock(now + 0.5)
        progress.start_clock(now + 10.0)
    assert not progress.late(1, 100.0, None, limits)
    assert progress.late(100_000, 120.0, None, limits), "the other 25 seconds do count"


@pytest.mark.holds("operations/network.md#request-bodies-6")
@pytest.mark.gen_test
async def test_client_that_sends_most_of_a_body_and_then_trickles_gets_408(serve: Any) -> None:
    served = await serve(Takes, body_idle_timeout=0.4, min_body_rate=1_000)
    async with served.client() as client:
        client.send(POST + b"Content-Length: 1000000\r\n\r\n" + b"x" * 900_000)
        for _ in range(500):
            client.send(b"x")
            await caller_is_silent_for(0.02)
            if client.reader._buffer:  # type: ignore[attr-defined]
                break
        else:
            pytest.fail("a trickle after a fast beginning was accepted")
        assert (await client.read()).status == 408


@pytest.mark.gen_test
async def test_upload_at_a_steady_rate_is_accepted_for_longer_than_the_window(serve: Any) -> None:
    served = await serve(Takes, body_idle_timeout=0.4, min_body_rate=1_000)
    async with served.client() as client:
        client.send(POST + b"Content-Length: 60000\r\n\r\n")
        for _ in range(60):
            client.send(b"x" * 1_000)
            await caller_is_silent_for(0.02)
        assert (await client.read()).status == 200


@pytest.mark.holds("operations/network.md#request-bodies-7")
@pytest.mark.gen_test
async def test_body_longer_under_way_than_the_total_time_gets_408(serve: Any) -> None:
    served = await serve(Takes, body_idle_timeout=0.4, body_total_timeout=1.0)
    async with served.client() as client:
        client.send(POST + b"Content-Length: 30000000\r\n\r\n")
        for _ in range(500):
            client.send(b"x" * 10_000)
            await caller_is_silent_for(0.02)
            if client.reader._buffer:  # type: ignore[attr-defined]
                break
        else:
            pytest.fail("the body was accepted for ever")
        assert (await client.read()).status == 408

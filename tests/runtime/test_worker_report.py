"""What a worker counted reaches the supervisor whole, and in pieces between which calls are served."""

from __future__ import annotations

import asyncio
import socket
from typing import Any, cast

from prometheus_client.parser import text_string_to_metric_families

from gateway.billing.call_record import CallRecord
from gateway.billing.usage import Usage
from gateway.metrics import Metrics, Totals, decode_delta
from gateway.runtime.gateway import Gateway
from gateway.runtime.ipc import Channel, Message, WorkerSpec
from gateway.runtime.worker import REPORTED_AT_ONCE, Worker
from tests.polling import until

MODELS = 2 * REPORTED_AT_ONCE + 50


class Counted:
    """The only part of a gateway that a report looks at."""

    journal = None

    def __init__(self) -> None:
        self.metrics = Metrics()
        for number in range(MODELS):
            self.call(f"m{number}")

    def call(self, model: str) -> None:
        record = CallRecord(
            "r",
            "chat",
            "a",
            "k",
            model,
            "fake",
            "ok",
            200,
            Usage(),
            0,
            0,
            0,
            1,
            duration=0.1,
            first_token=None,
            stream=False,
        )
        self.metrics.settled(record, upstream_seconds=0.1, chunks=1)


class Pair:
    """A worker that does not serve, and the supervisor's end of its channel."""

    def __init__(self) -> None:
        self.worker = Worker(WorkerSpec(number=1, listen_fd=-1, channel_fd=-1))
        self.counted = Counted()
        self.worker.gateway = cast(Gateway, self.counted)
        self.received: list[Message] = []
        self.supervisor: Any = None

    async def open(self) -> Pair:
        ours, theirs = socket.socketpair()
        self.worker.channel = await Channel.open(ours, self.worker._receive, lambda: None)
        self.supervisor = await Channel.open(theirs, self.received.append, lambda: None)
        return self

    def close(self) -> None:
        self.supervisor.close()
        assert self.worker.channel is not None
        self.worker.channel.close()

    def calls(self) -> float:
        """Calls in all the counts that have arrived."""
        totals = Totals()
        for message in self.received:
            if message.name == "counts":
                totals.merge(decode_delta(message.payload), source="w")
        families = text_string_to_metric_families(totals.text()[0].decode())
        samples = (sample for family in families for sample in family.samples)
        return sum(sample.value for sample in samples if sample.name == "gateway_requests_total")


async def test_requested_report_is_answered_after_all_counts_were_sent() -> None:
    pair = await Pair().open()
    pair.supervisor.send("report", b"7")
    await until(lambda: any(message.name == "reported" for message in pair.received))
    assert [message.name for message in pair.received] == ["counts", "counts", "counts", "reported"]
    assert pair.received[-1].payload == b"7"
    assert pair.calls() == MODELS
    pair.close()


async def test_event_loop_runs_between_the_pieces_of_a_report() -> None:
    pair = await Pair().open()
    left: list[int] = []

    async def watch() -> None:
        while True:
            left.append(pair.counted.metrics.tallied)
            await asyncio.sleep(0)

    watching = asyncio.create_task(watch())
    await pair.worker._report()
    watching.cancel()
    assert {MODELS - REPORTED_AT_ONCE, MODELS - 2 * REPORTED_AT_ONCE, 0} <= set(left)
    pair.close()


async def test_calls_during_two_concurrent_reports_are_counted_once() -> None:
    pair = await Pair().open()
    pair.supervisor.send("report", b"1")
    pair.supervisor.send("report", b"2")
    served = 0
    while sum(message.name == "reported" for message in pair.received) < 2:
        pair.counted.call(f"m{served % MODELS}")
        served += 1
        await asyncio.sleep(0)
    await pair.worker._report()
    await until(lambda: pair.calls() == MODELS + served)
    assert pair.counted.metrics.tallied == 0
    pair.close()

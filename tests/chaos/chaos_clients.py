"""Clients that leave in every way, clients that hardly read, and keys that are revoked while they are in use.

`tox -e chaos`, or `python -m pytest -s tests/chaos/chaos_clients.py`; each test prints the figure it reached.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
import time
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from gateway.sse import encode_data
from gateway.testing import FakeUpstream, Reply
from gateway.testing.fake_upstream import Seen
from tests.chaos.conftest import Front
from tests.chaos.traffic import CHUNK, Call, Traffic, paced, percentile, traffic_on
from tests.chaos.truth import all_is_well, charged, nothing_held, off, written
from tests.polling import until
from tests.processes.served import descriptors

DISCONNECTS = 1000
AT_ONCE = 25
CLOSED_WITHIN = 0.25  # seconds
WAYS = ("fin", "reset", "half-close", "pipelined fin", "pipelined reset", "before the answer")
REVOCATIONS = 20
CUT_WITHIN = 1.0
SLOW_READERS = 1000
BIG = 50 << 20  # bytes of each slow reader's answer
PER_FRAME = 2048  # chunks' worth of text in each of its frames
SIP = 4096  # bytes that each of them reads about once a second
PER_READER = 256 << 10  # bytes
NEXT = b"GET /v1/models HTTP/1.1\r\nHost: gateway\r\n\r\n" * 3
RESET = struct.pack("ii", 1, 0)  # SO_LINGER


# Leaving ------------------------------------------------------------------------------------------------------------


class Raw:
    """A client by socket, for what no client library does."""

    def __init__(self, traffic: Traffic, *, receive_buffer: int = 0) -> None:
        self.traffic = traffic
        self.call = traffic.new()
        self.socket = socket.socket()
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.setblocking(False)
        self.text = b""

    def request(self, chunks: int) -> bytes:
        gateway = self.traffic.gateway
        body = msgspec.json.encode(self.traffic.body(self.call, chunks))
        return (
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer {gateway.api_key}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        ).encode() + body

    async def ask(self, chunks: int) -> None:
        loop = asyncio.get_running_loop()
        await loop.sock_connect(self.socket, ("127.0.0.1", self.traffic.gateway.port))
        await loop.sock_sendall(self.socket, self.request(chunks))

    async def read(self, chunks: int) -> None:
        """Until so many chunks are there."""
        loop = asyncio.get_running_loop()
        while self.text.count(b'"content":"' + CHUNK.encode()) < chunks:
            piece = await loop.sock_recv(self.socket, 1 << 14)
            assert piece, f"the answer ended: {self.text!r}"
            self.text += piece
        head, _, _ = self.text.partition(b"\r\n\r\n")
        names = dict(line.lower().split(": ", 1) for line in head.decode("latin-1").split("\r\n")[1:])
        self.call.request_id, self.call.status = names["x-request-id"], int(head.split(b" ")[1])

    async def leave(self, way: str) -> float:
        """Leave; at what moment."""
        if way.startswith("pipelined"):
            with contextlib.suppress(OSError):
                await asyncio.get_running_loop().sock_sendall(
                    self.socket, b"GET /v1/models HTTP/1.1\r\nHost: x\r\n" * 3
                )
        if way == "half-close":
            self.socket.shutdown(socket.SHUT_WR)
            return time.monotonic()
        if way.endswith("reset"):
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        left = time.monotonic()
        self.socket.close()
        return left


def found(upstream: FakeUpstream, call: Call) -> Seen | None:
    """The upstream's record of a call, looked for from the end."""
    return next((seen for seen in reversed(upstream.seen) if seen.json["user"] == call.name), None)


async def one_disconnect(traffic: Traffic, upstream: FakeUpstream, way: str) -> float:
    """Leave in that way; seconds until the upstream's answer was given up."""
    client = Raw(traffic)
    try:
        await client.ask(200)
        if way == "before the answer":
            seen = await until(lambda: found(upstream, client.call), within=10.0)
        else:
            async with asyncio.timeout(20.0):
                await client.read(random.randint(1, 6))
            found_now = found(upstream, client.call)
            assert found_now is not None
            seen = found_now
        left = await client.leave(way)
        await until(lambda: seen.outcome != "open", within=20.0)
        assert seen.outcome == "left", seen.outcome
        return seen.ended - left
    finally:
        client.socket.close()


@pytest.mark.holds("prices.md#leaving-early-2")
@pytest.mark.gen_test(timeout=300)
async def test_clients_that_disconnect_in_any_way_end_the_upstream_call_and_pay_what_was_delivered(
    front: Front, upstream: FakeUpstream, share: float
) -> None:
    paced(upstream, 0.1)
    gateway = await front(workers=2)
    ways = [WAYS[n % len(WAYS)] for n in range(int(DISCONNECTS * share))]
    closed: dict[str, list[float]] = {way: [] for way in WAYS}
    async with traffic_on(gateway) as traffic:
        assert (await traffic.make(2)).answered_well
        files = [descriptors(pid) for pid in gateway.workers]
        waiting = iter(ways)

        async def leaving() -> None:
            for way in waiting:
                closed[way].append(await one_disconnect(traffic, upstream, way))

        started = time.monotonic()
        await asyncio.gather(*(leaving() for _ in range(AT_ONCE)))
        took = time.monotonic() - started
        await nothing_held(gateway, within=5.0)
        away = await off(gateway, upstream, traffic.calls)
        by_way = ", ".join(f"{way} {percentile(seconds, 0.99) * 1000:.0f}" for way, seconds in closed.items())
        every = [seconds for found in closed.values() for seconds in found]
        print(
            f"\n{len(every)} disconnects in {took:.0f} s: upstream closed p50 {percentile(every, 0.5) * 1000:.1f} ms, "
            f"p99 {percentile(every, 0.99) * 1000:.0f} ms ({by_way}); ledger minus truth in chunks "
            f"{dict(sorted(Counter(away.values()).items()))}"
        )
        assert percentile(every, 0.99) <= CLOSED_WITHIN
        assert set(away.values()) <= {-1, 0, 1}
        assert len(away) >= len(ways) * 0.8
    assert max(descriptors(pid) for pid in gateway.workers) <= max(files) + 3
    await all_is_well(gateway, workers=2, processes=3)


# Revoked -------------------------------------------------------------------------------------------------------------


@pytest.mark.holds("README.md#serve-real-models-3")
@pytest.mark.gen_test(timeout=240)
async def test_revoked_keys_admit_nothing_more_and_their_streams_are_cut(
    front: Front, upstream: FakeUpstream, share: float
) -> None:
    paced(upstream, 0.1)
    gateway = await front(workers=2)
    cuts: list[float] = []
    late: list[Call] = []
    asked = 0
    async with traffic_on(gateway) as other, gateway.session() as session:
        other.keep(10, 5)
        for _ in range(max(2, int(REVOCATIONS * share))):
            key = await session.keys.create("test")
            async with traffic_on(gateway) as traffic:
                traffic.keep(10, 600, key=key.text)
                traffic.keep(8, 2, stream=False, key=key.text)
                await until(lambda: traffic.running >= 10, within=20.0)
                running = [call for call in traffic.calls if call.chunks and call.stream and not call.ended]
                await session.keys.revoke(key.id)
                revoked = time.monotonic()
                await until(lambda running=running: all(call.ended for call in running), within=15.0)
                await asyncio.sleep(0.2)
                await traffic.ended()
                cuts += [call.ended - revoked for call in running]
                assert all("invalid_api_key" in call.failure for call in running), running[:3]
                asked += sum(call.started > revoked for call in traffic.calls)
                late += [call for call in traffic.calls if call.started > revoked and call.status != 401]
                other.calls += traffic.calls
        await other.ended()
        await nothing_held(gateway, within=5.0)
        away = await off(gateway, upstream, other.calls)
    print(
        f"\n{len(cuts)} streams of revoked keys cut p50 {percentile(cuts, 0.5) * 1000:.0f} ms, p99 "
        f"{percentile(cuts, 0.99) * 1000:.0f} ms after `revoke` returned; {len(late)} of {asked} requests that began "
        f"later admitted; ledger minus truth in chunks {dict(sorted(Counter(away.values()).items()))}"
    )
    assert not late, late[:5]
    assert percentile(cuts, 0.99) <= CUT_WITHIN
    # An answer that comes whole is one piece of two chunks: cut, it was delivered to nobody.
    whole = {call.name for call in other.calls if not call.stream}
    assert {chunks for name, chunks in away.items() if name not in whole} <= {-1, 0, 1}
    assert {chunks for name, chunks in away.items() if name in whole} <= {-2, 0}
    await all_is_well(gateway, workers=2, processes=3)


# Slow ----------------------------------------------------------------------------------------------------------------


def resident(pid: int) -> int:
    """Bytes of memory that a process uses."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


def big_answer(seen: Seen) -> Reply:
    """A stream of `BIG` bytes for those that ask for 7 chunks, one small document for others."""
    choice = {"index": 0, "delta": {"content": CHUNK * PER_FRAME}, "finish_reason": None}
    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    frame = encode_data(msgspec.json.encode({**head, "choices": [choice]}))
    return Reply(headers={"Content-Type": "text/event-stream"}, frames=[frame] * (BIG // len(frame)))


async def latencies(traffic: Traffic, seconds: float) -> list[float]:
    """How long one healthy client waits for whole answers, one after the other."""
    waits = []
    ending = time.monotonic() + seconds
    while time.monotonic() < ending:
        call = await traffic.make(2, stream=False)
        assert call.answered_well, call
        waits.append(call.ended - call.started)
        await asyncio.sleep(0.02)
    return waits


async def quiet(traffic: Traffic) -> float:
    """The best p99 of three windows: whatever else the machine does makes any one of them worse, never better."""
    return min([percentile(await latencies(traffic, 5.0), 0.99) for _ in range(3)])


async def sip(client: Raw, leaving: asyncio.Event) -> None:
    """Read a little, about once a second."""
    while not leaving.is_set():
        await asyncio.sleep(random.uniform(0.5, 1.5))  # not all at once: that would be felt in this process, too
        with contextlib.suppress(BlockingIOError):
            assert client.socket.recv(SIP), "the answer ended"


@pytest.mark.gen_test(timeout=240)
async def test_slow_readers_of_large_streams_use_little_memory_and_delay_no_other(
    front: Front, upstream: FakeUpstream, share: float
) -> None:
    answer = upstream.answer
    upstream.answer = lambda seen: big_answer(seen) if seen.json.get("stream") else answer(seen)
    gateway = await front(workers=1)
    worker = gateway.workers[0]
    count = int(SLOW_READERS * share)
    async with traffic_on(gateway) as healthy, traffic_on(gateway) as slow:
        await latencies(healthy, 1.0)
        before = await quiet(healthy)
        files, memory = descriptors(worker), resident(worker)
        clients = [Raw(slow, receive_buffer=1 << 14) for _ in range(count)]
        leaving = asyncio.Event()
        sipping = []
        for start in range(0, count, 50):
            await asyncio.gather(*(client.ask(7) for client in clients[start : start + 50]))
            sipping += [asyncio.create_task(sip(client, leaving)) for client in clients[start : start + 50]]
        await until(lambda: _stalled(upstream), within=90.0)
        during = await quiet(healthy)
        each = (resident(worker) - memory) / count
        gone = sum(task.done() for task in sipping)
        leaving.set()
        for task in sipping:
            task.cancel()
        await asyncio.gather(*sipping, return_exceptions=True)
        for client in clients:
            client.socket.close()
        await nothing_held(gateway, within=20.0)
        print(
            f"\n{count} slow readers of {BIG >> 20} MB streams, one worker: {each / 1024:.0f} KiB of memory each, "
            f"{gone} lost; a healthy client's p99 {before * 1000:.1f} ms before, "
            f"{during * 1000:.1f} ms beside them"
        )
        assert not gone
        assert each <= PER_READER
        assert during < 2 * before
        ledger, truth = await charged(gateway), written(upstream)
        for call in healthy.calls:
            assert ledger.pop(call.request_id) == truth[call.name]
        # The rest are slow readers, charged for what the gateway took; the kernel's buffers held more than that.
        assert len(ledger) == count
        assert min(ledger.values()) > 0
        assert sum(ledger.values()) <= sum(seen.frames for seen in upstream.seen if seen.json.get("stream")) * PER_FRAME
    await until(lambda: descriptors(worker) <= files + 3, within=10.0)
    await all_is_well(gateway, workers=1, processes=2)


async def _stalled(upstream: FakeUpstream) -> bool:
    """Every buffer on the way is full: the upstream can write next to nothing any more."""
    before = sum(seen.sent for seen in upstream.seen)
    await asyncio.sleep(0.5)
    return sum(seen.sent for seen in upstream.seen) - before < SIP * len(upstream.seen)

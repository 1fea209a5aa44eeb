"""What clients, upstreams and providers may do to realtime sessions beside what they should."""

from __future__ import annotations

import asyncio
import base64
import json
import random
from contextlib import suppress
from typing import Any

import pytest
from msgspec import structs
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed
from websockets.frames import Frame, Opcode

from gateway import Realtime, RealtimeSession
from gateway.accounts.accounts import Accounts
from gateway.http_server.server import HTTPServer
from gateway.runtime.gateway import Gateway
from tests.api.conftest import Client, settled
from tests.api.realtime.conftest import RealtimeUpstream, Talk, counts, talking
from tests.http_server.test_websocket import frame
from tests.polling import until

TEN = 10 * 10**9
FAKE = "/v1/realtime?model=fake"


def write(wire: ClientConnection, *frames: Frame) -> None:
    """Send frames that the library would not send; three bits of the opcode may be reserved ones."""
    for one in frames:
        wire.transport.write(frame((0x80 if one.fin else 0) | (0x40 if one.rsv1 else 0) | one.opcode, bytes(one.data)))


async def still_talks(client: Client) -> None:
    async with talking(client, FAKE) as talk:
        assert (await talk.ask())[-1]["type"] == "response.done"


@pytest.mark.parametrize(
    ("frames", "code"),
    [
        ([Frame(Opcode.BINARY, b"{}")], 1003),
        ([Frame(Opcode.TEXT, b"\xff\xfe")], 1007),
        ([Frame(Opcode.CONT, b"{}")], 1002),
        ([Frame(Opcode.TEXT, b"{", fin=False), Frame(Opcode.TEXT, b"}")], 1002),
        ([Frame(Opcode.TEXT, b"{}", rsv1=True)], 1002),
        ([Frame(Opcode.PING, b"x" * 126)], 1002),
        ([Frame(Opcode.CLOSE, b"\x03")], 1002),
    ],
    ids=["binary", "not-utf8", "continuation", "interleaved", "reserved", "long-ping", "short-close"],
)
async def test_invalid_frames_close_with_their_code(
    client: Client, accounts: Accounts, frames: list[Frame], code: int
) -> None:
    async with talking(client, FAKE) as talk:
        write(talk.wire, *frames)
        assert await talk.closed() == code
    assert (await settled(accounts)).balance == TEN
    await still_talks(client)


async def test_event_above_the_limit_closes_with_1009(client: Client, gateway: Gateway) -> None:
    server = gateway.settings.server
    websocket = structs.replace(server.websocket, realtime_max_event=20_000)
    gateway.settings = structs.replace(gateway.settings, server=structs.replace(server, websocket=websocket))
    async with talking(client, FAKE) as talk:
        await talk.send("input_audio_buffer.append", audio="A" * 30_000)
        assert await talk.closed() == 1009


async def test_event_of_many_empty_fragments_is_read_beside_other_sessions(client: Client) -> None:
    async with talking(client, FAKE) as talk, talking(client, FAKE) as other:
        event = json.dumps({"type": "response.create"}).encode()
        write(talk.wire, Frame(Opcode.TEXT, b"", fin=False), *[Frame(Opcode.CONT, b"", fin=False)] * 20_000)
        assert (await other.ask())[-1]["type"] == "response.done"
        write(talk.wire, Frame(Opcode.CONT, event))
        await talk.until("response.done")


async def test_flood_of_pings_is_answered_beside_other_sessions(client: Client) -> None:
    async with talking(client, FAKE) as talk, talking(client, FAKE) as other:
        write(talk.wire, *[Frame(Opcode.PING, b"x")] * 20_000)
        assert (await other.ask())[-1]["type"] == "response.done"
        assert (await talk.ask())[-1]["type"] == "response.done"


async def test_flood_of_events_that_the_upstream_does_not_read_is_not_buffered(
    client: Client, vendor: RealtimeUpstream
) -> None:
    """The client is not read while its events wait."""
    stays = asyncio.Event()

    async def never(socket: Any, event: dict[str, Any]) -> None:
        await stays.wait()

    vendor.answer = never
    sent = 0
    async with talking(client) as talk:
        event = json.dumps({"type": "input_audio_buffer.append", "audio": "A" * 100_000})
        try:
            async with asyncio.timeout(1):
                for _ in range(1000):
                    await talk.wire.send(event)
                    sent += 1
        except TimeoutError:
            pass
        assert sent < 400, "100 MB were taken"
        stays.set()
        talk.wire.transport.abort()


async def test_client_that_does_not_read_stops_the_upstream(
    client: Client, vendor: RealtimeUpstream, gateway: Gateway
) -> None:
    async with talking(client, max_queue=1) as talk:
        await vendor.begin()
        delta = base64.b64encode(bytes(100_000)).decode()
        sent = 0
        try:
            async with asyncio.timeout(1):
                for _ in range(1000):
                    await vendor.say("response.output_audio.delta", response_id="resp_1", delta=delta)
                    sent += 1
        except TimeoutError:
            pass
        assert sent < 400, "130 MB were taken"
        talk.wire.transport.abort()


@pytest.mark.parametrize(
    "text",
    [
        b"\xff", b"[]", b"{", b"null", b'{"type":3}', b'{"no":"type"}', b'{"type":"response.created"}',
        b'{"type":"response.done","response":[]}', b'{"type":"response.created","response":{"id":""}}',
        b'{"type":"response.done"' + b',"x":[' * 100_000,
    ],
)  # fmt: skip
async def test_event_of_the_upstream_that_is_none_closes_with_1011(
    client: Client, vendor: RealtimeUpstream, accounts: Accounts, text: bytes
) -> None:
    async with talking(client) as talk:
        vendor.sockets[-1].transport.write(Frame(Opcode.TEXT, text).serialize(mask=False))
        assert await talk.closed() == 1011
    assert (await settled(accounts)).balance == TEN


async def test_binary_message_of_the_upstream_closes_with_1011(client: Client, vendor: RealtimeUpstream) -> None:
    async with talking(client) as talk:
        await vendor.sockets[-1].send(b"{}")
        assert await talk.closed() == 1011


async def test_event_of_the_upstream_above_16_mib_closes_with_1011(client: Client, vendor: RealtimeUpstream) -> None:
    async with talking(client) as talk:
        with suppress(ConnectionClosed):
            await vendor.say("response.output_audio.delta", delta="A" * (16 * 2**20))
        assert await talk.closed() == 1011


async def test_upstream_may_not_run_responses_without_end_and_number(
    client: Client, vendor: RealtimeUpstream, accounts: Accounts
) -> None:
    async with talking(client) as talk:
        for number in range(17):
            await vendor.begin(f"resp_{number}")
        assert await talk.closed() == 1011
    assert (await settled(accounts)).balance == TEN


@pytest.mark.holds("prices.md#realtime-sessions-7")
async def test_response_that_goes_on_after_its_end_closes_with_1011(
    client: Client, vendor: RealtimeUpstream, accounts: Accounts
) -> None:
    """Otherwise it would be delivered and never charged."""
    async with talking(client) as talk:
        await vendor.begin()
        await vendor.done(**counts(1, 0, 1, 0))
        await vendor.text("more")
        assert await talk.closed() == 1011
    await settled(accounts)


async def test_parts_of_a_response_that_was_not_announced_are_charged(
    client: Client, vendor: RealtimeUpstream, accounts: Accounts
) -> None:
    async with talking(client) as talk:
        await vendor.text("x" * 400)
        await talk.until("response.output_text.delta")
        talk.wire.transport.abort()
    assert TEN - (await settled(accounts)).balance == 100 * 16_000


async def test_silent_upstream_in_a_response_is_a_timeout(
    client: Client, vendor: RealtimeUpstream, gateway: Gateway, accounts: Accounts
) -> None:
    model = gateway.catalog.models["rt"]
    target = model.targets[0].target
    timeouts = structs.replace(target.timeouts, idle=0.5)
    changed = structs.replace(model.targets[0], target=structs.replace(target, timeouts=timeouts))
    gateway.catalog.models["rt"] = structs.replace(model, targets=(changed,))  # type: ignore[index]
    gateway.router._groups.clear()
    gateway.router._only.clear()
    async with talking(client) as talk:
        await vendor.begin()
        await vendor.text("hello")
        event = (await talk.until("error"))[-1]
        assert event["error"]["code"] == "upstream_timeout"
        assert await talk.closed() == 1011
    assert (await settled(accounts)).balance < TEN


class Poison(RealtimeSession):
    """A session of a plugin with a bug."""

    def __init__(self, fault: str) -> None:
        self.fault = fault
        self.first = True

    async def send(self, event: bytes) -> None:
        if self.fault == "send":
            raise RuntimeError("secret-canary")
        if self.fault == "send-cancels":
            raise asyncio.CancelledError
        await asyncio.Event().wait()

    async def receive(self) -> bytes:
        if self.first:
            self.first = False
            return b'{"type":"session.created","session":{}}'
        if self.fault == "receive":
            raise RuntimeError("secret-canary")
        if self.fault == "wrong-type":
            return "text"  # type: ignore[return-value]
        if self.fault == "endless":
            return b'{"type":"rate_limits.updated"}'
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if self.fault != "stubborn":
                raise
        await asyncio.get_running_loop().create_future()
        raise AssertionError

    def close(self) -> None:
        if self.fault == "close":
            raise RuntimeError("secret-canary")


@pytest.mark.parametrize("fault", ["send", "send-cancels", "receive", "wrong-type", "close", "stubborn", "endless"])
async def test_plugin_with_a_bug_ends_its_own_session_only(
    client: Client, gateway: Gateway, accounts: Accounts, http_server: HTTPServer, fault: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    provider = gateway.router.resolve(gateway.catalog.models["fake"], Realtime)[0].provider

    async def poisoned(request: Any, target: Any) -> RealtimeSession:
        return Poison(fault)

    with monkeypatch.context() as patched:
        patched.setattr(provider, "open_realtime", poisoned)
        async with talking(client, FAKE) as talk:
            if fault.startswith("send"):
                await talk.send("response.cancel")
            if fault in ("close", "stubborn", "endless"):
                talk.wire.transport.abort()
            else:
                event = (await talk.until("error"))[-1]
                assert "canary" not in json.dumps(event)
                assert await talk.closed() == 1011
        account = await settled(accounts)
        assert account.balance == TEN
        assert await until(lambda: not http_server.connections)
    gateway.router.health.keep([])
    assert not gateway.active_calls.calls


async def test_random_events_end_in_nothing_but_answers(
    client: Client, accounts: Accounts, http_server: HTTPServer
) -> None:
    """Events with random members; the session answers or closes, and the next one works."""
    chance = random.Random(7)
    values: list[Any] = [None, 0, -1, 1e308, "", "x", [], {}, [[]], {"a": 1}, True, "\ud83d", "💥" * 50]
    names = ["type", "session", "response", "item", "audio", "event_id", "content", "tools", "model", "input"]
    kinds = ["session.update", "response.create", "conversation.item.create", "input_audio_buffer.append"]

    def member(depth: int) -> Any:
        if depth and chance.random() < 0.5:
            return {chance.choice(names): member(depth - 1) for _ in range(chance.randrange(4))}
        return chance.choice(values)

    async def once(talk: Talk) -> None:
        for _ in range(40):
            event = {"type": chance.choice(kinds), **{chance.choice(names[1:]): member(3) for _ in range(3)}}
            await talk.wire.send(json.dumps(event))

    for _ in range(15):
        try:
            async with talking(client) as talk:
                await once(talk)
                await talk.send("nothing")
                async with asyncio.timeout(20):
                    while (await talk.event())["error"]["param"] != "type":
                        pass
        except ConnectionClosed as closed:
            raise AssertionError(closed) from closed
    assert await until(lambda: not http_server.connections)
    assert (await settled(accounts)).balance == TEN
    await still_talks(client)

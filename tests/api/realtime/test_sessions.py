"""Sessions of `GET /v1/realtime`: events in both directions, and what each response costs."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import pytest
from msgspec import structs
from websockets.asyncio.client import connect

from gateway import Realtime, RealtimeSession, current_call
from gateway.accounts.accounts import Accounts
from gateway.billing.call_record import CallRecord
from gateway.http_server.server import HTTPServer
from gateway.runtime.gateway import Gateway
from tests.api.conftest import Client, settled
from tests.api.realtime.conftest import PATH, RealtimeUpstream, cost, counts, talking
from tests.polling import until

TEN = 10 * 10**9
FAKE = "/v1/realtime?model=fake"
SOUND = base64.b64encode(b"\x01\x02" * 2400).decode()  # 100 ms
SILENCE = base64.b64encode(bytes(4800)).decode()


async def test_response_is_relayed_and_charged_by_its_usage(
    client: Client, accounts: Accounts, records: list[CallRecord]
) -> None:
    async with talking(client, FAKE) as talk:
        events = await talk.ask("Hi there")
        kinds = [event["type"] for event in events]
        assert kinds[:3] == ["conversation.item.added", "conversation.item.done", "response.created"]
        assert kinds.count("response.output_audio.delta") == 2
        assert events[-1]["response"]["usage"]["output_token_details"] == {"text_tokens": 2, "audio_tokens": 8}
        again = await talk.ask("Bye")
        assert again[-1]["response"]["usage"]["input_tokens"] == 2 + 10 + 1, "the answer is a part of the next prompt"
    account = await settled(accounts)
    first, second = cost(2, 0, 2, 8), cost(5, 8, 1, 4)
    assert [record.cost for record in records] == [first, second, 0], "the call that waits costs nothing"
    assert TEN - account.balance == first + second
    assert len({record.request_id for record in records}) == 3
    assert {(record.endpoint, record.outcome, record.provider) for record in records} == {("realtime", "ok", "fake")}
    assert not any(record.usage.estimated for record in records)


@pytest.mark.holds("prices.md#realtime-sessions-4")
async def test_response_that_nobody_asked_for_is_charged(
    client: Client, accounts: Accounts, records: list[CallRecord]
) -> None:
    """The upstream detects the end of the speech, and answers."""
    async with talking(client, FAKE) as talk:
        await talk.send("input_audio_buffer.append", audio=SOUND)
        await talk.send("input_audio_buffer.append", audio=SILENCE)
        events = await talk.until("response.done")
    kinds = {event["type"] for event in events}
    assert {"input_audio_buffer.speech_started", "input_audio_buffer.committed"} <= kinds
    await settled(accounts)
    assert records[0].cost == cost(0, 2, 4, 16)
    assert records[0].usage.in_audio == 2


async def test_names_of_the_model_are_public_to_the_client_and_the_upstreams_to_the_upstream(
    client: Client, vendor: RealtimeUpstream
) -> None:
    async with talking(client, "/v1/realtime?model=rt-alias") as talk:
        for name in ("rt-alias", "rt"):
            await talk.send("session.update", session={"type": "realtime", "model": name, "instructions": "Be short"})
        await until(lambda: len(vendor.received) == 2)
        assert vendor.received[0] == {
            "type": "session.update",
            "session": {"type": "realtime", "model": "upstream-rt", "instructions": "Be short"},
        }
        await vendor.say("session.updated", session={"model": "upstream-rt", "instructions": "Be short"})
        assert (await talk.event())["session"] == {"model": "rt", "instructions": "Be short"}
        await vendor.say("response.created", response={"id": "resp_1", "model": "upstream-rt"})
        assert (await talk.event())["response"]["model"] == "rt"
    assert vendor.paths == ["/v1/realtime?model=upstream-rt"]
    assert vendor.headers[0]["Authorization"] == "Bearer sk-upstream-canary-0123456789"


async def test_first_event_has_the_public_name(client: Client) -> None:
    async with talking(client) as talk:
        await talk.send("session.update", session={})
    url = client.base_url.replace("http", "ws", 1) + PATH
    async with connect(url, additional_headers=client.headers) as wire:
        assert json.loads(await wire.recv())["session"]["model"] == "rt"


async def test_other_events_are_passed_on_as_the_bytes_that_came(client: Client, vendor: RealtimeUpstream) -> None:
    odd = '{ "type":"response.cancel" , "x":1.50, "y":"\\u00e9é" }'
    async with talking(client) as talk:
        seen: list[str] = []
        vendor.answer = lambda socket, event: asyncio.sleep(0)
        await talk.wire.send(odd)
        await until(lambda: vendor.received)
        assert vendor.received == [json.loads(odd)]
        text = '{"type":"rate_limits.updated",  "rate_limits":[1.50]}'
        await vendor.sockets[-1].send(text)
        async with asyncio.timeout(10):
            seen.append(await talk.wire.recv())  # type: ignore[arg-type]
        assert seen == [text]


@pytest.mark.parametrize(
    ("event", "code", "param"),
    [
        ({"type": "session.update", "session": {"model": "other"}}, "invalid_value", "session.model"),
        ({"type": "session.update", "session": {"model": 3}}, "invalid_value", "session.model"),
        ({"type": "session.update", "session": {"prompt": {"id": "p"}}}, "unsupported_parameter", "session.prompt"),
        ({"type": "session.update", "session": {"tools": [{"type": "mcp"}]}}, "unsupported_value", "session.tools"),
        ({"type": "response.create", "response": {"tools": [{"type": "mcp"}]}}, "unsupported_value", "response.tools"),
        ({"type": "session.update", "session": {"api_base": "x"}}, "unsupported_parameter", "session.api_base"),
        (
            {"type": "response.create", "response": {"audio": {"extra_headers": {}}}},
            "unsupported_parameter",
            "response.audio.extra_headers",
        ),
        ({"type": "response.steer"}, "unsupported_value", "type"),
        ({"type": "session.update", "session": []}, "invalid_event", None),
        ({"event_id": "e"}, "missing_required_parameter", "type"),
        ([], "invalid_event", None),
        ("{", "invalid_json", None),
        ('{"type":"session.update","session":' + "[" * 100_000, "invalid_json", None),
    ],
)
async def test_mistake_of_the_client_is_an_error_event_and_the_session_stays(
    client: Client, vendor: RealtimeUpstream, event: Any, code: str, param: str | None
) -> None:
    async with talking(client) as talk:
        if isinstance(event, dict):
            event = {"event_id": "mine", **event}
        await talk.wire.send(event if isinstance(event, str) else json.dumps(event))
        answer = await talk.event()
        assert answer["type"] == "error"
        error = answer["error"]
        assert (error["code"], error["param"], error["type"]) == (code, param, "invalid_request_error")
        if isinstance(event, dict):
            assert error["event_id"] == event["event_id"]
        await talk.send("response.cancel")
        await until(lambda: vendor.received)
    assert [one["type"] for one in vendor.received] == ["response.cancel"]


async def test_error_of_the_upstream_is_passed_on_without_addresses_and_keys(
    client: Client, vendor: RealtimeUpstream
) -> None:
    async with talking(client) as talk:
        message = "No such item; see https://api.vendor.example/x with sk-upstream-canary-0123456789"
        await vendor.say("error", error={"type": "invalid_request_error", "message": message, "event_id": "mine"})
        event = await talk.event()
    assert event["type"] == "error" and event["error"]["event_id"] == "mine"
    assert "No such item" in event["error"]["message"]
    assert "canary" not in json.dumps(event) and "vendor.example" not in json.dumps(event)


async def test_upstream_that_leaves_closes_with_1011(client: Client, vendor: RealtimeUpstream) -> None:
    async with talking(client) as talk:
        await vendor.sockets[-1].close()
        event = await talk.event()
        assert event["error"]["code"] == "upstream_stream_truncated"
        assert await talk.closed() == 1011


async def test_idle_session_is_closed_with_4008(client: Client, gateway: Gateway, accounts: Accounts) -> None:
    server = gateway.settings.server
    websocket = structs.replace(server.websocket, realtime_max_idle=1.0)
    gateway.settings = structs.replace(gateway.settings, server=structs.replace(server, websocket=websocket))
    async with talking(client) as talk:
        assert await talk.closed() == 4008
    assert (await settled(accounts)).balance == TEN


async def test_session_that_talks_is_not_idle(client: Client, gateway: Gateway) -> None:
    server = gateway.settings.server
    websocket = structs.replace(server.websocket, realtime_max_idle=1.0)
    gateway.settings = structs.replace(gateway.settings, server=structs.replace(server, websocket=websocket))
    async with talking(client, "/v1/realtime?model=endless") as talk:
        await talk.send("response.create")
        async with asyncio.timeout(10):
            started = asyncio.get_running_loop().time()
            while asyncio.get_running_loop().time() < started + 2.5:
                await talk.event()


async def test_four_responses_may_be_asked_for_at_a_time(client: Client, vendor: RealtimeUpstream) -> None:
    async with talking(client) as talk:
        for _ in range(5):
            await talk.send("response.create", response={"conversation": "none"})
        error = (await talk.event())["error"]
        assert error["code"] == "too_many_responses"
        assert len(vendor.received) == 4


@pytest.mark.holds("prices.md#realtime-sessions-5")
async def test_responses_at_a_time_are_charged_together(
    client: Client, vendor: RealtimeUpstream, accounts: Accounts, records: list[CallRecord]
) -> None:
    async with talking(client) as talk:
        for name in ("resp_1", "resp_2"):
            await vendor.begin(name)
        for name in ("resp_1", "resp_2"):
            await vendor.text("hello", name)
            await vendor.done(name, **counts(10, 0, 2, 0))
        await talk.until("response.done")
        await talk.until("response.done")
    await settled(accounts)
    assert [record.cost for record in records] == [cost(20, 0, 4, 0), 0]


@pytest.mark.holds("prices.md#realtime-sessions-7")
async def test_end_that_is_repeated_is_charged_once(
    client: Client, vendor: RealtimeUpstream, accounts: Accounts, records: list[CallRecord]
) -> None:
    async with talking(client) as talk:
        await vendor.begin()
        for _ in range(3):
            await vendor.done(**counts(10, 0, 2, 0))
            await talk.until("response.done")
    await settled(accounts)
    assert sum(record.cost for record in records) == cost(10, 0, 2, 0)


@pytest.mark.holds("prices.md#what-is-charged-22")
async def test_transcript_of_the_callers_speech_is_charged(
    client: Client, vendor: RealtimeUpstream, accounts: Accounts, records: list[CallRecord]
) -> None:
    async with talking(client) as talk:
        await talk.send("input_audio_buffer.append", audio=SOUND * 1)
        await until(lambda: vendor.received)
        usage = {"type": "tokens", "input_tokens": 30, "output_tokens": 4, "input_token_details": {"audio_tokens": 30}}
        await vendor.say(
            "conversation.item.input_audio_transcription.completed",
            item_id="i",
            transcript="one two three",
            usage=usage,
        )
        await talk.until("conversation.item.input_audio_transcription.completed")
    await settled(accounts)
    assert [record.cost for record in records] == [cost(0, 30, 4, 0)]


@pytest.mark.holds("prices.md#what-is-charged-22")
async def test_cached_audio_has_its_price(
    client: Client, vendor: RealtimeUpstream, accounts: Accounts, records: list[CallRecord]
) -> None:
    usage = counts(100, 100, 5, 20)
    usage["input_token_details"] |= {
        "cached_tokens": 60,
        "cached_tokens_details": {"text_tokens": 40, "audio_tokens": 20},
    }
    async with talking(client) as talk:
        await vendor.begin()
        await vendor.done(**usage)
        await talk.until("response.done")
    await settled(accounts)
    found = records[0].usage
    assert (found.in_text, found.in_cached, found.in_audio, found.in_audio_cached) == (60, 40, 80, 20)
    assert (found.out_text, found.out_audio) == (5, 20)


async def test_session_waits_for_a_rate_limit_and_goes_on(
    client: Client, accounts: Accounts, keys: Any, gateway: Gateway
) -> None:
    created = await keys.create("acme", name="limited", rpm=120)
    client.headers = {"Authorization": f"Bearer {created.text}"}
    async with talking(client, FAKE) as talk:
        waited = False
        for _ in range(130):
            events = await talk.ask("Hi")
            if any(event["type"] == "error" for event in events):
                waited = True
                break
        assert waited
        assert (await talk.ask("Hi"))[-1]["type"] == "response.done"
    await settled(accounts)


async def test_sessions_are_counted_and_listed(
    client: Client, gateway: Gateway, http_server: HTTPServer, accounts: Accounts
) -> None:
    async with talking(client):
        [call] = gateway.active_calls.calls.values()
        assert (call.endpoint.name, call.provider, call.stream) == ("realtime", "up", True)
    await settled(accounts)
    assert await until(lambda: not http_server.connections)
    delta = gateway.metrics.drain()
    assert delta is not None
    assert ("gateway_websockets_closed", ("1000",), 1) in [(name, labels, n) for name, labels, n in delta.counters]
    assert gateway.active_calls.calls == {}


async def test_named_header_of_the_client_goes_to_the_upstream(client: Client, vendor: RealtimeUpstream) -> None:
    headers = {**client.headers, "X-Team": "search", "X-Other": "no"}
    async with talking(client, additional_headers=headers):
        [sent] = vendor.headers
    assert sent["x-team"] == "search" and "X-Other" not in sent and "x-other" not in sent


class Noting(RealtimeSession):
    """A session of a plugin that notes whose call it serves."""

    def __init__(self) -> None:
        self.seen = [current_call()]
        self.events: asyncio.Queue[bytes] = asyncio.Queue()
        self.events.put_nowait(b'{"type":"session.created","session":{}}')

    async def send(self, event: bytes) -> None:
        self.seen.append(current_call())
        for part in ({"type": "response.created"}, {"type": "response.done"}):
            self.events.put_nowait(json.dumps({**part, "response": {"id": f"resp_{len(self.seen)}"}}).encode())

    async def receive(self) -> bytes:
        self.seen.append(current_call())
        return await self.events.get()

    def close(self) -> None:
        """Nothing is open."""


async def test_provider_knows_the_call_of_each_response(
    client: Client, gateway: Gateway, accounts: Accounts, records: list[CallRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = gateway.router.resolve(gateway.catalog.models["fake"], Realtime)[0].provider
    sessions = list[Noting]()

    async def noting(request: Any, target: Any) -> RealtimeSession:
        sessions.append(Noting())
        return sessions[-1]

    monkeypatch.setattr(provider, "open_realtime", noting)
    async with talking(client, FAKE) as talk:
        for _ in range(2):
            await talk.send("response.create")
            await talk.until("response.done")
    await settled(accounts)
    seen = [call for session in sessions for call in session.seen]
    assert all(call is not None and (call.account, call.model) == ("acme", "fake") for call in seen)
    assert list(dict.fromkeys(call.request_id for call in seen if call))[:2] == [
        record.request_id for record in records[:2]
    ]

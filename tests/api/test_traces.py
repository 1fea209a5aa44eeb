"""Spans of calls and of their attempts, as a collector of OpenTelemetry gets them."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from msgspec import Struct, structs
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from gateway.config.loader import parse
from gateway.config.settings import Settings, TelemetrySettings
from gateway.config.toml_reader import SettingsError
from gateway.runtime.gateway import Gateway
from gateway.telemetry import tracing
from gateway.telemetry.call_trace import CallTrace, ParentSpan
from gateway.telemetry.message_texts import asked
from gateway.testing import FakeUpstream, Reply
from tests.api.collector import Collector, attributes_of
from tests.api.conftest import Client
from tests.polling import until

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
NOT_SAMPLED = f"{PARENT[:-2]}00"
TWO = {"model": "two", "messages": [{"role": "user", "content": "Hi"}]}


@pytest.fixture
def telemetry() -> dict[str, Any]:
    """Settings of [telemetry] beside the endpoint."""
    return {"attributes": {"deployment.environment.name": "test"}}


@pytest.fixture
def settings(settings: Settings, io_loop: Any, collector: Collector, telemetry: dict[str, Any]) -> Settings:
    """The same, and calls are traced."""
    found = parse({"telemetry": {"endpoint": collector.url, **telemetry}}).telemetry
    two = structs.replace(settings.models["two"], strategy="in_order", retries=1)
    return structs.replace(settings, telemetry=found, models={**settings.models, "two": two})


@pytest.fixture
def collector(io_loop: Any) -> Any:
    """Where the spans go."""
    collector = Collector()
    io_loop.run_sync(collector.__aenter__)
    yield collector
    io_loop.run_sync(lambda: collector.__aexit__(None, None, None))


def by_kind(spans: list[Span]) -> tuple[Span, list[Span]]:
    """The span of the call, and those of its attempts."""
    [call] = [span for span in spans if span.kind == Span.SPAN_KIND_SERVER]
    attempts = [span for span in spans if span.kind == Span.SPAN_KIND_CLIENT]
    return call, sorted(attempts, key=lambda span: span.start_time_unix_nano)


@pytest.mark.holds("operations/telemetry.md#traces-1", "operations/telemetry.md#traces-4")
@pytest.mark.parametrize("stream", [False, True])
async def test_call_and_its_attempt_have_spans_with_its_model_tokens_and_cost(
    client: Client, collector: Collector, stream: bool
) -> None:
    if stream:
        response, text, failure = await client.stream()
        assert failure is None
        assert text
    else:
        response, _ = await client.chat()
    call, [attempt] = by_kind(await collector.spans(2))
    assert (call.name, attempt.name) == ("POST /v1/chat/completions", "chat upstream-m1")
    assert call.parent_span_id == b""
    assert (attempt.trace_id, attempt.parent_span_id) == (call.trace_id, call.span_id)
    assert call.start_time_unix_nano <= attempt.start_time_unix_nano <= attempt.end_time_unix_nano
    assert attempt.end_time_unix_nano <= call.end_time_unix_nano
    of_call, of_attempt = attributes_of(call.attributes), attributes_of(attempt.attributes)
    assert of_call["gateway.request_id"] == response.headers["x-request-id"]
    assert of_call["gen_ai.request.model"] == "m1"
    assert of_call["gateway.account"] == "acme"
    assert of_call["gateway.outcome"] == "ok"
    assert of_call["gateway.stream"] is stream
    assert of_call["http.response.status_code"] == 200
    assert ("gen_ai.response.time_to_first_chunk" in of_call) is stream
    assert of_attempt["gen_ai.provider.name"] == "up"
    assert of_attempt["gen_ai.request.model"] == "upstream-m1"
    assert of_call["gen_ai.usage.input_tokens"] > 0
    assert not any(name.startswith("gen_ai.usage") for name in of_attempt)  # collectors add up the spans of a trace
    [resource] = collector.traces[0].resource_spans
    assert attributes_of(resource.resource.attributes)["service.name"] == "model-gateway"
    assert attributes_of(resource.resource.attributes)["deployment.environment.name"] == "test"


@pytest.mark.holds("operations/telemetry.md#traces-1")
async def test_each_attempt_has_a_span_and_the_failed_one_its_error(
    client: Client, upstream: FakeUpstream, collector: Collector
) -> None:
    upstream.enqueue(Reply.error(500, "broken"))
    async with client.request("POST", "/v1/chat/completions", json=TWO) as response:
        assert response.status == 200
    call, [first, second] = by_kind(await collector.spans(3))
    assert [attributes_of(one.attributes)["gen_ai.request.model"] for one in (first, second)] == ["first", "second"]
    assert attributes_of(first.attributes)["error.type"] == "upstream_error"
    assert "error.type" not in attributes_of(second.attributes)
    assert first.end_time_unix_nano <= second.start_time_unix_nano
    assert attributes_of(call.attributes)["gateway.attempts"] == 2
    seen = [one.headers["traceparent"].split("-")[1:3] for one in upstream.seen]
    assert seen == [[one.trace_id.hex(), one.span_id.hex()] for one in (first, second)]


@pytest.mark.holds("operations/telemetry.md#traces-2")
async def test_call_goes_on_in_the_trace_of_its_caller(
    client: Client, upstream: FakeUpstream, collector: Collector
) -> None:
    headers = {**client.headers, "traceparent": PARENT, "tracestate": "vendor=abc"}
    async with client.request("POST", "/v1/chat/completions", headers=headers, json={**TWO, "model": "m1"}) as response:
        assert response.status == 200
    call, [attempt] = by_kind(await collector.spans(2))
    _, trace_id, parent, _ = PARENT.split("-")
    assert (call.trace_id.hex(), call.parent_span_id.hex()) == (trace_id, parent)
    assert upstream.seen[0].headers["traceparent"] == f"00-{trace_id}-{attempt.span_id.hex()}-01"
    assert upstream.seen[0].headers["tracestate"] == "vendor=abc"


@pytest.mark.holds("operations/telemetry.md#traces-2", "operations/telemetry.md#traces-3")
async def test_caller_who_does_not_sample_gets_no_spans_and_its_context_is_passed_on(
    client: Client, upstream: FakeUpstream, collector: Collector
) -> None:
    headers = {**client.headers, "traceparent": NOT_SAMPLED}
    async with client.request("POST", "/v1/chat/completions", headers=headers, json={**TWO, "model": "m1"}) as response:
        assert response.status == 200
    assert upstream.seen[0].headers["traceparent"] == NOT_SAMPLED
    response, _ = await client.chat()  # a call after it, whose spans come
    call, _ = by_kind(await collector.spans(2))
    assert attributes_of(call.attributes)["gateway.request_id"] == response.headers["x-request-id"]


class TestOwnSample:
    @pytest.fixture
    def telemetry(self) -> dict[str, Any]:
        return {"follow_callers": False, "sample": 0.0}

    @pytest.mark.holds("operations/telemetry.md#traces-3")
    async def test_caller_decides_nothing_where_callers_are_not_followed(
        self, client: Client, gateway: Gateway, collector: Collector
    ) -> None:
        headers = {**client.headers, "traceparent": PARENT}
        async with client.request("POST", "/v1/chat/completions", headers=headers, json=TWO) as response:
            assert response.status == 200
        await gateway.traces.close()
        assert collector.spans_so_far == []


async def test_refused_request_has_a_span_without_attempts(client: Client, collector: Collector) -> None:
    async with client.request("POST", "/v1/chat/completions", json={**TWO, "model": "secret"}) as response:
        assert response.status == 403
    call, attempts = by_kind(await collector.spans(1))
    assert attempts == []
    found = attributes_of(call.attributes)
    assert (found["error.type"], found["http.response.status_code"]) == ("model_not_permitted", 403)


async def test_caller_who_leaves_has_a_span_that_says_so(
    client: Client, upstream: FakeUpstream, collector: Collector
) -> None:
    silent = Reply.json({})
    silent.delay = 60.0
    upstream.enqueue(silent)
    asking = asyncio.create_task(client.chat())
    await until(lambda: upstream.seen)
    asking.cancel()
    call, [attempt] = by_kind(await collector.spans(2))
    assert attributes_of(call.attributes)["gateway.outcome"] == "client_closed"
    assert attributes_of(attempt.attributes)["error.type"] == "cancelled"


@pytest.mark.holds("operations/telemetry.md#what-it-costs-1")
async def test_calls_do_not_wait_for_a_silent_collector_and_lost_traces_are_counted(
    client: Client, gateway: Gateway, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracing, "QUEUED", 2)
    monkeypatch.setattr(tracing, "BATCH", 1)
    collector.answers.clear()
    for _ in range(6):
        response, _ = await client.chat()
        assert response.status == 200
    await until(lambda: gateway.metrics._counters.get(("gateway_traces_lost", ()), 0) >= 1)
    collector.answers.set()


async def test_collector_that_refuses_is_counted(client: Client, gateway: Gateway, collector: Collector) -> None:
    collector.status = 400
    await client.chat()
    await until(lambda: gateway.metrics._counters.get(("gateway_traces_lost", ()), 0) == 1)


class TestHeaders:
    @pytest.fixture
    def telemetry(self, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
        monkeypatch.setenv("COLLECTOR_TOKEN", "Bearer canary-1")
        return {"headers": {"authorization": "env:COLLECTOR_TOKEN", "x-tenant": "acme"}}

    async def test_headers_of_the_configuration_are_sent_to_the_collector(
        self, client: Client, collector: Collector
    ) -> None:
        await client.chat()
        await collector.spans(2)
        assert collector.headers[0]["authorization"] == "Bearer canary-1"
        assert collector.headers[0]["x-tenant"] == "acme"


class TestTexts:
    @pytest.fixture
    def telemetry(self) -> dict[str, Any]:
        return {"content": True}

    @pytest.mark.holds("operations/telemetry.md#traces-5")
    @pytest.mark.parametrize("stream", [False, True])
    async def test_texts_of_the_call_are_in_its_span(self, client: Client, collector: Collector, stream: bool) -> None:
        messages = [
            {"role": "system", "content": "Be short"},
            {"role": "user", "content": [{"type": "text", "text": "Hi canary"}]},
        ]
        if stream:
            await client.stream(messages=messages)
        else:
            await client.chat(messages=messages)
        call, _ = by_kind(await collector.spans(2))
        found = attributes_of(call.attributes)
        assert json.loads(found["gen_ai.input.messages"]) == [
            {"role": "system", "parts": [{"type": "text", "content": "Be short"}]},
            {"role": "user", "parts": [{"type": "text", "content": "Hi canary"}]},
        ]
        [answer] = json.loads(found["gen_ai.output.messages"])
        assert (answer["role"], answer["finish_reason"]) == ("assistant", "stop")
        [part] = answer["parts"]
        assert part["type"] == "text"
        assert part["content"]


@pytest.mark.holds("operations/telemetry.md#traces-5")
async def test_texts_are_not_in_spans_unless_the_configuration_says_so(client: Client, collector: Collector) -> None:
    await client.chat(messages=[{"role": "user", "content": "Hi canary"}])
    await collector.spans(2)
    assert "canary" not in str(collector.traces)


def test_long_conversation_keeps_its_newest_messages_and_long_texts_are_cut() -> None:
    messages = [Said("user", f"{number} {'x' * 20_000}") for number in range(10)]
    kept = json.loads(asked(Conversation(messages)))
    assert [one["parts"][0]["content"][:2] for one in kept] == ["7 ", "8 ", "9 "]
    assert {len(one["parts"][0]["content"]) for one in kept} == {16_384}


class Said(Struct):
    """A message."""

    role: str
    content: str


class Conversation(Struct):
    """A request."""

    messages: list[Said]


async def test_reload_changes_what_is_traced(client: Client, gateway: Gateway, collector: Collector) -> None:
    await client.chat()
    off = structs.replace(gateway.settings, telemetry=TelemetrySettings())
    await gateway.reload(off)
    assert gateway.traces.current is None
    assert len(await collector.spans(2)) == 2, "what waited was sent"
    response, _ = await client.chat()
    assert response.status == 200


@pytest.mark.parametrize(
    "text",
    ["", "nonsense", PARENT.replace("00-0af", "ff-0af"), f"00-{'0' * 32}-b7ad6b7169203331-01", PARENT.upper()],
)
def test_text_that_names_no_span_is_no_parent(text: str) -> None:
    assert ParentSpan.of(text) is None


def test_flag_of_the_context_says_whether_it_is_sampled() -> None:
    assert [ParentSpan.of(text).is_sampled for text in (PARENT, NOT_SAMPLED, f"{PARENT[:-2]}03")] == [  # type: ignore[union-attr]
        True,
        False,
        True,
    ]


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ({"endpoint": "collector:4318"}, "telemetry.endpoint"),
        ({"sample": 1.5}, "telemetry.sample"),
        ({"headers": {"authorization": "Bearer x"}}, "telemetry.headers.authorization"),
    ],
)
def test_wrong_settings_are_refused(table: dict[str, Any], problem: str) -> None:
    with pytest.raises(SettingsError, match=problem):
        parse({"telemetry": table})


async def test_attempt_of_a_call_that_is_traced_has_an_id_of_its_own() -> None:  # in a task: it changes its context
    trace = CallTrace.begin(None, ParentSpan.of(PARENT), "/v1/chat/completions")  # type: ignore[arg-type]
    ids = {trace.attempt("up", "m").span_id for _ in range(100)} | {trace.span_id}
    assert len(ids) == 101

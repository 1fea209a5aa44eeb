"""The conformance kit: the built-ins pass it, and it catches what it is there to catch."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec import UNSET, Struct, json

from gateway import Chat, ChatChunk, ChatRequest, CompletionUsage, Provider, Secret, Target
from gateway.errors import UpstreamRejected
from gateway.testing import FakeUpstream, Reply, ask, check_provider, collect
from gateway.testing.standards.classes import Missing
from gateway_providers.fake import FakeProvider
from gateway_providers.openai import OpenAIProvider
from tests.delays import forever
from tests.polling import turns

SECRET = "sk-canary-9f2c41"
OPENAI: dict[str, Any] = {"base_url": "{upstream}/v1", "api_key": Secret("literal", SECRET)}


@pytest.mark.slow  # a quick run has the same check in test_conformance_kit_endpoints.py
def test_openai_conforms() -> None:
    passed = check_provider(OpenAIProvider, options=OPENAI, upstream=FakeUpstream())
    assert {"stream_is_sound", "cut_stream_never_looks_whole", "cancelling_closes_the_upstream"} <= set(passed)


def test_fake_conforms() -> None:
    assert "stream_is_sound" in check_provider(FakeProvider)


class Good(Provider, Chat):
    """A provider without fault, for the others to break."""

    name = "good"

    class Options(Struct, forbid_unknown_fields=True):
        pass

    async def stream_chat(self, request: ChatRequest, target: Target) -> AsyncIterator[ChatChunk]:
        yield ChatChunk.text("hello")
        yield ChatChunk.finish("stop")


def test_minimal_provider_conforms() -> None:
    assert "stream_is_sound" in check_provider(Good)


class OddLogprobs(Good):
    async def stream_chat(self, request: ChatRequest, target: Target) -> AsyncIterator[ChatChunk]:
        chunk = ChatChunk.text("hello")
        chunk.choices[0].logprobs = {"content": [{"token": "hello", "planted": 1}]}
        yield chunk
        yield ChatChunk.finish("stop")


def test_stream_that_breaks_the_standard_of_its_clients_is_found() -> None:
    with pytest.raises(AssertionError, match=r"stream at /v1/chat/completions: .*logprobs.*: Field required"):
        check_provider(OddLogprobs)


def test_standards_are_skipped_without_their_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "answers_hold_the_standards" in check_provider(Good)
    monkeypatch.setattr("gateway.testing.standards.classes._loaded", missing)
    assert "model-gateway[conformance]" in check_provider(Good).skipped["answers_hold_the_standards"]


def missing(place: str) -> Any:
    raise Missing("pip install 'model-gateway[conformance]'")


def test_provider_without_an_upstream_that_counts_nothing_is_noted() -> None:
    notes = "\n".join(check_provider(Good).notes)
    for which in ("stream_is_sound: the stream", "whole_answer_is_sound: the whole answer"):
        assert f"{which}: no usage came, so the gateway estimates" in notes


class NoFinish(Good):
    async def stream_chat(self, request: ChatRequest, target: Target) -> AsyncIterator[ChatChunk]:
        yield ChatChunk.text("hello")


class TwoFinishes(Good):
    async def stream_chat(self, request: ChatRequest, target: Target) -> AsyncIterator[ChatChunk]:
        yield ChatChunk.text("hello")
        yield ChatChunk.finish("stop")
        yield ChatChunk.finish("stop")


class TalksOn(Good):
    async def stream_chat(self, request: ChatRequest, target: Target) -> AsyncIterator[ChatChunk]:
        yield ChatChunk.finish("stop")
        yield ChatChunk.text("hello")


class OwnReason(Good):
    async def stream_chat(self, request: ChatRequest, target: Target) -> AsyncIterator[ChatChunk]:
        yield ChatChunk.text("hello")
        yield ChatChunk.finish("end_turn")


class Mute(Good):
    async def stream_chat(self, request: ChatRequest, target: Target) -> AsyncIterator[ChatChunk]:
        yield ChatChunk.finish("stop")


class StartsAtOne(Good):
    async def stream_chat(self, request: ChatRequest, target: Target) -> AsyncIterator[ChatChunk]:
        yield ChatChunk.text("hello", index=1)
        yield ChatChunk.finish("stop", index=1)


class WrongType(Good):
    async def stream_chat(self, request: ChatRequest, target: Target) -> AsyncIterator[Any]:
        yield {"choices": []}


class NegativeUsage(Good):
    async def stream_chat(self, request: ChatRequest, target: Target) -> AsyncIterator[ChatChunk]:
        yield ChatChunk.text("hello")
        yield ChatChunk.finish("stop")
        yield ChatChunk.with_usage(CompletionUsage(-1, 1, 0))


class WrongSum(Good):
    async def stream_chat(self, request: ChatRequest, target: Target) -> AsyncIterator[ChatChunk]:
        yield ChatChunk.text("hello")
        yield ChatChunk.finish("stop")
        yield ChatChunk.with_usage(CompletionUsage(1, 1, 3))


class ChangesRequest(Good):
    async def stream_chat(self, request: ChatRequest, target: Target) -> AsyncIterator[ChatChunk]:
        request.fields.pop("model", None)
        yield ChatChunk.text("hello")
        yield ChatChunk.finish("stop")


class SharedState(Good):
    text = ""

    async def stream_chat(self, request: ChatRequest, target: Target) -> AsyncIterator[ChatChunk]:
        self.text += "x"
        for _ in range(3):
            await asyncio.sleep(0)
        yield ChatChunk.text("hello" if len(self.text) == 1 else "")
        self.text = ""
        yield ChatChunk.finish("stop")


class ClosesSlowly(Good):
    async def stream_chat(self, request: ChatRequest, target: Target) -> AsyncIterator[ChatChunk]:
        try:
            yield ChatChunk.text("hello")
            yield ChatChunk.finish("stop")
        except GeneratorExit:
            await forever()
            raise


class IgnoresCancel(Good):
    async def stream_chat(self, request: ChatRequest, target: Target) -> AsyncIterator[ChatChunk]:
        try:
            await turns()
        except asyncio.CancelledError:
            await forever()
        yield ChatChunk.text("hello")
        yield ChatChunk.finish("stop")


@pytest.mark.parametrize(
    ("provider", "complaint"),
    [
        (NoFinish, "never finished"),
        (TwoFinishes, "finished twice"),
        (TalksOn, "went on after"),
        (OwnReason, "'end_turn' is not the wire's"),
        (Mute, "said nothing"),
        (StartsAtOne, "not from 0"),
        (WrongType, "instead of a ChatChunk"),
        (NegativeUsage, "usage.prompt_tokens is -1"),
        (WrongSum, "the sum of its parts"),
        (ChangesRequest, "changed the request"),
        (SharedState, "calls_at_once_do_not_mix"),
        (ClosesSlowly, "closing the stream took"),
        (IgnoresCancel, "after it was cancelled"),
    ],
)
def test_kit_reports_a_faulty_provider(provider: type[Provider], complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint) as caught:
        check_provider(provider)
    assert provider.__name__ in str(caught.value)


class Leaky(OpenAIProvider):  # type: ignore[misc]
    """Shows its key in errors."""

    async def chat(self, request: ChatRequest, target: Target) -> Any:
        try:
            return await super().chat(request, target)
        except UpstreamRejected as error:
            raise UpstreamRejected(f"refused with key {SECRET}") from error


class Swallowing(OpenAIProvider):  # type: ignore[misc]
    """Turns every failure into a short answer."""

    async def stream_chat(self, request: ChatRequest, target: Target) -> Any:
        try:
            async for chunk in super().stream_chat(request, target):
                yield chunk
        except Exception:
            yield ChatChunk.text("sorry")
            yield ChatChunk.finish("stop")


class HoldsOn(OpenAIProvider):  # type: ignore[misc]
    """Reads the upstream to its end, whether anybody still wants it or not."""

    task: asyncio.Task[None] | None = None

    async def stream_chat(self, request: ChatRequest, target: Target) -> Any:
        queue: asyncio.Queue[ChatChunk | None] = asyncio.Queue()

        async def pump() -> None:
            async for chunk in super(HoldsOn, self).stream_chat(request, target):
                queue.put_nowait(chunk)

        self.task = asyncio.create_task(pump())
        self.task.add_done_callback(lambda _: queue.put_nowait(None))
        while (chunk := await queue.get()) is not None:
            yield chunk
        await self.task

    async def close(self) -> None:
        if self.task is not None:
            self.task.cancel()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("provider", "complaint"),
    [
        (Leaky, "shows a secret"),
        (Swallowing, "gave an answer instead of an error"),
        (HoldsOn, "had not ended|after the caller had left"),
    ],
)
def test_kit_reports_a_faulty_provider_with_an_upstream(provider: type[Provider], complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        check_provider(provider, options=OPENAI, upstream=FakeUpstream())


class Undeclared(Good):
    name = ""


class LaxOptions(Good):
    class Options(Struct):
        pass


class Incapable(Provider):
    name = "incapable"


@pytest.mark.parametrize("provider", [Undeclared, LaxOptions, Incapable])
def test_kit_checks_the_declaration(provider: type[Provider]) -> None:
    with pytest.raises(AssertionError, match=provider.__name__):
        check_provider(provider)


def test_collect_gives_the_whole_answer() -> None:
    answer = collect(FakeProvider, ask("ping"), options={"models": {"model": {"text": "pong"}}})
    assert answer.choices[0].message.content == "pong"
    assert answer.usage is not None and json.encode(answer) and answer.service_tier is UNSET


async def test_truth_log_records_what_was_delivered_and_when_the_client_disconnected() -> None:
    async with FakeUpstream() as fake:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(fake.url.rsplit(":", 1)[1]))
        body = json.encode({"model": "m", "messages": [{"role": "user", "content": "a b c"}], "stream": True})

        def slowed(reply: Reply) -> Reply:
            reply.interval = 0.02
            return reply

        fake.tamper = slowed
        head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
        writer.write(head + body)
        await reader.readuntil(b'"content":"b "')
        writer.close()
        seen = await fake.wait_ended()
        assert seen.outcome == "left" and 3 <= seen.frames < 6 and seen.json["model"] == "m"


class Hangs(Good):
    async def stream_chat(self, request: ChatRequest, target: Target) -> AsyncIterator[ChatChunk]:
        await forever()
        yield ChatChunk.text("hello")


class HangsAtStart(Good):
    async def start(self) -> None:
        await forever()


class Breaks(Good):
    async def stream_chat(self, request: ChatRequest, target: Target) -> AsyncIterator[ChatChunk]:
        yield ChatChunk.text(dict[str, str]()["hello"])


class TimesOut(Good):
    async def stream_chat(self, request: ChatRequest, target: Target) -> AsyncIterator[ChatChunk]:
        if request.messages:
            raise TimeoutError("of its own")
        yield ChatChunk.text("hello")


class CleansUpForEver(Good):
    """Waits for the vendor when its caller leaves."""

    async def stream_chat(self, request: ChatRequest, target: Target) -> AsyncIterator[ChatChunk]:
        try:
            await forever()
            yield ChatChunk.text("never")
        finally:
            await forever()


@pytest.mark.parametrize(
    ("provider", "complaint"),
    [
        (CleansUpForEver, r"it had not ended after 0\.2 s; it went on for 0\.1 s after it was cancelled: a `finally`"),
        (Hangs, r"Hangs, stream_is_sound: it had not ended after 0\.2 s"),
        (HangsAtStart, r"HangsAtStart, stream_is_sound: it had not ended after 0\.2 s"),
        (Breaks, r"Breaks, stream_is_sound: raised KeyError: .* at .*test_conformance_kit\.py:\d+"),
        (TimesOut, "TimesOut, stream_is_sound: raised TimeoutError: of its own"),
    ],
)
def test_case_that_does_not_end_or_raises_is_named(
    provider: type[Provider], complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.testing.conformance.CASE_WITHIN", 0.2)
    for module in ("conformance", "event_loop"):
        monkeypatch.setattr(f"gateway.testing.{module}.STOPS_WITHIN", 0.1)
    with pytest.raises(AssertionError, match=complaint):
        check_provider(provider)

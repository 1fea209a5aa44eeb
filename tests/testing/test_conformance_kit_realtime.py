"""The conformance kit on realtime sessions: the built-ins pass it, and it catches what it is there to catch."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from msgspec import Struct, structs

from gateway import Provider, Realtime, RealtimeRequest, RealtimeSession, Secret, Target, Upstream
from gateway.errors import UpstreamTruncated
from gateway.testing import FakeUpstream, check_provider
from gateway.testing.openai_dialect import openai_dialect
from gateway.testing.realtime_cases import CASES, UPSTREAM_CASES
from gateway_providers.azure import AzureProvider
from gateway_providers.fake import FakeProvider
from gateway_providers.openai import OpenAIProvider

NAMES = {case.__name__ for case in CASES}
UPSTREAM_NAMES = {case.__name__ for case in UPSTREAM_CASES} - {"realtime_refusals_of_the_vendor_become_typed_errors"}


def test_built_in_providers_conform_on_realtime() -> None:
    key = Secret("literal", "sk-canary-9f2c41")
    openai = check_provider(
        OpenAIProvider, options={"base_url": "{upstream}/v1", "api_key": key}, upstream=FakeUpstream()
    )
    assert set(openai) >= NAMES | UPSTREAM_NAMES
    assert set(check_provider(FakeProvider)) >= NAMES


def test_azure_conforms_on_realtime() -> None:
    options = {"endpoint": "{upstream}", "api_key": Secret("literal", "canary-9f2c41")}
    upstream = FakeUpstream(lambda seen: openai_dialect(structs.replace(seen, path=seen.path.replace("/openai", ""))))
    report = check_provider(AzureProvider, options=options, upstream=upstream)
    assert set(report) >= NAMES | UPSTREAM_NAMES


@pytest.mark.parametrize(
    ("version", "path"),
    [
        ("", "/openai/v1/realtime?model=gpt%2Frt"),
        ("2025-04-01-preview", "/openai/realtime?api-version=2025-04-01-preview&deployment=gpt%2Frt"),
    ],
)
def test_azure_asks_for_a_deployment_at_its_path(version: str, path: str) -> None:
    options = AzureProvider.Options(
        endpoint="https://x.example", api_key=Secret("literal", "canary"), api_version=version
    )
    provider = AzureProvider(options, Upstream())
    assert provider.realtime_url(Target("azure", "gpt/rt")) == f"https://x.example{path}"


class Session(RealtimeSession):
    """A session without fault, for the others to break."""

    def __init__(self) -> None:
        self.number = 0
        self.closed = False
        self.events: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self.say("session.created", session={})

    def say(self, kind: str, **fields: Any) -> None:
        self.events.put_nowait({"type": kind, **fields})

    async def send(self, event: bytes) -> None:
        if self.closed:
            raise UpstreamTruncated()
        if json.loads(event)["type"] == "response.create":
            self.number += 1
            self.respond(f"resp_{self.number}")

    def respond(self, name: str) -> None:
        self.say("response.created", response={"id": name})
        self.say("response.output_text.delta", response_id=name, delta="Hi")
        self.say("response.done", response={"id": name, "usage": {"input_tokens": 1, "output_tokens": 1}})

    async def receive(self) -> bytes:
        event = await self.events.get() if not self.closed else None
        if event is None:
            raise UpstreamTruncated()
        return json.dumps(event).encode()

    def close(self) -> None:
        self.closed = True
        self.events.put_nowait(None)


class Talker(Provider, Realtime):
    """The provider of such sessions."""

    name = "talker"
    session: type[Session] = Session

    class Options(Struct, forbid_unknown_fields=True):
        pass

    async def open_realtime(self, request: RealtimeRequest, target: Target) -> RealtimeSession:
        return self.session()


def test_minimal_provider_conforms() -> None:
    assert set(check_provider(Talker)) == NAMES


class NoGreeting(Session):
    def __init__(self) -> None:
        super().__init__()
        self.events.get_nowait()
        self.say("hello")


class Text(Session):
    async def receive(self) -> Any:
        return (await super().receive()).decode()


class OneId(Session):
    def respond(self, name: str) -> None:
        super().respond("resp")


class OtherId(Session):
    def respond(self, name: str) -> None:
        self.say("response.created", response={"id": name})
        self.say("response.output_text.delta", response_id="other", delta="Hi")


class NoParts(Session):
    def respond(self, name: str) -> None:
        self.say("response.created", response={"id": name})
        self.say("response.done", response={"id": name})


class Loses(Session):
    async def receive(self) -> bytes:
        try:
            return await super().receive()
        except asyncio.CancelledError:
            self.closed = True
            raise


class GoesOn(Session):
    def close(self) -> None:
        self.say("rate_limits.updated")


@pytest.mark.parametrize(
    ("session", "case"),
    [
        (NoGreeting, "realtime_session_begins"),
        (Text, "realtime_session_begins"),
        (OneId, "realtime_responses_follow_each_other"),
        (OtherId, "realtime_response_is_whole"),
        (NoParts, "realtime_response_is_whole"),
        (Loses, "realtime_receiver_that_is_cancelled_loses_nothing"),
        (GoesOn, "realtime_session_that_is_closed_has_ended"),
    ],
)
def test_fault_is_caught_by_its_case(session: type[Session], case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Talker, "session", session)
    with pytest.raises(AssertionError, match=case):
        check_provider(Talker)


def test_missing_usage_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    class Uncounted(Session):
        def respond(self, name: str) -> None:
            self.say("response.created", response={"id": name})
            self.say("response.output_text.delta", response_id=name, delta="Hi")
            self.say("response.done", response={"id": name})

    monkeypatch.setattr(Talker, "session", Uncounted)
    assert any(note.startswith("realtime_response_is_whole") for note in check_provider(Talker).notes)

"""Anthropic's own SDK for Vertex sends the same requests, and reads the same answers through the gateway's provider."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from anthropic import AsyncAnthropicVertex

from gateway import Target
from gateway.schemas.messages_request import decode_messages
from gateway.testing import FakeUpstream, Seen
from gateway_providers._shared.vertex_address import vertex_host
from gateway_providers.anthropic.models import ModelFlags
from tests.providers.test_anthropic_vertex import vertex
from tests.providers.vertex_dialect import vertex_chat

pytestmark = pytest.mark.slow  # the SDK takes a second to import

ASKED: dict[str, Any] = {
    "max_tokens": 64,
    "messages": [{"role": "user", "content": "hi"}],
    "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
    "tools": [{"name": "tide", "input_schema": {"type": "object"}}],
}


def client(**options: Any) -> AsyncAnthropicVertex:
    """The SDK's client with a token."""
    given = {"project_id": "my-project", "region": "europe-west4", "access_token": "ya29.token", "max_retries": 0}
    return AsyncAnthropicVertex(**{**given, **options})


def form(seen: Seen) -> tuple[str, str, Any, dict[str, str]]:
    """What both must have in common."""
    names = ("anthropic-version", "anthropic-beta", "x-api-key", "content-type")
    return seen.method, seen.path, seen.json, {name: seen.headers[name] for name in names if name in seen.headers}


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("model", ["claude-sonnet-4-6@20260101", "claude-opus-4-7", "x/y;a b"])
async def test_vendors_sdk_sends_the_same(streams: bool, model: str) -> None:
    flag = "context-management-2025-06-27"
    newest = {"*": ModelFlags(version="2026-10-21")}  # as the SDK sends
    async with (
        FakeUpstream(vertex_chat) as fake,
        vertex(fake, models=newest) as subject,
        client(base_url=f"{fake.url}/v1") as sdk,
    ):
        sent: dict[str, Any] = {"model": model, **ASKED, **({"stream": True} if streams else {})}
        answer = await sdk.messages.create(**sent, extra_headers={"anthropic-beta": flag})
        if streams:
            assert [event.type async for event in answer][-1] == "message_stop"
        request = decode_messages(msgspec.json.encode({**ASKED, "model": "m"}), version="2023-06-01", betas=(flag,))
        if streams:
            assert [chunk async for chunk in subject.stream_chat(request, Target("vertex", model, "m"))]
        else:
            await subject.chat(request, Target("vertex", model, "m"))
    theirs, ours = fake.seen
    assert form(ours) == form(theirs)


@pytest.mark.parametrize("location", ["europe-west4", "global", "us", "eu"])
async def test_vendors_sdk_has_the_same_address(location: str) -> None:
    async with client(region=location) as sdk:
        assert str(sdk.base_url).rstrip("/") == vertex_host(location)

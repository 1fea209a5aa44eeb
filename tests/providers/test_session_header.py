"""The header that names a session to a server: to the server that wants it, and to no other."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gateway import ChatRequest, Upstream
from gateway.schemas.chat_request import decode_chat_request
from gateway.testing import FakeUpstream
from gateway_providers.openai import OpenAIProvider
from tests.providers.test_openai import TARGET, provider


def request(**fields: Any) -> ChatRequest:
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], **fields}
    return decode_chat_request(msgspec.json.encode(body))


@pytest.mark.parametrize("stream", [False, True])
async def test_session_goes_into_the_header_and_not_into_the_body(stream: bool) -> None:
    async with FakeUpstream() as fake, provider(fake, session_header="x-session-affinity") as subject:
        assert subject.takes_cache_key
        asked = request(prompt_cache_key="session-1")
        if stream:
            assert [chunk async for chunk in subject.stream_chat(asked, TARGET)]
        else:
            await subject.chat(asked, TARGET)
        assert fake.seen[0].headers["x-session-affinity"] == "session-1"
        assert "prompt_cache_key" not in fake.seen[0].json
        assert asked.fields["prompt_cache_key"] == msgspec.Raw(b'"session-1"')  # for other attempts


@pytest.mark.parametrize("key", ["a b", "a\r\nx-evil: 1", "é", "x" * 257, ""])
async def test_key_that_no_header_can_have_is_left_out(key: str) -> None:
    async with FakeUpstream() as fake, provider(fake, session_header="x-session-affinity") as subject:
        await subject.chat(request(prompt_cache_key=key), TARGET)
        assert not {"x-session-affinity", "x-evil"} & fake.seen[0].headers.keys()
        assert "prompt_cache_key" not in fake.seen[0].json


async def test_call_without_a_session_has_no_header() -> None:
    async with FakeUpstream() as fake, provider(fake, session_header="x-session-affinity") as subject:
        await subject.chat(request(), TARGET)
        assert "x-session-affinity" not in fake.seen[0].headers


@pytest.mark.parametrize(
    ("address", "header"),
    [
        ("https://api.x.ai/v1", "x-grok-conv-id"),
        ("https://eu.api.x.ai/v1", "x-grok-conv-id"),
        ("", "x-grok-conv-id"),
        ("https://evil-api.x.ai.example/v1", ""),
        ("https://notapi.x.ai/v1", ""),
        ("http://127.0.0.1:8000/v1", ""),
    ],
)
def test_header_of_a_preset_is_for_its_own_servers(address: str, header: str) -> None:
    options = OpenAIProvider.Options(preset="xai", base_url=address)
    subject = OpenAIProvider(options, Upstream())
    assert subject.session_header == header
    assert subject.takes_cache_key == bool(header)
    assert not OpenAIProvider(msgspec.structs.replace(options, session_header=""), Upstream()).takes_cache_key

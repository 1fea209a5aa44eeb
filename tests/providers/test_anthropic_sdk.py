"""Anthropic's own SDK reads the fixtures of the tests, and reads the same from them as the provider."""

from __future__ import annotations

from typing import Any

import anthropic
import msgspec
import pytest
from anthropic.types import Message, RawMessageStreamEvent
from anthropic.types.shared import ErrorResponse
from msgspec import UNSET
from pydantic import BaseModel, TypeAdapter

from gateway.testing import FakeUpstream
from tests.providers.messages_dialect import (
    FIXTURES,
    document,
    failure,
    folded,
    frames,
    messages_chat,
    parsed,
    streamed,
)

pytestmark = pytest.mark.slow  # the SDK takes a second to import

ANSWERS = sorted(path.stem for path in FIXTURES.glob("*.json") if path.stem != "errors")
STREAMS = sorted(path.stem for path in FIXTURES.glob("*.sse"))
ERRORS = sorted(document("errors"))
FAILING = {"overloaded", "broken"}  # streams that end with an error


def unknown(model: Any, path: str = "") -> list[str]:
    """Fields that the vendor's model does not know, at any depth."""
    if isinstance(model, list):
        return [name for index, item in enumerate(model) for name in unknown(item, f"{path}[{index}]")]
    if not isinstance(model, BaseModel):
        return []
    extra = [f"{path}.{name}" for name in model.model_extra or ()]
    return extra + [name for field in type(model).model_fields for name in unknown(getattr(model, field), field)]


@pytest.mark.parametrize("name", ANSWERS)
def test_vendors_sdk_knows_every_field_of_an_answer(name: str) -> None:
    assert unknown(Message.model_validate(document(name))) == []


@pytest.mark.parametrize("name", STREAMS)
def test_vendors_sdk_knows_every_field_of_a_stream(name: str) -> None:
    adapter: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)
    for found in parsed(name):
        if found["type"] == "error":
            assert unknown(ErrorResponse.model_validate(found)) == []
        elif found["type"] != "ping":
            assert unknown(adapter.validate_python(found)) == []


@pytest.mark.parametrize("name", ERRORS)
async def test_vendors_sdk_raises_for_every_error(name: str) -> None:
    async with FakeUpstream(messages_chat) as fake:
        fake.enqueue(failure(name))
        async with anthropic.AsyncAnthropic(base_url=fake.url, api_key="k", max_retries=0) as client:
            with pytest.raises(anthropic.APIStatusError) as caught:
                await client.messages.create(model="m", max_tokens=9, messages=[{"role": "user", "content": "hi"}])
    assert caught.value.status_code == document("errors")[name]["status"]


@pytest.mark.parametrize("name", sorted(set(STREAMS) - FAILING))
async def test_vendors_sdk_and_the_provider_read_the_same_from_a_stream(name: str) -> None:
    async with FakeUpstream(messages_chat) as fake:
        fake.enqueue(streamed(*frames(name)))
        async with (
            anthropic.AsyncAnthropic(base_url=fake.url, api_key="k", max_retries=0) as client,
            client.messages.stream(model="m", max_tokens=9, messages=[{"role": "user", "content": "hi"}]) as stream,
        ):
            theirs = await stream.get_final_message()
    ours = (await folded(streamed(*frames(name)))).choices[0].message
    blocks = theirs.content
    assert (ours.content or "") == "".join(block.text for block in blocks if block.type == "text")
    calls = [(block.id, block.name, block.input) for block in blocks if block.type == "tool_use"]
    assert calls == [
        (call.id, call.function.name, msgspec.json.decode(call.function.arguments or ""))
        for call in ours.tool_calls or ()
        if call.function
    ]
    thoughts = [block.model_dump() for block in blocks if block.type in {"thinking", "redacted_thinking"}]
    sent = [] if ours.thinking_blocks is UNSET else msgspec.json.decode(ours.thinking_blocks)
    assert thoughts == sent

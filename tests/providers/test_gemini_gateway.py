"""An unmodified OpenAI client, the gateway, and Gemini's dialect behind it: what callers see, and what they pay."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import openai
import pytest
from tornado.ioloop import IOLoop

from gateway.accounts.accounts import Accounts
from gateway.accounts.key_record import CreatedKey
from gateway.amounts import NANO
from gateway.config.loader import parse
from gateway.config.settings import Settings
from gateway.http_server.server import HTTPServer
from gateway.testing import FakeUpstream, Reply
from tests.polling import until
from tests.providers.gemini_upstream import (
    BLOCKED,
    CALL_STREAM,
    KEY,
    PNG,
    SIGNATURE,
    STREAM,
    THOUGHT,
    gemini,
    google_error,
    sse,
)

HI: Any = [{"role": "user", "content": "hi"}]
TIDE: Any = {"type": "function", "function": {"name": "tide", "parameters": {"type": "object", "properties": {}}}}
WIND: Any = {"type": "function", "function": {"name": "wind", "parameters": {"type": "object", "properties": {}}}}

pytestmark = pytest.mark.slow  # an SDK takes a second to import


@pytest.fixture
def upstream(io_loop: IOLoop) -> Iterator[FakeUpstream]:
    """Gemini's server."""
    server = FakeUpstream(gemini)
    io_loop.run_sync(server.start)
    yield server
    io_loop.run_sync(server.close)


@pytest.fixture
def settings(tmp_path: Path, upstream: FakeUpstream) -> Settings:
    """One model for each thing that Gemini does here."""
    price = {"input": 1, "output": 10}
    return parse(
        {
            "store": {"data_dir": str(tmp_path)},
            "providers": {"gemini": {"plugin": "gemini", "base_url": f"{upstream.url}/v1beta", "api_key": KEY}},
            "groups": {"default": {}},
            "models": {
                "three": {"provider": "gemini", "model": "gemini-3-flash-preview", "price": price},
                "vectors": {
                    "provider": "gemini",
                    "model": "gemini-embedding-001",
                    "price": {"input": 1},
                    "endpoints": ["embeddings"],
                },
                "painter": {
                    "provider": "gemini",
                    "model": "gemini-2.5-flash-image",
                    "price": price,
                    "endpoints": ["images"],
                },
                "speaker": {
                    "provider": "gemini",
                    "model": "gemini-2.5-flash-preview-tts",
                    "price": price,
                    "endpoints": ["speech"],
                },
                "ear": {
                    "provider": "gemini",
                    "model": "gemini-2.5-flash",
                    "price": price,
                    "endpoints": ["transcription"],
                },
            },
        },
        demo=True,
    )


@asynccontextmanager
async def caller(base_url: str, key: CreatedKey) -> AsyncIterator[openai.AsyncOpenAI]:
    address = f"{base_url.replace('localhost', '127.0.0.1')}/v1"
    async with openai.AsyncOpenAI(base_url=address, api_key=key.text, max_retries=0) as client:
        yield client


@pytest.mark.parametrize("stream", [False, True])
async def test_thought_signature_survives_a_tool_loop_of_an_openai_client(
    http_server: HTTPServer, base_url: str, api_key: CreatedKey, upstream: FakeUpstream, stream: bool
) -> None:
    documents = CALL_STREAM[0], CALL_STREAM[1]
    parts = [one["candidates"][0]["content"]["parts"][0] for one in documents]
    whole = {**CALL_STREAM[2], "candidates": [{"content": {"parts": parts}, "finishReason": "STOP"}]}
    upstream.enqueue(sse(*CALL_STREAM) if stream else Reply.json(whole))
    first: Any
    async with caller(base_url, api_key) as client:
        if stream:
            async with client.chat.completions.stream(model="three", messages=HI, tools=[TIDE, WIND]) as events:
                first = (await events.get_final_completion()).choices[0]
        else:
            first = (await client.chat.completions.create(model="three", messages=HI, tools=[TIDE, WIND])).choices[0]
        assert first.finish_reason == "tool_calls" and first.message.tool_calls
        results = [{"role": "tool", "tool_call_id": call.id, "content": "6:40"} for call in first.message.tool_calls]
        history: Any = [*HI, first.message.model_dump(exclude_none=True), *results, {"role": "user", "content": "so?"}]
        answer = await client.chat.completions.create(model="three", messages=history, tools=[TIDE, WIND])
    assert answer.choices[0].message.content == "so? "
    _, said, returned = upstream.seen[1].json["contents"]
    assert [part.get("thoughtSignature") for part in said["parts"]] == [SIGNATURE, None]
    named = [part["functionResponse"]["name"] for part in returned["parts"] if "functionResponse" in part]
    assert named == ["tide", "wind"]


@pytest.mark.parametrize("stream", [False, True])
async def test_thoughts_and_cached_tokens_are_billed_as_google_counts_them(
    http_server: HTTPServer,
    base_url: str,
    api_key: CreatedKey,
    upstream: FakeUpstream,
    accounts: Accounts,
    stream: bool,
) -> None:
    before = await accounts.show(api_key.account)
    upstream.enqueue(sse(*STREAM) if stream else Reply.json(THOUGHT))
    async with caller(base_url, api_key) as client:
        if stream:
            async for _ in await client.chat.completions.create(model="three", messages=HI, stream=True):
                pass
        else:
            answer = await client.chat.completions.create(model="three", messages=HI)
            assert answer.usage and answer.usage.prompt_tokens_details
            assert answer.usage.prompt_tokens_details.cached_tokens == 8
            assert answer.choices[0].message.model_extra == {"reasoning_content": "**Adding**\n\nTwo and two."}
    paid = 12 * 1 + (19 if stream else 33) * 10  # currency units per million tokens

    async def charged() -> bool:
        return before.balance - (await accounts.show(api_key.account)).balance == paid * NANO // 1_000_000

    await until(charged)


async def test_blocked_prompt_is_a_refusal_and_not_an_error(
    http_server: HTTPServer, base_url: str, api_key: CreatedKey, upstream: FakeUpstream
) -> None:
    upstream.enqueue(Reply.json(BLOCKED))
    async with caller(base_url, api_key) as client:
        choice = (await client.chat.completions.create(model="three", messages=HI)).choices[0]
    assert choice.finish_reason == "content_filter" and choice.message.content is None and choice.message.refusal


async def test_key_refused_by_google_is_never_a_401_for_the_caller(
    http_server: HTTPServer, base_url: str, api_key: CreatedKey, upstream: FakeUpstream
) -> None:
    words = f"API key not valid: {KEY}"
    upstream.answer = lambda seen: Reply.json(
        google_error(400, "INVALID_ARGUMENT", words, reason="API_KEY_INVALID"), status=400
    )
    async with caller(base_url, api_key) as client:
        with pytest.raises(openai.InternalServerError) as caught:
            await client.chat.completions.create(model="three", messages=HI)
    assert caught.value.status_code == 502 and caught.value.code == "upstream_auth_error"
    assert KEY not in str(caught.value)


async def test_image_url_is_refused_and_nothing_is_sent(
    http_server: HTTPServer, base_url: str, api_key: CreatedKey, upstream: FakeUpstream
) -> None:
    content: Any = [{"type": "image_url", "image_url": {"url": "https://example.com/cat.png"}}]
    async with caller(base_url, api_key) as client:
        with pytest.raises(openai.BadRequestError) as caught:
            await client.chat.completions.create(model="three", messages=[{"role": "user", "content": content}])
    assert caught.value.code == "unsupported_value"
    assert caught.value.param == "messages[0].content[0].image_url.url" and not upstream.seen


@pytest.mark.parametrize("field", [{"logit_bias": {"1": 5}}, {"web_search_options": {}}])
async def test_field_unsupported_by_gemini_is_refused(
    http_server: HTTPServer, base_url: str, api_key: CreatedKey, upstream: FakeUpstream, field: dict[str, Any]
) -> None:
    async with caller(base_url, api_key) as client:
        with pytest.raises(openai.BadRequestError) as caught:
            await client.chat.completions.create(model="three", messages=HI, **field)
    assert caught.value.code == "unsupported_parameter" and caught.value.param in field and not upstream.seen


async def test_vectors_and_images_reach_an_openai_client(
    http_server: HTTPServer, base_url: str, api_key: CreatedKey, upstream: FakeUpstream
) -> None:
    async with caller(base_url, api_key) as client:
        vectors = await client.embeddings.create(model="vectors", input=["one", "two"], dimensions=8)
        assert [len(one.embedding) for one in vectors.data] == [8, 8]
        images = await client.images.generate(model="painter", prompt="a heron", n=2, size="1024x1024")
    assert images.data and [image.b64_json for image in images.data] == [PNG, PNG]
    assert images.usage and images.usage.output_tokens == 2580


async def test_speech_and_transcript_reach_an_openai_client(
    http_server: HTTPServer, base_url: str, api_key: CreatedKey, upstream: FakeUpstream
) -> None:
    async with caller(base_url, api_key) as client:
        voice = await client.audio.speech.create(model="speaker", input="Hi.", voice="alloy", response_format="wav")
        sound = voice.content
        assert sound[:4] == b"RIFF" and sound[44:] == b"\0\0\1\0\2\0\3\0" * 4
        heard = await client.audio.transcriptions.create(model="ear", file=("a.wav", sound, "audio/wav"))
        with pytest.raises(openai.BadRequestError) as caught:
            await client.audio.speech.create(model="speaker", input="Hi.", voice="alloy", response_format="mp3")
    assert heard.text == "The boats are in."
    assert (caught.value.code, caught.value.param) == ("unsupported_value", "response_format")

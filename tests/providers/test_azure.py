"""The `azure` provider: where it asks and how it says who asks, and what Azure's filters leave in an answer."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway import ChatChunk, Secret, Target, Upstream
from gateway.config.settings import PluginSettings
from gateway.errors import ContentFiltered, GatewayError, UpstreamAuthError, UpstreamError, UpstreamRateLimited
from gateway.plugins.chunk_accumulator import fold_chat
from gateway.plugins.loader import load_plugins
from gateway.schemas.chat_request import ChatRequest, decode_chat_request
from gateway.schemas.embeddings import decode_embedding_request
from gateway.schemas.images import decode_image_request
from gateway.schemas.speech import decode_speech_request
from gateway.testing import FakeUpstream, Reply, Seen, ask, check_provider
from gateway.testing.openai_dialect import openai_dialect
from gateway_providers.azure import AzureProvider
from tests.providers.endings import ended

TARGET = Target("azure", "my deployment?", "public-name")
KEY = "azure-canary-8f2e71c4"
OLD = "2024-10-21"

# Frames as Azure sends them -------------------------------------------------------------------------------------------

SAFE = {name: {"filtered": False, "severity": "safe"} for name in ("hate", "self_harm", "sexual", "violence")}
HEAD = {
    "id": "chatcmpl-CdXk2",
    "object": "chat.completion.chunk",
    "created": 1795000000,
    "model": "gpt-5-mini-2025-08-07",
    "system_fingerprint": "fp_b705f0c291",
    "usage": None,
    "obfuscation": "x",
}
PRELUDE = {
    "choices": [],
    "created": 0,
    "id": "",
    "model": "",
    "object": "",
    "prompt_filter_results": [{"prompt_index": 0, "content_filter_results": SAFE}],
}
USAGE = {
    "prompt_tokens": 20,
    "completion_tokens": 3,
    "total_tokens": 23,
    "prompt_tokens_details": {"audio_tokens": 0, "cached_tokens": 0},
    "completion_tokens_details": {
        "accepted_prediction_tokens": 0,
        "audio_tokens": 0,
        "reasoning_tokens": 0,
        "rejected_prediction_tokens": 0,
    },
}


def said(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None, "content_filter_results": SAFE}
    return {**HEAD, "choices": [choice]}


def verdict(start: int, end: int, **extra: Any) -> dict[str, Any]:
    """A frame of the asynchronous filter: about text that went before, with no text of its own."""
    offsets = {"check_offset": 20, "start_offset": start, "end_offset": end}
    choice = {"index": 0, "finish_reason": None, "content_filter_results": SAFE, "content_filter_offsets": offsets}
    return {"id": "", "object": "", "created": 0, "model": "", "choices": [{**choice, **extra}]}


STREAM = [
    PRELUDE,
    said({"role": "assistant", "content": "", "refusal": None}),
    said({"content": "The tide"}),
    verdict(0, 8),
    said({"content": " is out."}),
    said({}, "stop"),
    verdict(8, 16),
    {**HEAD, "choices": [], "usage": USAGE},
]
WHOLE = {
    "choices": [
        {
            "content_filter_results": SAFE,
            "finish_reason": "stop",
            "index": 0,
            "logprobs": None,
            "message": {"annotations": [], "content": "The tide is out.", "refusal": None, "role": "assistant"},
        }
    ],
    "created": 1795000000,
    "id": "chatcmpl-CdXk3",
    "model": "gpt-5-mini-2025-08-07",
    "object": "chat.completion",
    "prompt_filter_results": [{"prompt_index": 0, "content_filter_results": SAFE}],
    "system_fingerprint": "fp_b705f0c291",
    "usage": USAGE,
}
FILTERED = {
    "error": {
        "message": "The response was filtered due to the prompt triggering Azure OpenAI's content management policy.",
        "type": None,
        "param": "prompt",
        "code": "content_filter",
        "status": 400,
        "innererror": {
            "code": "ResponsibleAIPolicyViolation",
            "content_filter_result": {**SAFE, "violence": {"filtered": True, "severity": "high"}},
        },
    }
}
NOT_DEPLOYED = {
    "error": {"code": "DeploymentNotFound", "message": "The API deployment for this resource does not exist."}
}
WRONG_KEY = {"statusCode": 401, "message": f"Access denied due to invalid subscription key {KEY}."}
LIMITED = {"error": {"code": "429", "message": "Requests have exceeded call rate limit of your current S0 tier."}}


def azure(seen: Seen) -> Reply:
    """OpenAI's dialect, with the version in the address."""
    return openai_dialect(msgspec.structs.replace(seen, path=seen.path.partition("?")[0]))


@contextlib.asynccontextmanager
async def provider(fake: FakeUpstream, **options: Any) -> AsyncIterator[AzureProvider]:
    link = Upstream()
    given = {"endpoint": fake.url, **({} if "token" in options else {"api_key": Secret("literal", KEY)}), **options}
    subject = AzureProvider(AzureProvider.Options(**given), link)
    await subject.start()
    try:
        yield subject
    finally:
        await subject.close()
        await link.close()


def streaming() -> ChatRequest:
    body = {"model": "public-name", "messages": [{"role": "user", "content": "hi"}], "stream": True}
    return decode_chat_request(msgspec.json.encode(body))


async def chunks_of(*frames: Any, done: bool = True) -> list[ChatChunk]:
    async with FakeUpstream() as fake, provider(fake) as subject:
        fake.enqueue(Reply.stream(list(frames), done=done))
        return [chunk async for chunk in subject.stream_chat(streaming(), TARGET)]


# Where it asks -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("api_version", ["", OLD])
@pytest.mark.parametrize("shape", ["chat", "stream", "embeddings", "images", "speech"])
async def test_every_endpoint_has_a_new_and_an_old_path(shape: str, api_version: str) -> None:
    base = {"model": "public-name"}
    async with FakeUpstream(azure) as fake, provider(fake, api_version=api_version) as subject:
        match shape:
            case "chat":
                path = "/chat/completions"
                await subject.chat(ask(), TARGET)
            case "stream":
                path = "/chat/completions"
                assert [chunk async for chunk in subject.stream_chat(streaming(), TARGET)]
            case "embeddings":
                path = "/embeddings"
                await subject.embed(decode_embedding_request(msgspec.json.encode({**base, "input": "x"})), TARGET)
            case "images":
                path = "/images/generations"
                picture = decode_image_request(msgspec.json.encode({**base, "prompt": "x"}))
                await subject.generate_images(picture, TARGET)
                assert "response_format" not in fake.seen[0].json  # its image models refuse the field
            case _:
                path = "/audio/speech"
                speech = {**base, "input": "x", "voice": "alloy"}
                decoded = decode_speech_request(msgspec.json.encode(speech))
                assert [chunk async for chunk in subject.speak(decoded, TARGET)]
        seen = fake.seen[0]
    old = f"/openai/deployments/my%20deployment%3F{path}?api-version={OLD}"
    assert seen.path == (old if api_version else f"/openai/v1{path}")
    assert seen.headers["api-key"] == KEY and "authorization" not in seen.headers
    assert seen.json["model"] == "my deployment?"


@pytest.mark.parametrize("tail", ["", "/", "/openai", "/openai/v1", "/openai/v1/"])
async def test_endpoint_may_be_given_with_or_without_its_path(tail: str) -> None:
    async with (
        FakeUpstream(azure) as fake,
        provider(fake, endpoint=f"{fake.url}{tail}", api_version="preview") as subject,
    ):
        await subject.chat(ask(), TARGET)
        assert fake.seen[0].path == "/openai/v1/chat/completions?api-version=preview"


async def test_entra_token_is_a_bearer_and_is_read_from_its_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("entra-token-one\n")
    async with FakeUpstream(azure) as fake, provider(fake, token=Secret("file", str(file))) as subject:
        await subject.chat(ask(), TARGET)
        headers = fake.seen[0].headers
    assert headers["authorization"] == "Bearer entra-token-one" and "api-key" not in headers


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"endpoint": "my-resource.openai.azure.com", "api_key": Secret("literal", KEY)}, "endpoint"),
        ({"endpoint": "https://a.invalid"}, "either"),
        ({"endpoint": "https://a.invalid", "api_key": Secret("literal", "k"), "token": Secret("literal", "t")}, "eith"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        AzureProvider(AzureProvider.Options(**options), Upstream())


@pytest.mark.parametrize(
    ("options", "takes"),
    [
        ({}, True),
        ({"api_version": "2024-10-21"}, False),
        ({"api_version": "2024-10-21", "session_header": "x-session"}, True),
        ({"api_version": "2024-10-21", "session_header": "x-session", "send_cache_key": False}, False),
        ({"api_version": "2024-10-21", "send_cache_key": True}, True),
    ],
)
async def test_older_paths_get_the_name_of_a_session_in_a_header_only(options: dict[str, Any], takes: bool) -> None:
    async with FakeUpstream() as fake, provider(fake, **options) as subject:
        assert subject.takes_cache_key == takes


# What comes back -----------------------------------------------------------------------------------------------------


async def test_prelude_and_filter_results_are_removed() -> None:
    chunks = await chunks_of(*STREAM)
    assert len(chunks) == 5
    text = msgspec.json.encode(chunks)
    assert b"filter" not in text and b"offset" not in text


async def test_stream_accumulates_to_the_whole_answer() -> None:
    async with FakeUpstream() as fake, provider(fake) as subject:
        fake.enqueue(Reply.stream(STREAM), Reply.json(WHOLE))
        streamed = await fold_chat(subject.stream_chat(streaming(), TARGET))
        whole = await subject.chat(ask(), TARGET)
    for answer in (streamed, whole):
        assert answer.choices[0].message.content == "The tide is out." and answer.choices[0].finish_reason == "stop"
        assert answer.usage is not None and answer.usage.total_tokens == 23
        assert b"filter" not in msgspec.json.encode(answer)


async def test_content_filter_finish_reason_is_kept() -> None:
    chunks = await chunks_of(*STREAM[:4], verdict(0, 8, finish_reason="content_filter"), done=False)
    assert chunks[-1].choices[0].finish_reason == "content_filter"


async def error_of(reply: Reply) -> GatewayError:
    async with FakeUpstream() as fake, provider(fake) as subject:
        fake.enqueue(reply)
        with pytest.raises(GatewayError) as caught:
            await subject.chat(ask(), TARGET)
    assert KEY not in f"{caught.value} {caught.value.detail} {caught.value.body().decode()}"
    return caught.value


async def test_filtered_prompt_is_a_caller_error() -> None:
    error = await error_of(Reply.json(FILTERED, status=400))
    assert isinstance(error, ContentFiltered)
    assert (error.status, error.code, error.param) == (400, "content_filter", "messages")


async def test_missing_deployment_may_be_retried_on_another_target() -> None:
    error = await error_of(Reply.json(NOT_DEPLOYED, status=404))
    assert isinstance(error, UpstreamError) and error.retryable and "DeploymentNotFound" in (error.detail or "")


async def test_retry_wait_is_read_from_the_more_precise_header() -> None:
    error = await error_of(Reply.json(LIMITED, status=429, headers={"retry-after": "1", "retry-after-ms": "640"}))
    assert isinstance(error, UpstreamRateLimited) and error.retry_after == 0.64


async def test_wrong_key_is_an_operator_error_and_is_not_shown() -> None:
    assert isinstance(await error_of(Reply.json(WRONG_KEY, status=401)), UpstreamAuthError)


# As a plugin ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("api_version", ["", pytest.param(OLD, marks=pytest.mark.slow)])
def test_azure_conforms(api_version: str) -> None:
    options = {"endpoint": "{upstream}", "api_key": Secret("literal", KEY), "api_version": api_version}
    endings = {"length": ended(azure, '"finish_reason":"stop"', '"finish_reason":"length"')}
    passed = check_provider(AzureProvider, options=options, upstream=FakeUpstream(azure), endings=endings)
    assert {"cut_stream_never_looks_whole", "finish_reasons_are_told"} <= set(passed)


def test_azure_is_built_in() -> None:
    assert load_plugins(PluginSettings()).providers["azure"] is AzureProvider

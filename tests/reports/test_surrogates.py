"""Surrogates in the answers of upstreams that cut texts by UTF-16 units: `\\ud83d`, and then `\\ude42`.

JSON may carry such a surrogate and UTF-8 may not. A client gets the character, or U+FFFD for a lone surrogate.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gateway.config.loader import parse
from gateway.config.settings import Settings
from gateway.testing import FakeUpstream, Reply
from tests.api.conftest import Client
from tests.providers import converse_dialect

from .endpoints import TRANSCRIPTIONS, post
from .streams import chunk, documents, text_of

pytestmark = pytest.mark.no_standard

FIRST, SECOND, LONE, SMILE = "\ud83d", "\ude42", "\N{REPLACEMENT CHARACTER}", "\U0001f642"
HEADERS = {"Content-Type": "application/json"}
EVENTS = {"Content-Type": "text/event-stream"}
CHAT, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/messages", "/v1/responses"
GEMINI = "/v1beta/models"
MODELS = ("m1", "claude", "gemini", "bedrock", "cohere")
#: What the pieces of a stream amount to.
CUTS = [
    (["Hi ", FIRST, SECOND, "!"], f"Hi {SMILE}!"),
    ([f"Hi {FIRST}", f"{SECOND}{FIRST}", f"{SECOND}!"], f"Hi {SMILE}{SMILE}!"),
    ([FIRST, "a", SECOND], f"{LONE}a{LONE}"),
    ([f"Hi {FIRST}"], f"Hi {LONE}"),
]


@pytest.fixture
def settings(tmp_path: Path, upstream: FakeUpstream) -> Settings:
    """A model in each dialect on one server, and one on it for each other endpoint."""
    key = "canary-0123456789"
    openai = {"plugin": "openai", "base_url": upstream.base_url, "api_key": f"sk-{key}"}
    providers: dict[str, Any] = {
        "m1": openai,
        "responses": {**openai, "responses": True},
        "claude": {"plugin": "anthropic", "base_url": upstream.url, "api_key": f"sk-ant-{key}"},
        "gemini": {"plugin": "gemini", "base_url": f"{upstream.url}/v1beta", "api_key": f"AIzaSy{key}"},
        "bedrock": {"plugin": "bedrock", "base_url": upstream.url, "region": "us-east-1", "api_key": key},
        "cohere": {"plugin": "cohere", "base_url": upstream.url, "api_key": key},
    }
    price = {"input": 1, "output": 2}
    upstream_models = {"claude": "claude-sonnet-4-5", "gemini": "gemini-3-pro", "cohere": "command-a-03-2025"}
    models: dict[str, Any] = {
        name: {"provider": name, "model": upstream_models.get(name, "upstream"), "price": price, "retries": 0}
        for name in providers
    }
    for kind, charged in (("transcription", {"per_second_in": 1}), ("images", {"per_image": {"*": 1}})):
        models[kind] = {"provider": "m1", "model": "up", "price": charged, "endpoints": [kind], "retries": 0}
    targets = [{"provider": "m1", "model": "first"}, {"provider": "m1", "model": "second"}]
    models["continued"] = {"targets": targets, "price": price, "continue_cut": True, "strategy": "in_order"}
    models["hearing"] = {**models["transcription"], "provider": "gemini", "model": "gemini-2.5-flash"}
    return parse(
        {
            "store": {"data_dir": str(tmp_path)},
            "providers": providers,
            "groups": {"default": {}},
            "models": models,
        },
        demo=True,
    )


def raw(document: Any) -> bytes:
    """JSON as a server in JavaScript writes it, with surrogates."""
    return json.dumps(document).encode()


def whole(document: Any, status: int = 200) -> Reply:
    """The same as an answer."""
    return Reply(status=status, headers=HEADERS, body=raw(document))


def named(*events: dict[str, Any]) -> Reply:
    """A stream of events that have a type."""
    frames = [b"event: %b\ndata: %b\n\n" % (str(one["type"]).encode(), raw(one)) for one in events]
    return Reply(headers=EVENTS, frames=frames)


def streamed(model: str, pieces: list[str]) -> Reply:
    """A stream of these pieces of text, in the dialect of the model."""
    if model == "claude":
        deltas = [
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": piece}}
            for piece in pieces
        ]
        return named(
            {"type": "message_start", "message": {"role": "assistant", "content": [], "usage": {"input_tokens": 3}}},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
            *deltas,
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}},
            {"type": "message_stop"},
        )
    if model == "gemini":
        frames: list[Any] = [{"candidates": [{"content": {"parts": [{"text": piece}]}}]} for piece in pieces]
        frames.append({"candidates": [{"content": {"parts": []}, "finishReason": "STOP"}]})
        return Reply(headers=EVENTS, frames=[b"data: %b\n\n" % raw(one) for one in frames])
    if model == "bedrock":
        events: list[tuple[str, Any]] = [("contentBlockDelta", {"delta": {"text": piece}}) for piece in pieces]
        events += [("messageStop", {"stopReason": "end_turn"}), ("metadata", {"usage": {"inputTokens": 1}})]
        headers = {":content-type": "application/json", ":message-type": "event"}
        return converse_dialect.streamed(
            *(converse_dialect.frame({**headers, ":event-type": kind}, raw(one)) for kind, one in events)
        )
    if model == "cohere":
        said = [
            {"type": "content-delta", "index": 0, "delta": {"message": {"content": {"text": piece}}}}
            for piece in pieces
        ]
        return named(*said, {"type": "message-end", "delta": {"finish_reason": "COMPLETE"}})
    return Reply.stream([*(b"data: %b\n\n" % raw(chunk({"content": piece})) for piece in pieces), chunk(finish="stop")])


def answered(model: str, text: str) -> Any:
    """A whole answer that was cut by the limit of tokens."""
    return {
        "m1": {"choices": [{"index": 0, "message": {"content": text}, "finish_reason": "length"}]},
        "claude": {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "text", "text": text}],
            "stop_reason": "max_tokens",
            "usage": {"input_tokens": 3, "output_tokens": 2},
        },
        "gemini": {"candidates": [{"content": {"parts": [{"text": text}]}, "finishReason": "MAX_TOKENS"}]},
        "bedrock": {
            "output": {"message": {"role": "assistant", "content": [{"text": text}]}},
            "stopReason": "max_tokens",
            "usage": {"inputTokens": 1, "outputTokens": 2},
        },
        "cohere": {"message": {"content": [{"type": "text", "text": text}]}, "finish_reason": "MAX_TOKENS"},
    }[model]


def asking(path: str, model: str, *, stream: bool) -> tuple[str, dict[str, Any]]:
    """The path and the body of a question in the dialect of a path."""
    if path == GEMINI:
        verb = "streamGenerateContent?alt=sse" if stream else "generateContent"
        return f"{GEMINI}/{model}:{verb}", {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]}
    said: dict[str, Any] = {"messages": [{"role": "user", "content": "Hi"}]}
    if path == RESPONSES:
        said = {"input": "Hi"}
    return path, {"model": model, "max_tokens": 99, "stream": stream, **said} if path != RESPONSES else {
        "model": model,
        "stream": stream,
        **said,
    }


async def ask(client: Client, path: str, model: str, *, stream: bool = False) -> tuple[aiohttp.ClientResponse, str]:
    """The answer to a question; reading it as UTF-8 is strict."""
    address, body = asking(path, model, stream=stream)
    async with client.request("POST", address, json=body) as response:
        return response, (await response.read()).decode()


def said_in(path: str, text: str) -> str:
    """The text that the events of a stream spell, in the dialect of a path."""
    found = [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line.startswith("data: {")]
    if path == MESSAGES:
        return "".join(one["delta"].get("text", "") for one in found if one["type"] == "content_block_delta")
    if path == RESPONSES:
        assert found[-1]["type"] == "response.completed"
        return "".join(one["delta"] for one in found if one["type"] == "response.output_text.delta")
    parts = [part for one in found for each in one["candidates"] for part in each["content"]["parts"]]
    return "".join(part.get("text", "") for part in parts)


# Chat ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(("pieces", "said"), CUTS)
async def test_halves_in_a_stream_of_any_upstream_are_whole_characters(
    client: Client, upstream: FakeUpstream, model: str, pieces: list[str], said: str
) -> None:
    """https://github.com/elie222/rakazo/pull/424, of the kind: here in every dialect of upstreams."""
    upstream.enqueue(streamed(model, pieces))
    _, text, failure = await client.stream(model=model)
    assert (text_of(text), failure, "[DONE]" in text) == (said, None, True)


@pytest.mark.parametrize("model", MODELS)
async def test_whole_answer_that_was_cut_inside_a_character_ends_with_its_replacement(
    client: Client, upstream: FakeUpstream, model: str
) -> None:
    upstream.enqueue(whole(answered(model, f"Hi {SMILE}{FIRST}")))
    response, answer = await client.chat(model=model)
    assert response.status == 200
    choice = answer["choices"][0]
    assert (choice["message"]["content"], choice["finish_reason"]) == (f"Hi {SMILE}{LONE}", "length")


@pytest.mark.parametrize("path", [MESSAGES, RESPONSES, GEMINI])
@pytest.mark.parametrize(("pieces", "said"), CUTS)
async def test_halves_in_a_stream_are_whole_characters_in_every_dialect_of_clients(
    client: Client, upstream: FakeUpstream, path: str, pieces: list[str], said: str
) -> None:
    upstream.enqueue(streamed("m1", pieces))
    response, text = await ask(client, path, "m1", stream=True)
    assert (response.status, said_in(path, text)) == (200, said)


@pytest.mark.parametrize("path", [MESSAGES, RESPONSES, GEMINI])
async def test_whole_answer_that_was_cut_inside_a_character_is_readable_in_every_dialect_of_clients(
    client: Client, upstream: FakeUpstream, path: str
) -> None:
    upstream.enqueue(whole(answered("m1", f"Hi {FIRST}")))
    response, text = await ask(client, path, "m1")
    assert (response.status, f'"text":"Hi {LONE}"' in text) == (200, True)


async def test_halves_in_thoughts_and_arguments_of_claude_are_whole_characters(
    client: Client, upstream: FakeUpstream
) -> None:
    def delta(index: int, kind: str, name: str, text: str) -> dict[str, Any]:
        return {"type": "content_block_delta", "index": index, "delta": {"type": kind, name: text}}

    tool = {"type": "tool_use", "id": "c1", "name": "say", "input": {}}
    upstream.enqueue(
        named(
            {"type": "message_start", "message": {"role": "assistant", "content": [], "usage": {"input_tokens": 3}}},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
            delta(0, "thinking_delta", "thinking", f"t{FIRST}"),
            delta(0, "thinking_delta", "thinking", f"{SECOND}{FIRST}"),
            delta(0, "signature_delta", "signature", "c2ln"),
            {"type": "content_block_stop", "index": 0},
            {"type": "content_block_start", "index": 1, "content_block": tool},
            delta(1, "input_json_delta", "partial_json", f'{{"a":"{FIRST}'),
            delta(1, "input_json_delta", "partial_json", f'{SECOND}"}}'),
            {"type": "content_block_stop", "index": 1},
            {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 2}},
            {"type": "message_stop"},
        )
    )
    _, text, failure = await client.stream(model="claude")
    deltas = [choice["delta"] for frame in documents(text) for choice in frame["choices"]]
    assert "".join(delta.get("reasoning_content") or "" for delta in deltas) == f"t{SMILE}{LONE}"
    calls = [call for delta in deltas for call in delta.get("tool_calls", ())]
    assert "".join(call["function"]["arguments"] for call in calls) == f'{{"a":"{SMILE}"}}'
    blocks = next(delta["thinking_blocks"] for delta in deltas if "thinking_blocks" in delta)
    assert (blocks[0]["thinking"], failure) == (f"t{SMILE}{LONE}", None)


async def test_half_in_the_arguments_of_a_call_of_gemini_is_replaced(client: Client, upstream: FakeUpstream) -> None:
    part = {"functionCall": {"name": "say", "args": {"a": f"x{FIRST}", f"b{SECOND}": 1}}}
    upstream.enqueue(whole({"candidates": [{"content": {"parts": [part]}, "finishReason": "STOP"}]}))
    _, answer = await client.chat(model="gemini")
    [call] = answer["choices"][0]["message"]["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {"a": f"x{LONE}", f"b{LONE}": 1}


async def test_answer_that_is_cut_inside_a_character_is_continued_after_the_last_whole_one(
    client: Client, upstream: FakeUpstream
) -> None:
    cut = [b"data: %b\n\n" % raw(chunk({"content": piece})) for piece in ("Hi there, ", f"you{FIRST}")]
    upstream.enqueue(Reply(headers=EVENTS, frames=cut, end="cut"), streamed("m1", [f"{SMILE}!"]))
    _, text, failure = await client.stream(model="continued")
    assert (text_of(text), failure) == (f"Hi there, you{SMILE}!", None)
    assert upstream.seen[-1].json["messages"][-1]["content"] == "Hi there, you"


# Passed on as it came -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("path", "model"), [(MESSAGES, "claude"), (GEMINI, "gemini")])
@pytest.mark.parametrize(("pieces", "said"), CUTS)
async def test_halves_in_events_that_are_passed_on_are_whole_characters(
    client: Client, upstream: FakeUpstream, path: str, model: str, pieces: list[str], said: str
) -> None:
    upstream.enqueue(streamed(model, pieces))
    response, text = await ask(client, path, model, stream=True)
    assert (response.status, said_in(path, text)) == (200, said)


@pytest.mark.parametrize(("pieces", "said"), CUTS)
async def test_halves_in_responses_that_are_passed_on_are_whole_characters(
    client: Client, upstream: FakeUpstream, pieces: list[str], said: str
) -> None:
    place = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    text = "".join(pieces)
    part = {"type": "output_text", "text": text, "annotations": []}
    item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [part]}
    answer = {"id": "r", "object": "response", "status": "completed", "output": [item]}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": {**answer, "status": "in_progress", "output": []}},
        *({"type": "response.output_text.delta", **place, "delta": piece} for piece in pieces),
        {"type": "response.output_text.done", **place, "text": text},
        {"type": "response.completed", "response": answer},
    ]
    upstream.enqueue(named(*({**one, "sequence_number": number} for number, one in enumerate(events))))
    response, sent = await ask(client, RESPONSES, "responses", stream=True)
    assert (response.status, said_in(RESPONSES, sent)) == (200, said)
    found = [json.loads(line.removeprefix("data: ")) for line in sent.splitlines() if line.startswith("data: {")]
    assert [one["sequence_number"] for one in found] == list(range(len(found)))
    assert [found[-2]["text"], found[-1]["response"]["output"][0]["content"][0]["text"]] == [said, said]


@pytest.mark.parametrize(("path", "model"), [(MESSAGES, "claude"), (GEMINI, "gemini")])
async def test_whole_answer_that_is_passed_on_has_whole_characters(
    client: Client, upstream: FakeUpstream, path: str, model: str
) -> None:
    upstream.enqueue(whole({**answered(model, f"Hi {FIRST}"), "future": [SECOND]}))
    response, text = await ask(client, path, model)
    assert (response.status, f'"text":"Hi {LONE}"' in text, f'"future":["{LONE}"]' in text) == (200, True, True)


async def test_whole_response_that_is_passed_on_has_whole_characters(client: Client, upstream: FakeUpstream) -> None:
    item = {"type": "message", "id": "m", "content": [{"type": "output_text", "text": f"Hi {FIRST}"}]}
    upstream.enqueue(whole({"id": "r", "status": "completed", "output": [item], "future": SECOND}))
    response, text = await ask(client, RESPONSES, "responses")
    assert (response.status, f'"text":"Hi {LONE}"' in text, f'"future":"{LONE}"' in text) == (200, True, True)


# Other endpoints ----------------------------------------------------------------------------------------------------


async def test_halves_in_a_transcript_that_gemini_streams_are_whole_characters(
    client: Client, upstream: FakeUpstream
) -> None:
    upstream.enqueue(streamed("gemini", ["I ", FIRST, SECOND, FIRST]))
    response, body = await post(client, TRANSCRIPTIONS, fields=(("model", "hearing"), ("stream", "true")))
    found = documents(body.decode())
    assert "".join(one.get("delta", "") for one in found) == f"I {SMILE}{LONE}"
    assert (response.status, found[-1]["text"]) == (200, f"I {SMILE}{LONE}")


async def test_halves_in_a_streamed_transcript_are_whole_characters(client: Client, upstream: FakeUpstream) -> None:
    events = [{"type": "transcript.text.delta", "delta": piece} for piece in ("I ", FIRST, SECOND, FIRST)]
    upstream.enqueue(named(*events, {"type": "transcript.text.done", "text": f"I {SMILE}{FIRST}"}))
    response, body = await post(client, TRANSCRIPTIONS, fields=(("model", "transcription"), ("stream", "true")))
    found = documents(body.decode())
    assert "".join(one.get("delta", "") for one in found) == f"I {SMILE}{LONE}"
    assert (response.status, found[-1]["text"]) == (200, f"I {SMILE}{LONE}")


@pytest.mark.parametrize("form", ["json", "text", "verbose_json", "srt"])
async def test_transcript_that_ends_with_half_a_character_is_readable(
    client: Client, upstream: FakeUpstream, form: str
) -> None:
    segment = {"start": 0, "end": 1, "text": f"I {FIRST}"}
    upstream.enqueue(whole({"text": f"I {FIRST}", "duration": 1.0, "segments": [segment]}))
    fields = (("model", "transcription"), ("response_format", form))
    response, body = await post(client, TRANSCRIPTIONS, fields=fields)
    assert (response.status, f"I {LONE}" in body.decode()) == (200, True)


async def test_image_with_half_a_character_in_its_prompt_is_delivered(client: Client, upstream: FakeUpstream) -> None:
    upstream.enqueue(whole({"data": [{"url": "https://images.example/1.png", "revised_prompt": f"a heron {FIRST}"}]}))
    body = {"model": "images", "prompt": "a heron", "response_format": "url"}
    response, sent = await post(client, "/v1/images/generations", body=body)
    assert (response.status, f"a heron {LONE}" in sent.decode()) == (200, True)


@pytest.mark.parametrize("status", [400, 200])
@pytest.mark.parametrize("model", MODELS)
async def test_error_with_half_a_character_keeps_its_meaning(
    client: Client, upstream: FakeUpstream, model: str, status: int
) -> None:
    error = {"message": f"maximum context length exceeded {FIRST}", "code": "context_length_exceeded"}
    upstream.enqueue(
        whole({"error": error, "message": error["message"]} if status == 400 else {"error": error}, status)
    )
    response, answer = await client.chat(model=model)
    assert (response.status, answer["error"]["code"]) == (400, "context_length_exceeded")

"""Google's API over an upstream of OpenAI's dialect: answers, streams, errors, and what they cost."""

from __future__ import annotations

import json
from typing import Any

import aiohttp
import pytest

from gateway.accounts.key_record import CreatedKey
from gateway.ledger import Ledger
from gateway.log import stderr
from gateway.runtime.gateway import Gateway
from gateway.testing import FakeUpstream, Reply
from tests.api.conftest import Client
from tests.api.endpoints.test_chat_stream import HELLO, USAGE, _frames, chunk
from tests.ledger_lines import last_line
from tests.polling import until

HI = {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]}
EVENTS = {"Content-Type": "text/event-stream"}
ANSWER = {
    "id": "up",
    "object": "chat.completion",
    "created": 1,
    "model": "upstream-m1",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello"}, "finish_reason": "stop"}],
    "usage": USAGE,
}
WHOLE, STREAM = "/v1beta/models/m1:generateContent", "/v1beta/models/m1:streamGenerateContent"


async def post(client: Client, path: str = WHOLE, headers: dict[str, str] | None = None, **fields: Any) -> Any:
    """The response of a whole call, and its JSON."""
    async with client.request("POST", path, headers=headers, json={**HI, **fields}) as response:
        return response, await response.json(content_type=None)


def events(text: str) -> list[Any]:
    """The documents of an event stream."""
    return [json.loads(frame.removeprefix("data: ")) for frame in text.split("\r\n\r\n") if frame.strip()]


async def stream(client: Client, query: str = "?alt=sse", **fields: Any) -> tuple[aiohttp.ClientResponse, str]:
    """The response of a streamed call, and what was received of it."""
    text = b""
    async with client.request("POST", STREAM + query, json={**HI, **fields}) as response:
        try:
            async for part in response.content.iter_any():
                text += part
        except aiohttp.ClientError:
            pass  # it was cut
    return response, text.decode()


def finishes(documents: list[Any]) -> list[str]:
    """The finish reasons in documents."""
    found = [candidate.get("finishReason") for one in documents for candidate in one.get("candidates", ())]
    return [reason for reason in found if reason is not None]


# Whole answers -------------------------------------------------------------------------------------------------------


async def test_whole_answer_has_the_dialects_form_and_usage(client: Client, upstream: FakeUpstream) -> None:
    upstream.enqueue(Reply.json(ANSWER))
    response, document = await post(client)
    assert response.status == 200
    assert document.pop("responseId").startswith("chatcmpl-")
    assert document == {
        "candidates": [
            {"content": {"parts": [{"text": "Hello"}], "role": "model"}, "finishReason": "STOP", "index": 0}
        ],
        "usageMetadata": {"promptTokenCount": 17, "candidatesTokenCount": 2, "totalTokenCount": 19},
        "modelVersion": "m1",
    }


async def test_call_is_found_by_the_id_of_its_answer_and_charged_once(
    client: Client, upstream: FakeUpstream, ledger: Ledger
) -> None:
    upstream.enqueue(Reply.json(ANSWER))
    response, document = await post(client)
    line = await until(lambda: last_line(ledger, "acme", response.headers["x-request-id"]))
    assert (line.meta["endpoint"], line.meta["usage"]["in_text"], line.meta["usage"]["out_text"]) == ("gemini", 17, 2)
    async with client.request("GET", f"/v1/usage/{document['responseId']}") as receipt:
        assert (await receipt.json())["request_id"] == response.headers["x-request-id"]


async def test_thoughts_are_counted_beside_the_answer_and_shown_if_asked(
    client: Client, upstream: FakeUpstream
) -> None:
    message = {"role": "assistant", "content": "Four.", "reasoning_content": "Two and two."}
    usage = {
        "prompt_tokens": 20, "completion_tokens": 12, "total_tokens": 32,
        "prompt_tokens_details": {"cached_tokens": 8}, "completion_tokens_details": {"reasoning_tokens": 10},
    }  # fmt: skip
    answer = {**ANSWER, "choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": usage}
    for asked, parts in (
        ({}, [{"text": "Four."}]),
        ({"includeThoughts": True}, [{"text": "Two and two.", "thought": True}, {"text": "Four."}]),
    ):
        upstream.enqueue(Reply.json(answer))
        _, document = await post(client, generationConfig={"thinkingConfig": asked})
        assert document["candidates"][0]["content"]["parts"] == parts
        assert document["usageMetadata"] == {
            "promptTokenCount": 20,
            "candidatesTokenCount": 2,
            "totalTokenCount": 32,
            "cachedContentTokenCount": 8,
            "thoughtsTokenCount": 10,
        }


async def test_calls_come_back_as_objects_with_their_ids(client: Client, upstream: FakeUpstream) -> None:
    calls = [
        {"id": "call_a", "type": "function", "function": {"name": "tide", "arguments": '{"port": "Brest"}'}},
        {"id": "call_b", "type": "function", "function": {"name": "wind", "arguments": ""}},
        {"id": "call_c", "type": "function", "function": {"name": "moon", "arguments": "[1"}},
    ]
    message = {"role": "assistant", "content": None, "tool_calls": calls}
    upstream.enqueue(
        Reply.json({**ANSWER, "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]})
    )
    _, document = await post(client)
    [candidate] = document["candidates"]
    assert candidate["finishReason"] == "STOP"
    assert candidate["content"]["parts"] == [
        {"functionCall": {"id": "call_a", "name": "tide", "args": {"port": "Brest"}}},
        {"functionCall": {"id": "call_b", "name": "wind", "args": {}}},
        {"functionCall": {"id": "call_c", "name": "moon", "args": {"invalid_json": "[1"}}},
    ]


async def test_result_that_is_repeated_is_sent_once(client: Client, upstream: FakeUpstream) -> None:
    upstream.enqueue(Reply.json(ANSWER))
    result = {"functionResponse": {"id": "a", "name": "tide", "response": {"output": "6"}}}
    contents = [
        {"role": "user", "parts": [{"text": "Hi"}]},
        {"role": "model", "parts": [{"functionCall": {"id": "a", "name": "tide", "args": {}}}]},
        {"role": "user", "parts": [result, result]},
        {"role": "model", "parts": [{"functionCall": {"id": "a", "name": "tide", "args": {}}}]},
        {"role": "user", "parts": [result]},
    ]
    response, document = await post(client, contents=contents)
    assert response.status == 200, document
    roles = [message["role"] for message in upstream.seen[0].json["messages"]]
    assert roles == ["user", "assistant", "tool", "assistant", "tool"]


@pytest.mark.parametrize(
    ("reason", "expected"), [("stop", "STOP"), ("length", "MAX_TOKENS"), ("content_filter", "SAFETY")]
)
async def test_finish_reasons_are_googles(client: Client, upstream: FakeUpstream, reason: str, expected: str) -> None:
    choice = {"index": 0, "message": {"role": "assistant", "content": "Hel"}, "finish_reason": reason}
    upstream.enqueue(Reply.json({**ANSWER, "choices": [choice]}))
    _, document = await post(client)
    assert finishes([document]) == [expected]


async def test_what_has_no_place_upstream_is_left_out_and_named(client: Client, upstream: FakeUpstream) -> None:
    upstream.enqueue(Reply.json(ANSWER))
    response, _ = await post(
        client,
        tools=[{"googleSearch": {}}, {"functionDeclarations": [{"name": "f"}], "codeExecution": {}}],
        safetySettings=[{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_NONE"}],
        generationConfig={"topK": 40, "imageConfig": {}, "newest": 1},
        api_base="https://evil.invalid",
    )
    assert response.status == 200
    assert sorted(response.headers["x-gateway-dropped-params"].split(",")) == [
        "api_base",
        "generationConfig.imageConfig",
        "generationConfig.newest",
        "safetySettings",
        "tools.codeExecution",
        "tools.googleSearch",
        "top_k",
    ]
    assert upstream.seen[0].json["tools"] == [{"type": "function", "function": {"name": "f"}}]
    assert b"evil" not in upstream.seen[0].body


# Streams -------------------------------------------------------------------------------------------------------------


@pytest.mark.holds("api.md#googles-gemini-api-2")
async def test_event_stream_has_whole_documents_and_one_finish_at_its_end(
    client: Client, upstream: FakeUpstream
) -> None:
    upstream.enqueue(Reply.stream(HELLO))
    response, text = await stream(client)
    assert response.headers["Content-Type"] == "text/event-stream; charset=utf-8"
    documents = events(text)
    parts = [part for one in documents for part in one["candidates"][0]["content"]["parts"]]
    assert "".join(part["text"] for part in parts) == "Hello"
    assert finishes(documents) == ["STOP"] and "finishReason" in documents[-1]["candidates"][0]
    assert documents[-1]["usageMetadata"] == {"promptTokenCount": 17, "candidatesTokenCount": 2, "totalTokenCount": 19}
    assert {(one["modelVersion"], one["responseId"]) for one in documents} == {("m1", documents[0]["responseId"])}
    assert "[DONE]" not in text and "\nevent:" not in text


async def test_stream_without_alt_is_an_array_of_the_same_documents(client: Client, upstream: FakeUpstream) -> None:
    upstream.enqueue(Reply.stream(HELLO), Reply.stream(HELLO))
    response, text = await stream(client, query="")
    assert response.headers["Content-Type"] == "application/json; charset=utf-8"
    documents = json.loads(text)
    _, plain = await stream(client)
    for one in (documents, expected := events(plain)):
        for document in one:
            del document["responseId"]
    assert documents == expected


async def test_calls_of_a_stream_are_sent_whole(client: Client, upstream: FakeUpstream) -> None:
    def call(index: int, **fields: Any) -> dict[str, Any]:
        return chunk({"tool_calls": [{"index": index, **fields}]})

    upstream.enqueue(
        Reply.stream(
            [
                chunk({"role": "assistant", "content": "Let me see."}),
                call(0, id="call_a", type="function", function={"name": "tide", "arguments": ""}),
                call(0, function={"arguments": '{"port":'}),
                call(0, function={"arguments": '"Brest"}'}),
                call(1, id="call_b", type="function", function={"name": "moon", "arguments": "{}"}),
                chunk(finish="tool_calls"),
            ]
        )
    )
    _, text = await stream(client)
    documents = events(text)
    assert [one["candidates"][0]["content"]["parts"] for one in documents] == [
        [{"text": "Let me see."}],
        [{"functionCall": {"id": "call_a", "name": "tide", "args": {"port": "Brest"}}}],
        [{"functionCall": {"id": "call_b", "name": "moon", "args": {}}}],
    ]
    assert finishes(documents) == ["STOP"]


@pytest.mark.parametrize("query", ["?alt=sse", ""])
@pytest.mark.parametrize("frames", range(len(HELLO) - 1))
async def test_stream_that_is_cut_ends_with_an_error_and_without_a_finish(
    client: Client, upstream: FakeUpstream, ledger: Ledger, frames: int, query: str
) -> None:
    upstream.enqueue(Reply(headers=EVENTS, frames=_frames(HELLO[:frames]), end="cut"))
    response, text = await stream(client, query=query)
    if response.status != 200:  # nothing was sent before
        assert json.loads(text)["error"]["status"] == "INTERNAL"
        return
    documents = events(text) if query else json.loads(text)
    assert finishes(documents) == []
    error = documents[-1]["error"]
    assert (error["code"], error["status"]) == (502, "INTERNAL")
    line = await until(lambda: last_line(ledger, "acme", response.headers["x-request-id"]))
    sent = "".join(part["text"] for one in documents[:-1] for part in one["candidates"][0]["content"]["parts"])
    assert bool(sent) == (line.meta["usage"]["out_text"] > 0)


# Errors --------------------------------------------------------------------------------------------------------------


@pytest.mark.holds("errors.md#googles-shape-1")
async def test_errors_have_googles_shape_on_every_path(client: Client) -> None:
    for path in (WHOLE, STREAM, "/v1beta/models", "/v1beta/models/m1", "/v1beta/nothing", "/v1beta"):
        method = "POST" if ":" in path else "GET"
        async with client.request(method, path, headers={"X": "y"}, json={}) as response:
            assert response.status == 401
            assert await response.json() == {
                "error": {
                    "code": 401,
                    "message": "Missing or invalid API key",
                    "status": "UNAUTHENTICATED",
                    "details": [
                        {
                            "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                            "reason": "invalid_api_key",
                            "domain": "gateway",
                            "metadata": {},
                        }
                    ],
                }
            }
    for method, path, expected in (
        ("GET", "/v1beta/nothing", (404, "NOT_FOUND")),
        ("GET", "/v1beta/models/nothing", (404, "NOT_FOUND")),
        ("POST", "/v1beta/models/secret:generateContent", (403, "PERMISSION_DENIED")),
        ("POST", "/v1beta/models/m1:predict", (405, "UNIMPLEMENTED")),
        ("DELETE", WHOLE, (405, "UNIMPLEMENTED")),
    ):
        async with client.request(method, path, json=HI) as response:
            error = (await response.json())["error"]
            assert (error["code"], error["status"]) == (response.status, error["status"]) == expected


async def test_error_of_a_field_names_it(client: Client) -> None:
    response, document = await post(client, generationConfig={"temperature": 3})
    assert (response.status, document["error"]["status"]) == (400, "INVALID_ARGUMENT")
    [detail] = document["error"]["details"]
    assert detail["reason"] == "decimal_above_max_value"
    assert detail["metadata"] == {"param": "generationConfig.temperature"}


# The key -------------------------------------------------------------------------------------------------------------


@pytest.mark.holds("api.md#googles-gemini-api-1")
async def test_key_in_the_query_is_taken_and_shown_nowhere(
    client: Client, upstream: FakeUpstream, api_key: CreatedKey, gateway: Gateway, capfd: pytest.CaptureFixture[str]
) -> None:
    unknown = "sk-" + "unknown0" * 5
    upstream.enqueue(Reply.json(ANSWER))
    response, _ = await post(client, f"{WHOLE}?key={api_key.text}", headers={"X": "y"})
    assert response.status == 200
    response, document = await post(client, f"{WHOLE}?key={unknown}", headers={"X": "y"})
    assert response.status == 401
    told = str(document) + str(response.headers)
    async with client.request("GET", f"/v1beta/nothing?key={api_key.text}", headers={"X": "y"}) as response:
        assert response.status == 404
        told += await response.text()
    gateway.access_log.flush()
    assert stderr.flush(within=60.0)
    told += "".join(capfd.readouterr()) + str(upstream.seen[0].headers) + upstream.seen[0].path
    assert "/v1beta/models/m1:generateContent" in told, "the access log was not captured"
    for key in (api_key.text, unknown):
        assert key not in told and key[3:] not in told and key[-4:] not in told


async def test_key_comes_in_googles_header_or_as_bearer(client: Client, api_key: CreatedKey) -> None:
    for headers in ({"x-goog-api-key": api_key.text}, {"Authorization": f"Bearer {api_key.text}"}):
        async with client.request("GET", "/v1beta/models", headers=headers) as response:
            assert response.status == 200


# Other methods -------------------------------------------------------------------------------------------------------


async def test_models_are_listed_in_googles_shape(client: Client) -> None:
    async with client.request("GET", "/v1beta/models?pageSize=1000") as response:
        models = {model["name"]: model for model in (await response.json())["models"]}
    assert "models/secret" not in models
    assert models["models/capped"] == {
        "name": "models/capped",
        "version": "1",
        "displayName": "capped",
        "inputTokenLimit": 1000,
        "outputTokenLimit": 100,
        "supportedGenerationMethods": ["generateContent", "streamGenerateContent", "countTokens"],
    }
    async with client.request("GET", "/v1beta/models/org%2Fm:1") as response:
        assert (await response.json())["name"] == "models/org/m:1"


async def test_tokens_are_counted_without_a_call_or_a_charge(client: Client, upstream: FakeUpstream) -> None:
    path = "/v1beta/models/m1:countTokens"
    response, plain = await post(client, path)
    assert response.status == 200 and plain["totalTokens"] > 0
    async with client.request("POST", path, json={"generateContentRequest": HI}) as wrapped:
        assert await wrapped.json() == plain
    assert not upstream.seen

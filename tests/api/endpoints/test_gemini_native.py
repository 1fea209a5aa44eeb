"""Google's API over Google's own API: what is passed through, and what is not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gateway.config.loader import parse
from gateway.config.settings import Settings
from gateway.ledger import Ledger
from gateway.testing import FakeUpstream, Reply
from tests.api.conftest import Client
from tests.api.endpoints.test_gemini import HI, events, finishes, post, stream
from tests.ledger_lines import last_line
from tests.polling import until
from tests.providers.gemini_upstream import BLOCKED, CALLS, KEY, SIGNATURE, THOUGHT, candidate, document, part, usage

FRAMES = [
    document(candidate(part(text="Two.", thought=True)), usage=usage(9)),
    document(
        candidate(part(text="Hel", thoughtSignature=SIGNATURE), safetyRatings=[{"blocked": False}]),
        usage=usage(9, 1, 4),
    ),
    document(candidate(part(text="lo"), finish="STOP", groundingMetadata={"x_a": [1.50]}), usage=usage(9, 2, 4)),
]


@pytest.fixture
def settings(tmp_path: Path, upstream: FakeUpstream) -> Settings:
    """m1 is a Gemini model; `signed` is one that demands signatures, `safe` one with the operator's own safety."""
    provider: dict[str, Any] = {"plugin": "gemini", "base_url": upstream.base_url + "beta", "api_key": KEY}
    safe = {**provider, "safety": {"HARM_CATEGORY_HARASSMENT": "BLOCK_LOW_AND_ABOVE"}}
    model = {"provider": "goog", "model": "gemini-2.5-flash", "price": {"input": 1, "output": 2}, "retries": 0}
    return parse(
        {
            "store": {"data_dir": str(tmp_path)},
            "providers": {"goog": provider, "guarded": safe},
            "groups": {"default": {}},
            "models": {
                "m1": model,
                "signed": {**model, "model": "gemini-3-flash"},
                "safe": {**model, "provider": "guarded"},
                "capped": {**model, "max_output_tokens": 100},
            },
        },
        demo=True,
    )


async def test_request_is_passed_on_byte_for_byte_with_the_models_name_of_the_target(
    client: Client, upstream: FakeUpstream
) -> None:
    contents = (
        b'[{"role":"user","parts":[{"text":"caf\\u00e9"},{"newest":1.50}]},{"role":"model","parts":'
        b'[{"functionCall":{"name":"f","args":{"host":1.0}},"thoughtSignature":"a+/b=="}]},'
        b'{"role":"user","parts":[{"functionResponse":{"name":"f","response":{"x":2}}}]}]'
    ).replace(b'{"newest":1.50}', b'{"text":"x","newest":1.50}')
    body = (
        b'{"contents":%b,"generationConfig":{"temperature":1.0,"topK":64,"responseSchema":{"type":"STRING"}},'
        b'"systemInstruction":{"parts":{"text":"Be brief"}},"tools":[{"functionDeclarations":[{"name":"f"}],'
        b'"googleSearch":{}}],"safetySettings":[{"category":"A","threshold":"B"}],"labels":{"a":"b"},"model":"models/x"}'
    ) % contents
    body = body.replace(b'"responseSchema"', b'"responseMimeType":"application/json","responseSchema"')
    upstream.enqueue(Reply.json(THOUGHT))
    headers = {**client.headers, "Content-Type": "application/json"}
    async with client.request("POST", "/v1beta/models/m1:generateContent", headers=headers, data=body) as response:
        assert response.status == 200, await response.text()
        assert response.headers["x-gateway-dropped-params"] == "tools.googleSearch,labels"
    seen = upstream.seen[0]
    assert seen.path == "/v1beta/models/gemini-2.5-flash:generateContent"
    assert contents in seen.body
    sent = seen.json
    limit = sent["generationConfig"].pop("maxOutputTokens")
    assert limit > 0  # the whole answer is held, so it has a limit
    assert sent["generationConfig"] == {
        "temperature": 1.0, "topK": 64, "responseMimeType": "application/json", "responseSchema": {"type": "STRING"}
    }  # fmt: skip
    assert sent["tools"] == [{"functionDeclarations": [{"name": "f"}]}]
    assert sent.keys() == {"contents", "generationConfig", "systemInstruction", "tools", "safetySettings"}


async def test_limit_above_the_models_is_lowered_and_named(client: Client, upstream: FakeUpstream) -> None:
    upstream.enqueue(Reply.json(THOUGHT))
    response, _ = await post(
        client, "/v1beta/models/capped:generateContent", generationConfig={"maxOutputTokens": 65_536}
    )
    assert response.headers["x-gateway-dropped-params"] == "generationConfig.maxOutputTokens"
    assert upstream.seen[0].json["generationConfig"] == {"maxOutputTokens": 100}


async def test_answer_keeps_everything_but_id_model_and_usage(
    client: Client, upstream: FakeUpstream, ledger: Ledger
) -> None:
    upstream.enqueue(Reply.json({**THOUGHT, "createTime": "2026-11-28T00:00:00Z"}))
    response, found = await post(client)
    assert found["candidates"] == THOUGHT["candidates"] and found["createTime"] == "2026-11-28T00:00:00Z"
    assert (found["modelVersion"], found["responseId"][:9]) == ("m1", "chatcmpl-")
    assert found["usageMetadata"] == {
        "promptTokenCount": 12,
        "candidatesTokenCount": 2,
        "totalTokenCount": 45,
        "cachedContentTokenCount": 8,
        "thoughtsTokenCount": 31,
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 12}],
    }
    line = await until(lambda: last_line(ledger, "acme", response.headers["x-request-id"]))
    assert (line.meta["usage"]["in_text"], line.meta["usage"]["in_cached"]) == (4, 8)


async def test_frames_are_passed_on_and_the_finish_waits_for_the_end(client: Client, upstream: FakeUpstream) -> None:
    upstream.enqueue(Reply.stream(FRAMES))
    _, text = await stream(client)
    documents = events(text)
    sent = [one["candidates"][0] for one in documents]
    assert sent[0] == FRAMES[0]["candidates"][0] and sent[1] == FRAMES[1]["candidates"][0]
    assert sent[2] == candidate(part(text="lo"), groundingMetadata={"x_a": [1.5]})
    assert b'{"x_a":[1.5]}' in text.encode() or b'{"x_a": [1.5]}' in text.encode()
    assert sent[3] == {"content": {"parts": [{"text": ""}], "role": "model"}, "finishReason": "STOP", "index": 0}
    assert [one.get("usageMetadata", {}).get("thoughtsTokenCount") for one in documents] == [None, None, None, 4]
    assert {one["modelVersion"] for one in documents} == {"m1"}


@pytest.mark.parametrize("frames", range(len(FRAMES) + 1))
@pytest.mark.parametrize("query", ["?alt=sse", ""])
async def test_stream_that_is_cut_never_shows_a_finish(
    client: Client, upstream: FakeUpstream, ledger: Ledger, frames: int, query: str
) -> None:
    cut = [b"data: %b\r\n\r\n" % json.dumps(frame).encode() for frame in FRAMES][:frames]
    if frames == len(FRAMES):  # behind the finish, in the middle of a frame
        cut.append(b'data: {"candidates": [{"content"')
    upstream.enqueue(Reply(headers={"Content-Type": "text/event-stream"}, frames=cut, end="cut"))
    response, text = await stream(client, query=query)
    if response.status != 200:
        assert not frames and json.loads(text)["error"]["code"] == 502
        return
    documents = events(text) if query else json.loads(text)
    assert finishes(documents) == []
    assert documents[-1]["error"]["status"] == "INTERNAL"
    line = await until(lambda: last_line(ledger, "acme", response.headers["x-request-id"]))
    assert line.amount < 0


async def test_blocked_prompt_is_told_as_google_tells_it(client: Client, upstream: FakeUpstream) -> None:
    upstream.enqueue(Reply.json(BLOCKED), Reply.stream([BLOCKED]))
    _, found = await post(client)
    _, text = await stream(client)
    for one in (found, *events(text)):
        assert one["promptFeedback"] == {"blockReason": "PROHIBITED_CONTENT"} and "candidates" not in one
        assert one["usageMetadata"]["promptTokenCount"] == 9


async def test_call_without_a_signature_gets_the_bypass_where_the_model_demands_one(
    client: Client, upstream: FakeUpstream
) -> None:
    call = {"functionCall": {"name": "f", "args": {}}}
    result = {"functionResponse": {"name": "f", "response": {}}}
    history = [
        *HI["contents"],
        {"role": "model", "parts": [{**call, "thoughtSignature": SIGNATURE}]},
        {"role": "user", "parts": [result]},
        {"role": "model", "parts": [call, call]},
        {"role": "user", "parts": [result, result]},
    ]
    for model, signature in (("signed", "skip_thought_signature_validator"), ("m1", None)):
        upstream.enqueue(Reply.json(CALLS))
        await post(client, f"/v1beta/models/{model}:generateContent", contents=history)
        sent = upstream.seen[-1].json["contents"]
        assert sent[1] == history[1]
        assert [one.get("thoughtSignature") for one in sent[3]["parts"]] == [signature, None]


async def test_operators_safety_settings_replace_those_of_callers(client: Client, upstream: FakeUpstream) -> None:
    upstream.enqueue(Reply.json(CALLS))
    response, _ = await post(
        client,
        "/v1beta/models/safe:generateContent",
        safetySettings=[{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_NONE"}],
    )
    assert response.headers["x-gateway-dropped-params"] == "safetySettings"
    assert upstream.seen[0].json["safetySettings"] == [
        {"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_LOW_AND_ABOVE"}
    ]

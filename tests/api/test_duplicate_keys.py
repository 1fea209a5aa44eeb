"""A body with a key twice in one object means different things to different parsers; no endpoint accepts it."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from gateway.config.loader import parse
from gateway.config.settings import Settings
from gateway.testing import FakeUpstream

from .conftest import Client

BODIES = {
    "chat, at the top": (
        "/v1/chat/completions",
        b'{"model":"secret","model":"chat","messages":[{"role":"user","content":"Hi"}]}',
    ),
    "chat, in a message": (
        "/v1/chat/completions",
        b'{"model":"chat","messages":[{"role":"user","content":"x","content":"Hi"}]}',
    ),
    "chat, in another spelling": (
        "/v1/chat/completions",
        rb'{"model":"chat","messages":[{"role":"user","content":"Hi","c\u006fntent":"x"}]}',
    ),
    "chat, hidden by a colon in a text": (
        "/v1/chat/completions",
        b'{"model":"chat","messages":[{"role":"user" ,"content" : "a: b","content" :"x"}]}',
    ),
    "chat, in a schema": (
        "/v1/chat/completions",
        b'{"model":"chat","messages":[{"role":"user","content":"Hi"}],"tools":[{"type":"function","function":'
        b'{"name":"f","parameters":{"type":"object","properties":{"a":{},"a":{}}}}}]}',
    ),
    "chat, in an unknown field": (
        "/v1/chat/completions",
        b'{"model":"chat","messages":[{"role":"user","content":"Hi"}],"odd":{"a":1,"a":2}}',
    ),
    "chat, in a large body": (
        "/v1/chat/completions",
        b'{"model":"chat","messages":[{"role":"user","content":"%b","content":"Hi"}]}' % (b"x" * (2 << 20)),
    ),
    "completions": ("/v1/completions", b'{"model":"chat","prompt":"a","prompt":"b"}'),
    "completions, in the options of the stream": (
        "/v1/completions",
        b'{"model":"chat","prompt":"a","stream":true,"stream_options":{"include_usage":true,"include_usage":false}}',
    ),
    "responses": ("/v1/responses", b'{"model":"chat","input":"a","input":"b"}'),
    "responses, in an item": (
        "/v1/responses",
        b'{"model":"chat","input":[{"role":"user","content":"a","content":"b"}]}',
    ),
    "responses, in a schema": (
        "/v1/responses",
        b'{"model":"chat","input":"Hi","tools":[{"type":"function","name":"f","parameters":{"a":{},"a":{}}}]}',
    ),
    "responses, in a large body": (
        "/v1/responses",
        b'{"model":"chat","input":[{"role":"user","content":"%b","content":"Hi"}]}' % (b"x" * (2 << 20)),
    ),
    "input tokens": ("/v1/responses/input_tokens", b'{"model":"chat","input":"a","input":"b"}'),
    "messages": (
        "/v1/messages",
        b'{"model":"chat","max_tokens":9,"messages":[{"role":"user","content":"a","content":"b"}]}',
    ),
    "messages, in the input of a tool": (
        "/v1/messages",
        b'{"model":"chat","max_tokens":9,"messages":[{"role":"user","content":"a"},{"role":"assistant","content":'
        b'[{"type":"tool_use","id":"t","name":"f","input":{"a":1,"a":2}}]}]}',
    ),
    "count of messages": (
        "/v1/messages/count_tokens",
        b'{"model":"chat","messages":[{"role":"user","content":"a"}],"system":"a","system":"b"}',
    ),
    "embeddings": ("/v1/embeddings", b'{"model":"vectors","input":"a","input":"b"}'),
    "images": ("/v1/images/generations", b'{"model":"images","prompt":"a","prompt":"b"}'),
    "moderation": ("/v1/moderations", b'{"model":"judge","input":[{"type":"text","text":"a","text":"b"}]}'),
    "rerank": ("/v1/rerank", b'{"model":"ranks","query":"a","documents":[{"text":"a","text":"b"}]}'),
    "speech": ("/v1/audio/speech", b'{"model":"voice","input":"a","voice":{"id":"a","id":"b"}}'),
}


@pytest.fixture
def settings(tmp_path: Path, upstream: FakeUpstream) -> Settings:
    """One model per endpoint."""
    up = {"plugin": "openai", "base_url": upstream.base_url, "api_key": "sk-upstream-canary-0123456789"}

    def model(endpoint: str, **price: Any) -> dict[str, Any]:
        return {"provider": "up", "price": price, "endpoints": [endpoint]}

    return parse(
        {
            "store": {"data_dir": str(tmp_path)},
            "providers": {"up": up},
            "groups": {"default": {}},
            "models": {
                "chat": model("chat", input=1, output=2),
                "vectors": model("embeddings", input=1),
                "images": model("images", per_image={"*": {"*": "0.01"}}),
                "judge": model("moderation", per_request="0.01"),
                "ranks": model("rerank", per_search_unit="0.01"),
                "voice": model("speech", per_character=1000),
            },
        },
        demo=True,
    )


@pytest.mark.parametrize("case", BODIES)
async def test_body_with_a_key_twice_in_one_object_is_invalid_json(
    client: Client, upstream: FakeUpstream, case: str
) -> None:
    path, body = BODIES[case]
    async with client.request("POST", path, data=io.BytesIO(body)) as response:
        assert response.status == 400
        error = (await response.json())["error"]
        assert error.get("details", {}).get("error_code", error.get("code")) == "invalid_json"
    assert not upstream.seen


async def test_equal_keys_of_different_objects_are_accepted(client: Client, upstream: FakeUpstream) -> None:
    schema = {"type": "object", "properties": {"type": {"type": "string"}}}
    tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
    text = {"type": "text", "text": 'He said: "a":1, {"a":2}'}
    response, _ = await client.chat(model="chat", messages=[{"role": "user", "content": [text, text]}], tools=[tool])
    assert response.status == 200
    assert json.loads(upstream.seen[0].body)["tools"] == [tool]

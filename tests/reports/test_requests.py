"""Requests as clients and proxies send them: addresses, headers, bodies, uploads."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import aiohttp
import pytest

from gateway.people.grants import claim_values
from gateway.testing import FakeUpstream
from tests.api.conftest import Client

BODY = json.dumps({"model": "m1", "messages": [{"role": "user", "content": "Hi"}]}).encode()


async def ask(client: Client, path: str = "/v1/chat/completions", body: bytes = BODY) -> tuple[int, str]:
    """Status and message of the answer to a POST."""
    async with client.request("POST", path, data=body) as response:
        answer = await response.json()
        return response.status, answer.get("error", {}).get("message", "")


async def exchange(client: Client, body: bytes) -> tuple[int, str, dict[str, object]]:
    """Status, `x-gateway-dropped-params` and document of the answer to a chat."""
    async with client.request("POST", "/v1/chat/completions", data=body) as response:
        return response.status, response.headers.get("x-gateway-dropped-params", ""), await response.json()


async def raw(client: Client, head: str, body: bytes = BODY) -> str:
    """The status line of the answer to these bytes; `KEY` in the head is the client's key."""
    host, port = client.base_url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    lines = head.replace("KEY", client.headers["Authorization"].removeprefix("Bearer "))
    writer.write(f"{lines}\r\nContent-Length: {len(body)}\r\nContent-Type: application/json\r\n\r\n".encode() + body)
    status = (await reader.readline()).decode()
    while status.startswith("HTTP/1.1 100"):
        await reader.readline()
        status = (await reader.readline()).decode()
    writer.close()
    return status.strip()


POST = "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"


@pytest.mark.parametrize("path", ["/v1//chat/completions", "//v1/chat/completions", "/v1//chat//completions/"])
async def test_base_url_with_a_slash_at_its_end_works(client: Client, path: str) -> None:
    """https://github.com/BerriAI/litellm/issues/8350"""
    assert await ask(client, path) == (200, "")


async def test_doubled_slashes_lead_to_records_of_models_too(client: Client) -> None:
    """https://github.com/librefang/librefang/issues/3498"""
    async with client.request("GET", "/v1//models/m1") as response:
        assert (response.status, (await response.json())["id"]) == (200, "m1")


async def test_base_url_without_v1_is_served(client: Client) -> None:
    """https://github.com/dbeaver/dbeaver/issues/42156"""
    assert await ask(client, "/chat/completions") == (200, "")
    status, message = await ask(client, "/completions/chat")
    assert (status, message) == (
        404,
        "Unknown request URL: POST /completions/chat. The base URL of this API ends in /v1.",
    )


async def test_base_url_with_v1_twice_is_told_so(client: Client) -> None:
    """https://github.com/nbramia/LifeOS/pull/708"""
    status, message = await ask(client, "/v1/v1/chat/completions")
    assert (status, message) == (
        404,
        "Unknown request URL: POST /v1/v1/chat/completions. The base URL has /v1 twice.",
    )


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        (rb"cut \ud83d", "cut \ufffd"),
        (rb"cut \ud83d and more text after it", "cut \ufffd and more text after it"),
        (rb"\ude00 at the start", "\ufffd at the start"),
        (rb"\uD83D\ud83d\ude00\uDE00", "\ufffd\U0001f600\ufffd"),
        (rb"\\\ud83d\n\ud83d", "\\\ufffd\n\ufffd"),
    ],
)
async def test_half_of_a_character_in_a_request_is_replaced_and_named(
    client: Client, upstream: FakeUpstream, text: bytes, sent: str
) -> None:
    """https://github.com/anthropics/claude-code/issues/16294"""
    body = b'{"model":"m1","messages":[{"role":"user","content":"%b"}]}' % text
    assert (await exchange(client, body))[:2] == (200, "lone_surrogates")
    assert upstream.seen[-1].json["messages"][0]["content"] == sent


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/messages", rb'{"model":"m1","max_tokens":9,"messages":[{"role":"user","content":"a\ud83d"}]}'),
        ("/v1/responses", rb'{"model":"m1","input":"a\ud83d"}'),
        ("/v1beta/models/m1:generateContent", rb'{"contents":[{"parts":[{"text":"a\ud83d"}]}]}'),
    ],
)
async def test_half_of_a_character_is_replaced_in_every_dialect(
    client: Client, upstream: FakeUpstream, path: str, body: bytes
) -> None:
    async with client.request("POST", path, data=body) as response:
        assert (response.status, response.headers["x-gateway-dropped-params"]) == (200, "lone_surrogates")
    assert "a\ufffd" in json.dumps(upstream.seen[-1].json, ensure_ascii=False)


@pytest.mark.parametrize("field", ["model", "user", "prompt_cache_key", "metadata"])
async def test_half_of_a_character_in_a_name_is_refused(client: Client, field: str) -> None:
    """Two names that differ in their halves would become one."""
    value = rb'{"team": "a\ud83d"}' if field == "metadata" else rb'"a\ud83d"'
    model = b"" if field == "model" else b'"model":"m1",'
    body = b'{%b"%b":%b,"messages":[{"role":"user","content":"x"}]}' % (model, field.encode(), value)
    status, _, answer = await exchange(client, body)
    error: Any = answer["error"]
    assert (status, error["code"], error["param"]) == (400, "invalid_value", field)


async def test_keys_that_differ_in_a_half_only_are_one_key_twice(client: Client) -> None:
    body = rb'{"model":"m1","messages":[{"role":"user","content":"x"}],"\ud83d":1,"\ud83e":2}'
    status, message = await ask(client, body=body)
    assert status == 400 and "more than once" in message


async def test_half_of_a_character_in_a_large_request_is_replaced(client: Client, upstream: FakeUpstream) -> None:
    filling = b"x" * 300_000
    body = rb'{"model":"m1","messages":[{"role":"user","content":"\ud83d%b\ude00"}]}' % filling
    assert (await exchange(client, body))[:2] == (200, "lone_surrogates")
    text = upstream.seen[-1].json["messages"][0]["content"]
    assert (text[0], text[-1], len(text)) == ("\ufffd", "\ufffd", 300_002)


@pytest.mark.parametrize(
    ("body", "place"),
    [
        (b'{"model": "m1" "user": "u"}', "Expecting ',' delimiter (line 1, column 16)"),
        ('{"model": "\u00e9",\n  "messages": [1,2\n}'.encode(), "Expecting ',' delimiter (line 3, column 1)"),
        (b'{"model":\r\n nul}', "Expecting value (line 2, column 2)"),
        (b'{"model": "m1"', "Expecting ',' delimiter (line 1, column 15)"),
        (b'{"model": "m1"} x', "Extra data (line 1, column 17)"),
    ],
)
async def test_body_that_is_no_json_is_told_the_line_and_the_column(client: Client, body: bytes, place: str) -> None:
    assert await ask(client, body=body) == (400, f"The request body is not valid JSON: {place}.")


@pytest.mark.parametrize("text", [rb"whole \ud83d\ude00", rb"a path C:\\ud83d", rb"\\\\ud83d"])
async def test_whole_characters_and_escaped_backslashes_pass(
    client: Client, upstream: FakeUpstream, text: bytes
) -> None:
    """The other side of the case before."""
    assert await ask(client, body=b'{"model":"m1","messages":[{"role":"user","content":"%b"}]}' % text) == (200, "")


@pytest.mark.parametrize(
    "head",
    [
        f"{POST}authorization: bearer KEY",
        f"{POST}Authorization: Bearer   KEY  ",
        f"{POST}api-key: KEY",
        f"{POST}Authorization: Bearer KEY\r\nExpect: 100-continue",
        f"{POST}Authorization: Bearer KEY\r\nX-Title: caf\u00e9 \u4f60\u597d",
        f"{POST}Authorization: Bearer KEY\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMA",
        "POST http://x/v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer KEY",
        "POST /v1/chat/completions?api-version=2024-02-01 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer KEY",
        "POST /v1/chat/completions HTTP/1.0\r\nHost: x\r\nAuthorization: Bearer KEY",
    ],
    ids=["lower case", "spaces", "azure", "expect", "header text", "h2c", "absolute", "azure version", "http 1.0"],
)
async def test_heads_of_odd_clients_and_proxies_are_served(client: Client, head: str) -> None:
    """https://github.com/open-webui/open-webui/issues/16749, of the kind: what stands between client and gateway."""
    assert (await raw(client, head)).split(" ", 1)[1] == "200 OK"


@pytest.mark.parametrize("key", ['"KEY"', "Bearer KEY", "KEY KEY"])
async def test_key_with_more_around_it_is_no_key(client: Client, key: str) -> None:
    """https://github.com/sigoden/aichat/issues/767, of the kind: settings pasted with too much around them."""
    assert (await raw(client, f"{POST}Authorization: Bearer {key}")).split(" ")[1] == "401"


@pytest.mark.parametrize(
    ("filename", "media_type", "sent"),
    [
        ("blob", "audio/webm;codecs=opus", "blob.webm"),
        ("blob", "audio/mpeg", "blob.mp3"),
        ("rec.weba", "audio/webm", None),
    ],
)
async def test_recording_of_a_browser_gets_the_extension_that_upstreams_go_by(
    client: Client, upstream: FakeUpstream, filename: str, media_type: str, sent: str | None
) -> None:
    """https://github.com/laravel/ai/pull/316"""
    form = aiohttp.FormData({"model": "listener"})
    form.add_field("file", b"\x1aE\xdf\xa3" + bytes(60), filename=filename, content_type=media_type)
    headers = {"Authorization": client.headers["Authorization"]}
    async with client.request("POST", "/v1/audio/transcriptions", data=form, headers=headers) as response:
        assert response.status == 200, await response.text()
    name = upstream.seen[-1].body.split(b'filename="', 1)[1].split(b'"', 1)[0].decode()
    assert name == sent if sent else name.endswith(".webm")


@pytest.mark.parametrize("claim", ["staff", ["staff"], ["staff", "other", 7, None]])
def test_group_that_comes_as_a_text_counts_as_a_list_of_one(claim: object) -> None:
    """https://github.com/homarr-labs/homarr/issues/5716"""
    assert "staff" in claim_values({"groups": claim}, "groups")
    assert "staff" in claim_values({"realm_access": {"roles": claim}}, "realm_access.roles")

"""Lone surrogates, NUL, U+FFFF and their like in every text of a call: it is served or refused, and never fails.

The upstream gives a right answer to whatever it gets, so that 502 and 503 are failures of the gateway, too.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from yarl import URL

from gateway.accounts.accounts import Accounts
from gateway.config.settings import Settings
from gateway.ledger import Ledger
from gateway.testing import FakeUpstream
from tests.api.conftest import Client, settled
from tests.api.rich_requests import REQUESTS, rich_settings
from tests.hostile.raw import connection
from tests.reports.endpoints import BODIES, CHAT, TRANSCRIPTIONS, wav
from tests.strange_texts import LONE, MARKS, RAW, STRANGE, places, with_text

PLAIN = json.dumps({"model": "chat-openai", **BODIES[CHAT]}).encode()
#: Each place has two of them in the slow run, in turn. In every run each place has a lone surrogate, and each text has
#: some places.
#: Bytes that are no UTF-8 spoil the whole body, in whatever place.
IN_TURN = [
    STRANGE[name]
    for name in (
        "surrogates in the wrong order", "NUL", "U+FFFF", "marks of direction", "replacement character",
        "spaces of Unicode",
    )
]  # fmt: skip
#: Headers with texts of a caller.
HEADERS = (
    "Idempotency-Key", "X-Gateway-Tags", "X-Gateway-Session", "X-Session-Id", "X-Client-Request-Id", "User-Agent",
    "OpenAI-Organization", "OpenAI-Project", "X-Stainless-Lang", "X-Stainless-Package-Version", "Anthropic-Beta",
    "Anthropic-Version", "OpenAI-Beta", "Traceparent", "Tracestate", "Content-Type", "Content-Encoding", "Accept",
    "X-Forwarded-For", "Origin", "X-Api-Key", "Cookie",
)  # fmt: skip
#: Paths with a text of a caller.
PATHS = (
    "/v1/models/{}", "/v1/responses/{}", "/v1/usage/{}", "/v1/{}", "/{}", "/v1beta/models/{}", "/v1/models/m1?{}=1",
    "/v1/usage?from={}", "/v1/usage?{}=1", "/v1/models?limit={}", "/v1beta/models?pageToken={}",
    "/v1/balance?{}", "/v1/messages/{}", "/v1beta/models?key={}",
)  # fmt: skip
POSTED = (
    "/v1beta/models/{}:generateContent", "/v1beta/models/chat-openai:{}", "/openai/deployments/{}/chat/completions",
    "/v1beta/models/chat-openai:generateContent?{}=1", "/v1/chat/completions?{}", "/v1/messages?beta={}",
)  # fmt: skip
FIELDS = {
    "model": "transcription-openai", "language": "en", "prompt": "Herons.", "response_format": "json",
    "temperature": "0", "timestamp_granularities[]": "word", "include[]": "logprobs", "custom_field": "x",
}  # fmt: skip

pytestmark = [pytest.mark.usefixtures("plain_labels"), pytest.mark.no_standard]


@pytest.fixture
def settings(tmp_path: Path, upstream: FakeUpstream) -> Settings:
    """Models of each endpoint and dialect, and tags."""
    return rich_settings(upstream, tmp_path)


async def ask_all(client: Client, path: str, requests: Iterable[tuple[Any, bytes]]) -> None:
    """Send bodies, each named by its place; none of the answers is a failure, and errors are JSON."""
    async with aiohttp.ClientSession(headers=client.headers) as session:
        for place, body in requests:
            async with session.post(client.base_url + path, data=io.BytesIO(body)) as response:
                content = await response.read()
                assert response.status < 500, (place, body[:1000], content)
                if response.status != 200:
                    json.loads(content)


async def assert_served(client: Client, accounts: Accounts, ledger: Ledger) -> None:
    """A plain call is answered, and the money of all calls is right."""
    async with client.request("POST", CHAT, data=PLAIN) as response:
        assert response.status == 200
    await settled(accounts)
    assert (await ledger.audit()).mismatches == []


@pytest.mark.parametrize("name", REQUESTS)
async def test_rich_request_is_served(client: Client, name: str) -> None:
    path, document = REQUESTS[name]
    async with client.request("POST", path, json=document) as response:
        assert response.status == 200, await response.text()


@pytest.mark.parametrize("name", REQUESTS)
async def test_strange_text_in_any_place_is_served_or_refused(
    client: Client, accounts: Accounts, ledger: Ledger, name: str
) -> None:
    """Each place has a lone surrogate and one other text."""
    path, document = REQUESTS[name]
    first, *others = STRANGE.values()
    requests = [
        (place, with_text(document, place, text))
        for number, place in enumerate(places(document))
        for text in (first, others[number % len(others)])
    ]
    await ask_all(client, path, requests)
    await assert_served(client, accounts, ledger)


@pytest.mark.slow
@pytest.mark.parametrize("name", REQUESTS)
async def test_strange_texts_in_each_place_are_served_or_refused(
    client: Client, accounts: Accounts, ledger: Ledger, name: str
) -> None:
    path, document = REQUESTS[name]
    requests = [
        (place, with_text(document, place, text))
        for number, place in enumerate(places(document))
        for text in IN_TURN[number % 3 :: 3]
    ]
    await ask_all(client, path, requests)
    await assert_served(client, accounts, ledger)


@pytest.mark.slow
@pytest.mark.parametrize("name", REQUESTS)
async def test_mebibyte_of_combining_marks_is_served_or_refused(
    client: Client, accounts: Accounts, ledger: Ledger, name: str
) -> None:
    """In every fifth place, and in all values of the top level."""
    path, document = REQUESTS[name]
    all_places = list(places(document))
    chosen = dict.fromkeys([*all_places[::5], *(place for place in all_places if len(place) == 1)])
    await ask_all(client, path, ((place, with_text(document, place, MARKS)) for place in chosen))
    await assert_served(client, accounts, ledger)


@pytest.mark.parametrize("name", ["user", "safety_identifier", "prompt_cache_key", "metadata"])
@pytest.mark.parametrize("path", [CHAT, "/v1/responses"])
@pytest.mark.parametrize("text", LONE)
async def test_name_with_a_lone_surrogate_is_refused(client: Client, path: str, name: str, text: str) -> None:
    """Two names that differ in it only would become equal."""
    given = BODIES[CHAT] if path == CHAT else {"input": "Hi"}
    document = {"model": "chat-openai", **given, name: {"team": "x"} if name == "metadata" else "x"}
    place = (name, "team") if name == "metadata" else (name,)
    async with client.request("POST", path, data=with_text(document, place, STRANGE[text])) as response:
        error = (await response.json())["error"]
        assert (response.status, error["param"]) == (400, name)


@pytest.mark.parametrize("text", RAW)
async def test_strange_bytes_in_any_header_are_served_or_refused(
    client: Client, bearer: dict[str, str], accounts: Accounts, ledger: Ledger, text: str
) -> None:
    for name in HEADERS:
        given = b"team=" + RAW[text] if name == "X-Gateway-Tags" else RAW[text]
        sent = {name: value.encode() for name, value in bearer.items()} | {name: given}
        sent |= {"Content-Length": b"%d" % len(PLAIN), "Host": b"x"}
        lines = b"".join(name.encode() + b": " + value + b"\r\n" for name, value in sent.items())
        async with connection(address_of(client)) as raw:
            await raw.send(b"POST /v1/chat/completions HTTP/1.1\r\n" + lines + b"\r\n" + PLAIN)
            answered = await raw.read()
            assert answered is not None and answered.status < 500, name
    await assert_served(client, accounts, ledger)


@pytest.mark.parametrize(
    "text", ["%FF", "%00", "a%ED%A0%BD", "%EF%BF%BF", "%E2%80%AE", "%", "%u0000", "\u20ac", "%0D%0A"]
)
async def test_strange_bytes_in_any_address_are_served_or_refused(
    client: Client, accounts: Accounts, ledger: Ledger, text: str
) -> None:
    async with aiohttp.ClientSession(headers=client.headers) as session:
        for method, paths, body in (("GET", PATHS, None), ("POST", POSTED, PLAIN)):
            for path in paths:
                url = URL(client.base_url + path.format(text), encoded=True)
                async with session.request(method, url, data=body) as response:
                    assert response.status < 500, (path, await response.text())
    await assert_served(client, accounts, ledger)


@pytest.mark.parametrize("model", ["openai", "gemini", "deepgram", "elevenlabs"])
async def test_strange_text_in_any_field_of_a_form_is_served_or_refused(
    client: Client, accounts: Accounts, ledger: Ledger, model: str
) -> None:
    fields = {name: value.encode() for name, value in {**FIELDS, "model": f"transcription-{model}"}.items()}
    forms = {"as it is": form({name: fields[name] for name in ("model", "language", "custom_field")})}
    for kind, text in RAW.items():
        for name in fields:
            forms[f"value of {name}: {kind}"] = form({**fields, name: text})
        forms[f"name: {kind}"] = form({**fields, text.decode("latin-1"): b"x"})
        forms[f"file: {kind}"] = form(fields, file=text)
        forms[f"type: {kind}"] = form(fields, type=text)
    headers = {**client.headers, "Content-Type": "multipart/form-data; boundary=edge"}
    async with aiohttp.ClientSession(headers=headers) as session:
        for name, body in forms.items():
            async with session.post(client.base_url + TRANSCRIPTIONS, data=io.BytesIO(body)) as response:
                assert response.status < 500, (name, await response.text())
                assert response.status == 200 or name != "as it is", await response.text()
    await assert_served(client, accounts, ledger)


def form(fields: Mapping[str, bytes], *, file: bytes = b"a.wav", type: bytes = b"audio/wav") -> bytes:
    """A form with a sound; names of fields are the bytes of Latin-1."""
    head = b'--edge\r\nContent-Disposition: form-data; name="'
    parts = [head + name.encode("latin-1") + b'"\r\n\r\n' + value + b"\r\n" for name, value in fields.items()]
    sound = head + b'file"; filename="' + file + b'"\r\nContent-Type: ' + type + b"\r\n\r\n" + wav(0.1)
    return b"".join([*parts, sound, b"\r\n--edge--\r\n"])


def address_of(client: Client) -> tuple[str, int]:
    """Where the gateway listens."""
    return "127.0.0.1", int(client.base_url.rpartition(":")[2])

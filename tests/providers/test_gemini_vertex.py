"""Vertex: where it is, and the token that google-auth fetches in a thread and renews before it runs out."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from gateway import Secret, Upstream
from gateway.config.loader import parse
from gateway.config.provider_settings import OWN_PROVIDER_KEYS
from gateway.errors import GatewayError, UpstreamAuthError, UpstreamTimeout
from gateway.testing import FakeUpstream, Reply
from gateway_providers._shared import google_credentials
from gateway_providers._shared.google_credentials import EARLY, Token, VertexToken, google_token_source
from gateway_providers.gemini import GeminiProvider
from gateway_providers.gemini.address import Address
from tests.polling import until
from tests.providers.gemini_upstream import HELLO, TARGET, chat_request, google_error
from tests.providers.google_tokens import service_account, token_server

COMMON = {"X-Common": "1"}


@pytest.mark.parametrize(
    ("location", "host"),
    [
        ("europe-west4", "europe-west4-aiplatform.googleapis.com"),
        ("global", "aiplatform.googleapis.com"),
        ("eu", "aiplatform.eu.rep.googleapis.com"),
    ],
)
def test_address_follows_project_and_location(location: str, host: str) -> None:
    address = Address(project="my-project", location=location)
    root = f"https://{host}/v1/projects/my-project/locations/{location}/publishers/google"
    assert address.method("gemini-2.5-pro", "generateContent") == f"{root}/models/gemini-2.5-pro:generateContent"
    assert address.hidden == (host, "my-project")


def test_address_of_the_developer_api_is_the_default() -> None:
    url = Address().method("gemini-2.5-pro", "generateContent")
    assert url == "https://generativelanguage.googleapis.com/v1beta/models/gemini-2.5-pro:generateContent"


def test_model_name_cannot_change_the_path_of_the_url() -> None:
    assert Address().method("x?key=1#y z", "v").endswith("/v1beta/models/x%3Fkey%3D1%23y%20z:v")


# Tokens ------------------------------------------------------------------------------------------------------------


class Source:
    """Fetches numbered tokens; may be told to fail, or to take its time."""

    def __init__(self, life: float) -> None:
        self.life = life
        self.threads: list[int] = []
        self.error: Exception | None = None
        self.gate = threading.Event()
        self.gate.set()

    def __call__(self) -> Token:
        self.threads.append(threading.get_ident())
        assert self.gate.wait(60)
        if self.error is not None:
            raise self.error
        return Token(f"ya29.token-{len(self.threads)}", time.time() + self.life)


async def bearer(token: VertexToken) -> str:
    headers = await token.headers()
    assert headers["X-Common"] == "1"
    return headers["Authorization"].removeprefix("Bearer ya29.token-")


async def test_token_is_fetched_once_in_a_thread_and_shared() -> None:
    source = Source(3600.0)
    token = VertexToken(source, COMMON)
    assert await asyncio.gather(*(bearer(token) for _ in range(20))) == ["1"] * 20
    assert len(source.threads) == 1 and source.threads[0] != threading.get_ident()
    assert "ya29" not in f"{token!r} {source()!r}" and token.hidden == ("ya29.token-1",)


async def test_token_is_renewed_before_it_expires_while_requests_continue() -> None:
    source = Source(EARLY - 60)  # good, but not for long
    token = VertexToken(source, COMMON)
    assert await bearer(token) == "1"
    token._next_try = 0.0  # the pause between attempts is over
    source.life = 3600.0
    source.gate.clear()
    assert await bearer(token) == "1", "a request waited for a renewal it did not need"
    source.gate.set()
    await until(lambda: len(token.hidden) == 2)
    assert await bearer(token) == "2" and len(source.threads) == 2
    assert token.hidden == ("ya29.token-2", "ya29.token-1")


async def test_failed_renewal_has_no_effect_while_the_old_token_is_valid() -> None:
    source = Source(EARLY - 60)
    token = VertexToken(source, COMMON)
    await token.headers()
    token._next_try = 0.0
    source.error = OSError("down")
    for _ in range(5):
        assert await bearer(token) == "1"
    failed = token._renewal
    assert failed is not None
    await until(failed.done)
    assert await bearer(token) == "1" and token._renewal is failed, "tried again at once"


async def test_missing_token_is_a_retryable_error_and_is_fetched_again() -> None:
    source = Source(3600.0)
    source.error = RuntimeError("invalid_grant: ya29.secret of me@my-project.iam")
    token = VertexToken(source, COMMON)
    with pytest.raises(UpstreamAuthError) as caught:
        await token.headers()
    assert caught.value.retryable and "ya29" not in f"{caught.value} {caught.value.detail}"
    source.error = None
    assert await bearer(token) == "2"


async def test_token_request_without_an_answer_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(google_credentials, "PATIENCE", 0.05)
    source = Source(3600.0)
    source.gate.clear()
    token = VertexToken(source, COMMON)
    with pytest.raises(UpstreamTimeout):
        await token.headers()
    source.gate.set()
    assert await bearer(token) == "1" and len(source.threads) == 1


async def test_cancelled_caller_does_not_end_the_renewal_for_others() -> None:
    source = Source(3600.0)
    source.gate.clear()
    token = VertexToken(source, COMMON)
    first, second = (asyncio.ensure_future(bearer(token)) for _ in range(2))
    await until(lambda: bool(source.threads))
    first.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await first
    source.gate.set()
    assert await second == "1" and len(source.threads) == 1


async def test_closing_ends_a_renewal_under_way() -> None:
    source = Source(3600.0)
    source.gate.clear()
    token = VertexToken(source, COMMON)
    waiting = asyncio.ensure_future(token.headers())
    await until(lambda: bool(source.threads))
    await token.close()
    with pytest.raises(UpstreamAuthError):
        await waiting
    source.gate.set()


# With google-auth --------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def vertex(fake: FakeUpstream, key: Secret | None) -> AsyncIterator[GeminiProvider]:
    link = Upstream()
    options = GeminiProvider.Options(
        base_url=f"{fake.url}/v1", project="my-project", location="europe-west4", service_account=key
    )
    subject = GeminiProvider(options, link)
    await subject.start()
    try:
        yield subject
    finally:
        await subject.close()
        await link.close()


async def test_service_account_signs_for_a_token_that_is_sent_with_the_request(tmp_path: Path) -> None:
    asked: list[dict[str, str]] = []

    def answer(form: dict[str, str]) -> web.Response:
        asked.append(form)
        return web.json_response({"access_token": "ya29.from-google", "expires_in": 3599, "token_type": "Bearer"})

    async with token_server(answer) as uri, FakeUpstream() as fake:
        fake.enqueue(Reply.json(HELLO), Reply.json(HELLO))
        async with vertex(fake, service_account(tmp_path, uri)) as subject:
            await subject.chat(chat_request(), TARGET)
            await subject.chat(chat_request(), TARGET)
            assert subject._hidden[-1] == "ya29.from-google"
    assert len(asked) == 1 and asked[0]["grant_type"] == "urn:ietf:params:oauth:grant-type:jwt-bearer"
    for seen in fake.seen:
        assert seen.headers["authorization"] == "Bearer ya29.from-google" and "x-goog-api-key" not in seen.headers
        assert seen.path == (
            "/v1/projects/my-project/locations/europe-west4/publishers/google/models/gemini-2.5-flash:generateContent"
        )


async def test_token_and_project_never_appear_in_an_error(tmp_path: Path) -> None:
    def answer(form: dict[str, str]) -> web.Response:
        return web.json_response({"access_token": "ya29.from-google", "expires_in": 3599, "token_type": "Bearer"})

    async with (
        token_server(answer) as uri,
        FakeUpstream() as fake,
        vertex(fake, service_account(tmp_path, uri)) as subject,
    ):
        for status in (400, 403, 500):
            words = f"ya29.from-google may not use projects/my-project/x at {fake.url}"
            fake.enqueue(Reply.json(google_error(status, words, words), status=status))
            with pytest.raises(GatewayError) as caught:
                await subject.chat(chat_request(), TARGET)
            shown = f"{caught.value} {caught.value.detail} {caught.value.body()!r}"
            assert not [text for text in ("ya29", "my-project", "127.0.0.1") if text in shown], shown


async def test_refused_service_account_is_an_auth_error_without_googles_message(tmp_path: Path) -> None:
    def answer(form: dict[str, str]) -> web.Response:
        return web.json_response({"error": "invalid_grant", "error_description": form["assertion"]}, status=400)

    async with token_server(answer) as uri, FakeUpstream() as fake:
        async with vertex(fake, service_account(tmp_path, uri)) as subject:
            with pytest.raises(UpstreamAuthError) as caught:
                await subject.chat(chat_request(), TARGET)
        assert not fake.seen and caught.value.detail == "no token: RefreshError"


@pytest.mark.parametrize("text", ["", "not json", "[]", "{}", '{"type":"service_account","private_key":"PRIVATE"}'])
async def test_invalid_service_account_key_prevents_the_start_and_is_not_shown(tmp_path: Path, text: str) -> None:
    path = tmp_path / "key.json"
    path.write_text(text or " ")
    with pytest.raises(ValueError, match=r"credentials for Vertex|is empty") as caught:
        google_token_source(Secret("file", str(path)))
    assert "PRIVATE" not in str(caught.value)


async def test_missing_extra_is_named_at_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "google.auth", None)
    with pytest.raises(ValueError, match=r"model-gateway\[vertex\]"):
        google_token_source(None)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({}, "an api_key is needed"),
        ({"project": "p", "location": "l", "api_key": Secret("literal", "k")}, "api_key is of the developer API"),
        ({"service_account": Secret("literal", "{}")}, "service_account is of Vertex"),
    ],
)
async def test_credential_of_the_wrong_service_is_refused(options: dict[str, Any], why: str) -> None:
    link = Upstream()
    with pytest.raises(ValueError, match=why):
        await GeminiProvider(GeminiProvider.Options(**options), link).start()
    await link.close()


def test_every_option_can_be_set_in_a_configuration(tmp_path: Path) -> None:
    """The engine keeps some keys of a provider's table for itself; none of ours may be among them."""
    table: dict[str, Any] = {
        "base_url": "https://proxy.example/v1",
        "headers": {"X-Title": "t"},
        "project": "my-project",
        "location": "global",
        "service_account": "file:key.json",
        "auth": "google",
        "safety": {"HARM_CATEGORY_HARASSMENT": "OFF"},
        "voices": {"mine": "Kore"},
        "task_type": "CLUSTERING",
        "max_inline_audio": 1000,
        "models": {"gemini-9*": {"thinking": "level", "levels": ["LOW", "XHIGH"], "signatures": True}},
    }
    assert {*table, "api_key"} == set(GeminiProvider.Options.__struct_fields__)
    assert not OWN_PROVIDER_KEYS & set(GeminiProvider.Options.__struct_fields__)
    settings = parse(
        {"store": {"data_dir": str(tmp_path)}, "providers": {"vertex": {"plugin": "gemini", **table}}}, demo=True
    )
    options = settings.provider_options("vertex", GeminiProvider.Options)
    assert options.project == "my-project" and options.service_account is not None
    assert options.models["gemini-9*"].levels == ("LOW", "XHIGH")

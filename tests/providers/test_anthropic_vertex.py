"""Claude on Vertex AI: where a request goes, what it has, its token, and what is refused before it is sent."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web
from msgspec import Raw

from gateway import ChatRequest, Secret, Target, Upstream
from gateway.config.loader import parse
from gateway.config.provider_settings import OWN_PROVIDER_KEYS
from gateway.errors import (
    GatewayError,
    UpstreamAuthError,
    UpstreamError,
    UpstreamOverloaded,
    UpstreamRateLimited,
    UpstreamRejected,
    UpstreamTruncated,
)
from gateway.schemas.messages_request import decode_messages
from gateway.testing import FakeUpstream, Reply, check_provider
from gateway_providers._shared import google_credentials
from gateway_providers.anthropic import AnthropicProvider
from gateway_providers.anthropic.models import ModelFlags, traits_of
from gateway_providers.anthropic.system_turns import without_system_turns
from tests.providers.endings import ended
from tests.providers.gemini_upstream import google_error
from tests.providers.google_tokens import service_account, token_server
from tests.providers.messages_dialect import asking, frames, streamed
from tests.providers.vertex_dialect import MODEL, MODELS, WHOLE, vertex_chat

TARGET = Target("vertex", MODEL, "house-claude")
TOKEN = {"access_token": "ya29.from-google", "expires_in": 3599, "token_type": "Bearer"}


@contextlib.asynccontextmanager
async def vertex(fake: FakeUpstream, **options: Any) -> AsyncIterator[AnthropicProvider]:
    """A started provider that talks to `fake`, by default without credentials."""
    link = Upstream()
    given = {"base_url": f"{fake.url}/v1", "project": "my-project", "location": "europe-west4", "auth": "none"}
    subject = AnthropicProvider(AnthropicProvider.Options(**{**given, **options}), link)
    await subject.start()
    try:
        yield subject
    finally:
        await subject.close()
        await link.close()


def native(**fields: Any) -> ChatRequest:
    """A Messages request."""
    body = {"model": "m", "max_tokens": 64, "messages": [{"role": "user", "content": "hi"}], **fields}
    return decode_messages(msgspec.json.encode(body), version="2023-06-01", betas=())


# The address ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("location", "host"),
    [
        ("europe-west4", "europe-west4-aiplatform.googleapis.com"),
        ("global", "aiplatform.googleapis.com"),
        ("us", "aiplatform.us.rep.googleapis.com"),
        ("eu", "aiplatform.eu.rep.googleapis.com"),
    ],
)
def test_address_follows_project_and_location(location: str, host: str) -> None:
    subject = AnthropicProvider(AnthropicProvider.Options(project="my-project", location=location), Upstream())
    root = f"https://{host}/v1/projects/my-project/locations/{location}/publishers/anthropic/models"
    assert subject._service.url(MODEL, stream=False) == f"{root}/{MODEL}:rawPredict"
    assert subject._service.url(MODEL, stream=True) == f"{root}/{MODEL}:streamRawPredict"
    assert subject.hidden == (host, "my-project")


def test_model_name_cannot_change_the_path_of_the_url() -> None:
    subject = AnthropicProvider(AnthropicProvider.Options(project="p", location="global"), Upstream())
    url = subject._service.url("../x:predict?key=1#y;z", stream=False)
    assert url.endswith("/publishers/anthropic/models/..%2Fx%3Apredict%3Fkey%3D1%23y%3Bz:rawPredict")


@pytest.mark.parametrize(
    "name", ["claude-3-5-sonnet-v2@20241022", "claude-opus-4@20250514", "claude-haiku-4-5@20251001"]
)
def test_models_names_have_the_traits_of_the_same_models_at_anthropic(name: str) -> None:
    assert traits_of(name, {}) == traits_of(name.replace("-v2", "").replace("@", "-"), {})
    assert traits_of(name, {}).sampling


# Requests ------------------------------------------------------------------------------------------------------------


async def test_translated_request_has_vertexs_frame() -> None:
    async with FakeUpstream(vertex_chat) as fake, vertex(fake) as subject:
        answer = await subject.chat(asking(user="u1"), TARGET)
        assert answer.choices[0].message.content == "hi "
        chunks = [chunk async for chunk in subject.stream_chat(asking(), TARGET)]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "hi "
    hi = [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]
    frame = {"anthropic_version": "vertex-2023-10-16", "max_tokens": 4096, "messages": hi}
    whole, stream = fake.seen
    assert whole.json == {**frame, "metadata": {"user_id": "u1"}}
    assert stream.json == {**frame, "stream": True}
    assert (whole.path, stream.path) == (f"{MODELS}/{WHOLE}", f"{MODELS}/{MODEL}:streamRawPredict")
    for seen in fake.seen:
        assert not {"anthropic-version", "anthropic-beta", "x-api-key", "authorization"} & seen.headers.keys()


async def test_version_in_the_body_is_a_flag_of_the_model() -> None:
    models = {"claude-*": ModelFlags(version="2026-10-21")}
    async with FakeUpstream(vertex_chat) as fake, vertex(fake, models=models) as subject:
        await subject.chat(asking(), TARGET)
    assert fake.seen[0].json["anthropic_version"] == "2026-10-21"


async def test_flags_of_the_operator_are_sent_with_every_request() -> None:
    async with FakeUpstream(vertex_chat) as fake, vertex(fake, headers={"Anthropic-Beta": "a,b"}) as subject:
        await subject.chat(asking(), TARGET)
        await subject.chat(native(context_management={"edits": []}), TARGET)
    assert fake.seen[0].headers["anthropic-beta"] == "a,b"
    assert fake.seen[1].headers["anthropic-beta"] == "a,b,context-management-2025-06-27"


# System turns --------------------------------------------------------------------------------------------------------


def test_system_turn_becomes_a_part_of_the_users_behind_results_of_tools() -> None:
    turns = Raw(
        b'[{"role":"user","content":"a"},{"role":"system","content":"one"},'
        b'{"role":"assistant","content":[{"type":"tool_use"}]},{"role":"system","content":[{"type":"text"}]},'
        b'{"role":"system","content":""},{"role":"user","content":[{"type": "tool_result"}]},'
        b'{"role":"assistant","content":"b"},{"role":"system","content":"two"}]'
    )
    assert bytes(without_system_turns(turns)) == (
        b'[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"one"}]},'
        b'{"role":"assistant","content":[{"type":"tool_use"}]},'
        b'{"role":"user","content":[{"type": "tool_result"},{"type":"text"}]},'
        b'{"role":"assistant","content":"b"},{"role":"user","content":"two"}]'
    )


def test_messages_without_a_system_turn_stay_byte_for_byte() -> None:
    turns = Raw(b'[ {"role": "user", "content": "a \\"role\\": \\"system\\" b"} ]')
    assert without_system_turns(turns) is turns


# Errors --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, UpstreamRejected),
        (401, UpstreamAuthError),
        (403, UpstreamAuthError),
        (404, UpstreamError),
        (429, UpstreamRateLimited),
        (500, UpstreamError),
        (529, UpstreamOverloaded),
    ],
)
@pytest.mark.parametrize("form", ["google", "array", "anthropic"])
async def test_error_of_either_form_is_typed_and_shows_no_secret(
    tmp_path: Path, status: int, kind: type[GatewayError], form: str
) -> None:
    async with token_server(lambda form: web.json_response(TOKEN)) as uri, FakeUpstream(vertex_chat) as fake:
        words = f"ya29.from-google may not use projects/my-project/x at {fake.url}, PRIVATE"
        body: Any = google_error(status, "SOME_STATUS", words)
        if form == "anthropic":
            body = {"type": "error", "error": {"type": "some_error", "message": words}}
        fake.enqueue(*2 * [Reply.json([body] if form == "array" else body, status=status)])
        key = service_account(tmp_path, uri)
        async with vertex(fake, auth="google", service_account=key) as subject:
            for request in (asking(), native()):
                with pytest.raises(kind) as caught:
                    await subject.chat(request, TARGET)
                error = caught.value
                shown = f"{error} {error.detail} {error.body()!r}"
                assert not [text for text in ("ya29", "my-project", "127.0.0.1") if text in shown], shown
                assert ("PRIVATE" in shown) == (status == 400)


@pytest.mark.parametrize(("delay", "wait"), [("17s", 17.0), ("0.5s", 0.5), ("", 3.0)])
async def test_pause_is_that_of_the_details_or_else_of_the_header(delay: str, wait: float) -> None:
    async with FakeUpstream(vertex_chat) as fake, vertex(fake) as subject:
        error = google_error(429, "RESOURCE_EXHAUSTED", "Quota exceeded", delay=delay)
        fake.enqueue(*2 * [Reply.json([error], status=429, headers={"Retry-After": "3"})])
        for request in (asking(), native()):
            with pytest.raises(UpstreamRateLimited) as caught:
                await subject.chat(request, TARGET)
            assert caught.value.retry_after == wait


async def test_invalid_credential_that_google_tells_with_status_400_is_the_operators_error() -> None:
    async with FakeUpstream(vertex_chat) as fake, vertex(fake) as subject:
        fake.enqueue(Reply.json(google_error(400, "INVALID_ARGUMENT", reason="ACCOUNT_STATE_INVALID"), status=400))
        with pytest.raises(UpstreamAuthError):
            await subject.chat(asking(), TARGET)


@pytest.mark.parametrize("request_", [asking(), native()], ids=["translated", "native"])
async def test_stream_that_is_cut_or_refused_never_looks_complete(request_: ChatRequest) -> None:
    async with FakeUpstream(vertex_chat) as fake, vertex(fake) as subject:
        fake.enqueue(streamed(*frames("text")[:-1]), streamed(*frames("overloaded")))
        fake.enqueue(Reply.json([google_error(429, "RESOURCE_EXHAUSTED", "Quota exceeded")], status=429))
        for kind in (UpstreamTruncated, UpstreamOverloaded, UpstreamRateLimited):
            with pytest.raises(kind):
                async for _ in subject.stream_chat(request_, TARGET):
                    pass


async def test_events_that_only_vertex_has_are_left_out() -> None:
    own = b'event: vertex_event\ndata: {"type":"vertex_event","usage":{}}\n\n'
    async with FakeUpstream(vertex_chat) as fake, vertex(fake) as subject:
        fake.enqueue(streamed(own, *frames("text")[:-1], own, frames("text")[-1]), streamed(*frames("text")))
        found = [[chunk async for chunk in subject.stream_chat(native(), TARGET)] for _ in range(2)]
    assert found[0] == found[1]


# Tokens --------------------------------------------------------------------------------------------------------------


async def test_token_is_shared_and_renewed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[str] = []

    def answer(form: dict[str, str]) -> web.Response:
        given.append(f"ya29.token-{len(given)}")
        life = 1 if len(given) == 1 else 3599  # the first one is as good as expired
        return web.json_response({**TOKEN, "access_token": given[-1], "expires_in": life})

    async with token_server(answer) as uri, FakeUpstream(vertex_chat) as fake:
        key = service_account(tmp_path, uri)
        async with vertex(fake, auth="google", service_account=key) as subject:
            for request in (asking(), native(), asking()):
                await subject.chat(request, TARGET)
            assert {"ya29.token-0", "ya29.token-1", "my-project"} <= set(subject.hidden)
    sent = [seen.headers["authorization"] for seen in fake.seen]
    assert sent == ["Bearer ya29.token-0", "Bearer ya29.token-1", "Bearer ya29.token-1"]
    assert all("x-api-key" not in seen.headers for seen in fake.seen)


async def test_refused_service_account_is_an_auth_error_and_nothing_is_sent(tmp_path: Path) -> None:
    def refused(form: dict[str, str]) -> web.Response:
        return web.json_response({"error": "invalid_grant", "error_description": form["assertion"]}, status=400)

    async with token_server(refused) as uri, FakeUpstream(vertex_chat) as fake:
        async with vertex(fake, auth="google", service_account=service_account(tmp_path, uri)) as subject:
            with pytest.raises(UpstreamAuthError) as caught:
                await subject.chat(asking(), TARGET)
        assert not fake.seen and caught.value.detail == "no token: RefreshError"


async def test_environments_credentials_serve_without_a_service_account(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def source(key_file: Secret | None) -> Any:
        asked.append(key_file)
        return lambda: google_credentials.Token("ya29.environment", 4e9)

    monkeypatch.setattr(google_credentials, "google_token_source", source)
    async with FakeUpstream(vertex_chat) as fake, vertex(fake, auth=None) as subject:
        await subject.chat(asking(), TARGET)
    assert asked == [None] and fake.seen[0].headers["authorization"] == "Bearer ya29.environment"


# Configurations ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"project": "p"}, "needs both project and location"),
        ({"location": "eu"}, "needs both project and location"),
        ({"project": "p/q", "location": "eu"}, "project must be a name"),
        ({"project": "p", "location": "eu.example/"}, "location must be a name"),
        ({"project": "p", "location": "eu", "api_key": Secret("literal", "k")}, "api_key is of Anthropic's API"),
        ({"project": "p", "location": "eu", "auth": "bearer"}, "auth on Vertex"),
        ({"service_account": Secret("literal", "{}")}, "service_account is of Vertex"),
        ({"auth": "google"}, 'auth "google" is of Vertex'),
        ({"project": "p", "location": "eu", "base_url": "ftp://host"}, "base_url must be"),
    ],
)
def test_configuration_of_two_services_is_refused(options: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        AnthropicProvider(AnthropicProvider.Options(**options), Upstream())


def test_every_option_of_vertex_can_be_set_in_a_configuration(tmp_path: Path) -> None:
    table: dict[str, Any] = {
        "plugin": "anthropic",
        "base_url": "https://proxy.example/v1",
        "project": "my-project",
        "location": "global",
        "service_account": "file:key.json",
        "auth": "google",
    }
    assert not OWN_PROVIDER_KEYS & set(AnthropicProvider.Options.__struct_fields__)
    settings = parse({"store": {"data_dir": str(tmp_path)}, "providers": {"vertex": table}}, demo=True)
    options = settings.provider_options("vertex", AnthropicProvider.Options)
    assert (options.project, options.location, options.auth) == ("my-project", "global", "google")
    assert options.service_account is not None


def test_anthropic_conforms_on_vertex() -> None:
    passed = check_provider(
        AnthropicProvider,
        options={"base_url": "{upstream}/v1", "project": "my-project", "location": "europe-west4", "auth": "none"},
        upstream=FakeUpstream(vertex_chat),
        endings={"length": ended(vertex_chat, "end_turn", "max_tokens")},
    )
    assert {"cut_stream_never_looks_whole", "output_limit_is_sent", "tools_are_sent"} <= set(passed)
    assert set(passed.skipped) == {"refusals_of_the_vendor_become_typed_errors"}

"""What a caller's headers may do: a trace goes on, `OpenAI-Beta` stays in its dialect, the rest is for the log."""

from __future__ import annotations

import asyncio
import contextvars
import json

import pytest
from msgspec import structs

from gateway.config.loader import parse
from gateway.config.settings import Settings
from gateway.config.toml_reader import SettingsError
from gateway.http_client.forwarded_headers import bind, forwarded_headers, trace_headers
from gateway.log import stderr
from gateway.runtime.gateway import Gateway
from gateway.testing import FakeUpstream
from tests.api.conftest import Client
from tests.polling import until

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


async def ask(client: Client, headers: dict[str, str]) -> None:
    document = {"model": "m1", "messages": [{"role": "user", "content": "Hi"}]}
    async with client.request(
        "POST", "/v1/chat/completions", headers={**client.headers, **headers}, json=document
    ) as response:
        assert response.status == 200


async def test_a_trace_context_is_continued(client: Client, upstream: FakeUpstream) -> None:
    await ask(client, {"traceparent": TRACE, "tracestate": "vendor=abc,other=1"})
    assert upstream.seen[0].headers["traceparent"] == TRACE
    assert upstream.seen[0].headers["tracestate"] == "vendor=abc,other=1"


async def test_trace_context_is_not_shared_between_callers(client: Client, upstream: FakeUpstream) -> None:
    await ask(client, {"traceparent": TRACE})
    await ask(client, {})
    assert "traceparent" not in upstream.seen[1].headers


@pytest.mark.parametrize("value", ["nonsense", "00-xyz-b7ad6b7169203331-01", TRACE.upper(), f"{TRACE} x"])
async def test_invalid_trace_context_is_not_forwarded(client: Client, upstream: FakeUpstream, value: str) -> None:
    await ask(client, {"traceparent": value, "tracestate": "vendor=abc"})
    assert not {"traceparent", "tracestate"} & upstream.seen[0].headers.keys()


async def test_openai_beta_reaches_an_upstream_of_its_dialect(client: Client, upstream: FakeUpstream) -> None:
    await ask(client, {"OpenAI-Beta": "assistants=v2"})
    assert upstream.seen[0].headers["openai-beta"] == "assistants=v2"


async def test_no_other_header_of_the_caller_is_forwarded(client: Client, upstream: FakeUpstream) -> None:
    await ask(client, {"OpenAI-Organization": "org-theirs", "X-Anything": "stowaway", "Cookie": "stowaway=1"})
    assert "stowaway" not in str(upstream.seen[0].headers)
    assert "org-theirs" not in str(upstream.seen[0].headers)


async def test_sdk_headers_of_a_caller_are_in_the_access_line(
    client: Client, gateway: Gateway, capfd: pytest.CaptureFixture[str]
) -> None:
    said = {
        "OpenAI-Organization": "org-1",
        "OpenAI-Project": "proj-2",
        "X-Stainless-Lang": "python",
        "X-Stainless-Package-Version": "3.52.0",
        "X-Stainless-Retry-Count": "1",
    }
    await ask(client, said)
    gateway.access_log.flush()
    assert stderr.flush(within=60.0)
    line = json.loads(capfd.readouterr().err.splitlines()[-1])
    assert (line["organization"], line["project"], line["sdk"]) == ("org-1", "proj-2", "python 3.52.0 retry 1")


@pytest.mark.parametrize("stream", [False, True])
async def test_forwarded_headers_of_one_request_are_not_sent_with_the_next(
    client: Client, upstream: FakeUpstream, stream: bool
) -> None:
    """Sent in one piece, the second request begins where the first one ends: in the middle of its task."""
    body = json.dumps({"model": "m1", "messages": [{"role": "user", "content": "Hi"}], "stream": stream}).encode()
    host = client.base_url.removeprefix("http://")
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}\r\nAuthorization: {client.headers['Authorization']}\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    carrying = f"{head}traceparent: {TRACE}\r\nOpenAI-Beta: assistants=v2\r\n\r\n".encode() + body
    bare = f"{head}\r\n".encode() + body
    _, writer = await asyncio.open_connection(*host.split(":"))
    writer.write(carrying + bare + carrying + bare)
    await until(lambda: len(upstream.seen) == 4)
    writer.close()
    assert ["traceparent" in seen.headers for seen in upstream.seen] == [True, False, True, False]
    assert ["openai-beta" in seen.headers for seen in upstream.seen] == [True, False, True, False]


@pytest.mark.parametrize("state", ["a=1\r\nX-Evil: 1", "a=1\nX-Evil: 1", "a=1\x00", "a=ü", "x" * 513])
def test_invalid_trace_state_is_not_forwarded(state: str) -> None:
    def carried() -> dict[str, str]:
        bind(forwarded_headers({"Traceparent": TRACE, "Tracestate": state}))
        return dict(trace_headers())

    assert contextvars.Context().run(carried) == {"traceparent": TRACE}


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """The provider forwards two headers of callers; the one of `bare` forwards none."""
    up = settings.providers["up"]
    named = structs.replace(up, forward_headers=("X-Team", "x-gadget"))
    model = settings.models["m1"]
    return structs.replace(
        settings,
        providers={"up": named, "plain": up},
        models={**settings.models, "bare": structs.replace(model, provider="plain")},
        forwarded=("x-gadget", "x-team"),
    )


async def test_headers_that_a_provider_names_reach_its_upstream_alone(client: Client, upstream: FakeUpstream) -> None:
    sent = {**client.headers, "X-Team": "herons", "x-GADGET": "7", "X-Other": "stowaway"}
    for model in ("m1", "bare"):
        document = {"model": model, "messages": [{"role": "user", "content": "Hi"}]}
        async with client.request("POST", "/v1/chat/completions", headers=sent, json=document) as response:
            assert response.status == 200
    named, bare = (seen.headers for seen in upstream.seen)
    assert (named["x-team"], named["x-gadget"]) == ("herons", "7")
    assert not {"x-team", "x-gadget"} & bare.keys()
    assert "stowaway" not in str(named)


async def test_named_headers_of_one_request_are_not_sent_with_the_next(client: Client, upstream: FakeUpstream) -> None:
    for headers in ({"X-Team": "herons"}, {}, {"X-Team": "x" * 513}, {"X-Team": ""}):
        await ask(client, headers)
    assert ["x-team" in seen.headers for seen in upstream.seen] == [True, False, False, False]


@pytest.mark.parametrize(
    "name",
    ["Authorization", "Cookie", "x-api-key", "X-Auth-Token", "host", "Content-Length", "X-Gateway-Tags", "traceparent"],
)
def test_header_that_may_not_be_forwarded_is_a_fault_of_the_configuration(name: str) -> None:
    provider = {"plugin": "openai", "base_url": "https://api.example.com", "forward_headers": ["x-team", name]}
    with pytest.raises(SettingsError) as refused:
        parse({"providers": {"up": provider}})
    [problem] = refused.value.problems
    assert problem.key == "providers.up.forward_headers[1]"
    assert name in problem.message


def test_headers_of_all_providers_are_read() -> None:
    provider = {"plugin": "openai", "base_url": "https://api.example.com"}
    providers = {
        "a": {**provider, "forward_headers": ["X-Team"]},
        "b": {**provider, "forward_headers": ["x-a", "x-team"]},
    }
    assert parse({"providers": providers}).forwarded == ("x-a", "x-team")

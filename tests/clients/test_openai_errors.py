"""What a user of the Python SDK sees when something goes wrong: the exception's class, its fields, and the retries.

`tries` has the client's local address for every request that it really made, so it counts retries and connections.
LiteLLM plays models that fail; `scripted` plays a stream that breaks half-way and an upstream that never answers, and
keeps the log of who left when.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, DefaultHttpxClient, OpenAI

from gateway.testing import Reply, RunningGateway
from gateway.testing.ports import free_ports

from .independent import SENTENCE
from .scripted import BROKEN_STREAM, SILENT_STREAM, ScriptedUpstream

pytestmark = pytest.mark.clients

HELLO: list[Any] = [{"role": "user", "content": "Hello"}]


@pytest.fixture
def tries() -> list[Any]:
    """The requests of this test's client that were answered, in order: the local address each went out from."""
    return []


@pytest.fixture
def client(served: RunningGateway, tries: list[Any]) -> Iterator[OpenAI]:
    """A client with the SDK's own two retries."""

    def note(response: Any) -> None:
        tries.append(response.extensions["network_stream"].get_extra_info("client_addr"))

    hooks: dict[str, list[Callable[..., Any]]] = {"response": [note]}
    with OpenAI(
        base_url=served.base_url, api_key=served.api_key, http_client=DefaultHttpxClient(event_hooks=hooks)
    ) as client:
        yield client


@pytest.mark.parametrize("stream", [False, True])
def test_bad_key_is_an_authentication_error(client: OpenAI, tries: list[Any], stream: bool) -> None:
    stranger = client.with_options(api_key="sk-nobody-knows")
    with pytest.raises(openai.AuthenticationError) as caught:
        stranger.chat.completions.create(model="words", messages=HELLO, stream=stream)
    assert caught.value.body == {
        "message": "Missing or invalid API key",
        "type": "invalid_request_error",
        "param": None,
        "code": "invalid_api_key",
    }
    assert caught.value.request_id is not None
    assert caught.value.request_id.startswith("req_")
    assert len(tries) == 1


@pytest.mark.parametrize("model", ["closed", "no-such-model"])
def test_model_of_another_group_is_a_permission_error(client: OpenAI, tries: list[Any], model: str) -> None:
    with pytest.raises(openai.PermissionDeniedError) as caught:
        client.chat.completions.create(model=model, messages=HELLO)
    assert caught.value.body is not None
    assert (caught.value.status_code, caught.value.code, caught.value.param) == (403, "model_not_permitted", "model")
    assert "Model not permitted" in caught.value.message
    assert len(tries) == 1


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"temperature": 3}, "temperature", "decimal_above_max_value"),
        ({"messages": []}, "messages", "empty_array"),
        ({"messages": [{"role": "pirate", "content": "Arr"}]}, "messages[0].role", "invalid_value"),
        ({"stream_options": {"include_usage": True}}, "stream_options", "invalid_value"),
    ],
)
def test_bad_field_is_a_bad_request_that_names_it(
    client: OpenAI, tries: list[Any], fields: dict[str, Any], param: str, code: str
) -> None:
    request: dict[str, Any] = {"model": "words", "messages": HELLO, **fields}
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(**request)
    assert (caught.value.param, caught.value.code) == (param, code)
    assert caught.value.type == "invalid_request_error"
    assert len(tries) == 1


@pytest.mark.parametrize("stream", [False, True])
def test_empty_account_is_a_rate_limit_error_that_is_not_retried(
    client: OpenAI, tries: list[Any], poor_key: str, stream: bool
) -> None:
    with pytest.raises(openai.RateLimitError) as caught:
        client.with_options(api_key=poor_key).chat.completions.create(model="words", messages=HELLO, stream=stream)
    assert (caught.value.type, caught.value.code) == ("insufficient_quota", "credit_balance_exhausted")
    assert len(tries) == 1


def test_upstreams_rate_limit_is_retried_by_the_sdk(client: OpenAI, tries: list[Any]) -> None:
    with pytest.raises(openai.RateLimitError) as caught:
        client.with_options(max_retries=1).chat.completions.create(model="limited", messages=HELLO)
    assert caught.value.code == "slow_down"
    assert len(tries) == 2


def test_short_rate_limit_is_never_seen_by_the_caller(
    client: OpenAI, tries: list[Any], scripted: ScriptedUpstream
) -> None:
    scripted.enqueue(Reply.error(429, "slow down", headers={"retry-after": "1"}))
    answer = client.chat.completions.create(model="scripted", messages=HELLO)
    assert answer.choices[0].message.content == "Hello "
    assert len(tries) == 1  # the gateway waited itself


@pytest.mark.parametrize("stream", [False, True])
def test_broken_upstream_is_a_server_error_without_its_details(client: OpenAI, stream: bool) -> None:
    with pytest.raises(openai.InternalServerError) as caught:
        client.with_options(max_retries=0).chat.completions.create(model="broken", messages=HELLO, stream=stream)
    assert (caught.value.status_code, caught.value.code) == (502, "upstream_error")
    assert "litellm" not in str(caught.value).lower()


def test_prompt_over_the_window_is_a_bad_request_with_openais_code(client: OpenAI, tries: list[Any]) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="window", messages=HELLO)
    assert caught.value.code == "context_length_exceeded"
    assert len(tries) == 1


def test_stream_that_breaks_raises_after_the_delivered_text(
    client: OpenAI, tries: list[Any], scripted: ScriptedUpstream
) -> None:
    scripted.enqueue(BROKEN_STREAM)
    said = []
    with pytest.raises(openai.APIError) as caught:
        for chunk in client.chat.completions.create(model="scripted", messages=HELLO, stream=True):
            said.append(chunk.choices[0].delta.content or "")
    assert "".join(said) == "Hello"
    assert not isinstance(caught.value, openai.APIStatusError)
    assert (caught.value.code, caught.value.type) == ("upstream_error", "server_error")
    assert len(tries) == 1  # never again by itself once output was seen


async def test_stream_that_breaks_raises_in_the_async_client_too(
    served: RunningGateway, scripted: ScriptedUpstream
) -> None:
    scripted.enqueue(BROKEN_STREAM)
    async with AsyncOpenAI(base_url=served.base_url, api_key=served.api_key) as client:
        with pytest.raises(openai.APIError) as caught:
            async for _ in await client.chat.completions.create(model="scripted", messages=HELLO, stream=True):
                pass
    assert caught.value.code == "upstream_error"


def test_truncated_stream_is_an_error_and_not_a_short_answer(client: OpenAI, scripted: ScriptedUpstream) -> None:
    frames = SILENT_STREAM.frames
    scripted.enqueue(Reply(headers=SILENT_STREAM.headers, frames=frames, end="cut"))
    with pytest.raises(openai.APIError) as caught:
        list(client.chat.completions.create(model="scripted", messages=HELLO, stream=True))
    assert caught.value.code == "upstream_stream_truncated"


def test_closing_a_stream_cancels_the_upstream_at_once(client: OpenAI, scripted: ScriptedUpstream) -> None:
    scripted.enqueue(SILENT_STREAM)
    stream = client.chat.completions.create(model="scripted", messages=HELLO, stream=True)
    for chunk in stream:
        if chunk.choices[0].delta.content == "lo":
            break
    left = time.monotonic()
    stream.close()
    seen = scripted.ended()
    assert seen.outcome == "left"
    assert seen.ended - left < 2.0  # no timeout of the gateway is as short; other tests hold it to a quarter second


@pytest.mark.parametrize("stream", [False, True])
def test_timeout_of_the_client_cancels_the_upstream(client: OpenAI, scripted: ScriptedUpstream, stream: bool) -> None:
    scripted.enqueue(Reply.silence())
    with pytest.raises(openai.APITimeoutError):
        client.with_options(timeout=0.3, max_retries=0).chat.completions.create(
            model="scripted", messages=HELLO, stream=stream
        )
    assert scripted.ended().outcome == "left"
    assert len(scripted.seen) == 1


def test_refused_connection_is_a_connection_error() -> None:
    (port,) = free_ports(1)
    with (
        OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="sk-x", max_retries=0) as client,
        pytest.raises(openai.APIConnectionError),
    ):
        client.models.list()


def test_unknown_endpoints_of_the_sdk_are_not_found(client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        client.vector_stores.list()
    assert caught.value.code == "unknown_url"


def test_refused_request_does_not_cost_the_connection(client: OpenAI, tries: list[Any], poor_key: str) -> None:
    for _ in range(2):
        with pytest.raises(openai.BadRequestError):
            client.chat.completions.create(model="words", messages=HELLO, temperature=3)
        with pytest.raises(openai.RateLimitError):
            client.with_options(api_key=poor_key).chat.completions.create(model="words", messages=HELLO)
        assert client.chat.completions.create(model="words", messages=HELLO).choices[0].message.content == SENTENCE
    assert len(tries) == 6
    assert len(set(tries)) == 1

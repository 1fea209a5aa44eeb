"""vLLM, `transformers serve` and Infinity behind the gateway: callers get what a direct call gets."""

from __future__ import annotations

import asyncio
import base64
import struct
import time
from collections.abc import Iterator

import aiohttp
import pytest

from gateway.setup.found_providers import find_providers
from gateway.setup.known_providers import Server
from gateway.testing import RunningGateway, running_gateway
from tests.dialects.clients import CLIENTS, Client
from tests.polling import until

from .asking import ask, check_texts, check_too_long, hi
from .hub_servers import infinity_server, transformers_server, vllm_server
from .model_server import ModelServer

CHAT = "/v1/chat/completions"
PRICE = "price = { input = 1, cached_input = 0.1, output = 2 }"

every_client = pytest.mark.parametrize("dialect", CLIENTS, ids=lambda one: one.name)
either_way = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
every_upstream = pytest.mark.parametrize("model", ["chat", "responses", "messages"])


@pytest.fixture(scope="module")
def vllm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModelServer]:
    """A window of 2,048 tokens."""
    from .tiny_hub_model import write_language_model  # its packages are in the environment `servers` only

    write_language_model(folder := tmp_path_factory.mktemp("tiny"))
    with vllm_server(folder) as server:
        yield server


@pytest.fixture(scope="module")
def over_vllm(vllm: ModelServer) -> Iterator[RunningGateway]:
    """The gateway before it, over each of its APIs."""
    config = f"""
[providers.chat]
plugin = "openai"
preset = "vllm"
base_url = "{vllm.url}/v1"
[providers.responses]
plugin = "openai"
preset = "vllm"
base_url = "{vllm.url}/v1"
responses = true
[providers.messages]
plugin = "anthropic"
base_url = "{vllm.url}"
[groups.default]
"""
    for name in ("chat", "responses", "messages"):
        config += f'[models.{name}]\nprovider = "{name}"\nmodel = "tiny"\ncontext_window = 2048\n{PRICE}\n'
    config += f'[models.no-window]\nprovider = "chat"\nmodel = "tiny"\n{PRICE}\n'
    with running_gateway(config) as served:
        yield served


@pytest.fixture(scope="module")
def transformers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModelServer]:
    """The model is called by its folder."""
    from .tiny_hub_model import write_language_model

    write_language_model(folder := tmp_path_factory.mktemp("models") / "tiny")
    with transformers_server(folder) as server:
        yield server


@pytest.fixture(scope="module")
def over_transformers(transformers: ModelServer) -> Iterator[RunningGateway]:
    """The gateway before it."""
    config = f"""
[providers.transformers]
plugin = "openai"
base_url = "{transformers.url}/v1"
[groups.default]
[models.tiny]
provider = "transformers"
model = "{transformers.model}"
{PRICE}
"""
    with running_gateway(config) as served:
        yield served


@pytest.fixture(scope="module")
def infinity(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModelServer]:
    """Vectors of 64 numbers."""
    from .tiny_hub_model import write_vector_model

    write_vector_model(folder := tmp_path_factory.mktemp("vectors"))
    with infinity_server(folder) as server:
        yield server


# vLLM -----------------------------------------------------------------------------------------------------------------


async def test_init_finds_vllm_with_the_window_that_it_serves(vllm: ModelServer) -> None:
    [found] = await find_providers({}, servers=[Server("vllm", "vLLM", vllm.port)])
    assert (found.options["preset"], found.models["tiny"].context_window) == ("vllm", 2048)


@either_way
@every_client
@every_upstream
async def test_texts_and_counts_are_those_of_vllm(
    over_vllm: RunningGateway, vllm: ModelServer, model: str, dialect: Client, stream: bool
) -> None:
    await check_texts(over_vllm, vllm, model, dialect, stream=stream)


@either_way
@every_client
@every_upstream
async def test_prompt_beyond_the_window_of_vllm_is_told_as_such(
    over_vllm: RunningGateway, model: str, dialect: Client, stream: bool
) -> None:
    await check_too_long(over_vllm, model, dialect, stream=stream)


async def test_output_limit_beyond_the_window_of_vllm_is_no_prompt_that_is_too_long(over_vllm: RunningGateway) -> None:
    answer = await ask(over_vllm, CHAT, hi("no-window", max_tokens=8000))
    assert (answer.status, answer.json["error"]["code"]) == (400, "invalid_value")
    assert answer.json["error"]["param"] == "max_tokens"


@every_upstream
async def test_call_without_an_output_limit_is_answered_by_vllm(over_vllm: RunningGateway, model: str) -> None:
    body = hi(model, stop=["q"])
    body.pop("max_tokens")
    answer = await ask(over_vllm, CHAT, body)
    assert answer.status == 200, answer.text


async def test_call_of_vllm_ends_within_a_second_of_the_callers_leaving(
    over_vllm: RunningGateway, vllm: ModelServer
) -> None:
    def running() -> float:
        return vllm.metric("vllm:num_requests_running{")

    headers = {"Authorization": f"Bearer {over_vllm.api_key}"}
    body = hi("chat", max_tokens=1900, stream=True, ignore_eos=True)
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.post(f"{over_vllm.base_url}/chat/completions", json=body) as response,
    ):
        await response.content.readany()
        await until(lambda: asyncio.to_thread(lambda: running() == 1))
    left = time.monotonic()
    await until(lambda: asyncio.to_thread(lambda: running() == 0))
    assert time.monotonic() - left < 1.0


async def test_prompt_cache_of_vllm_is_counted(over_vllm: RunningGateway) -> None:
    messages = [{"role": "user", "content": "Tell me of the herons of the north. " * 20}]
    usages = [(await ask(over_vllm, CHAT, hi("chat", messages=messages))).json["usage"] for _ in range(2)]
    first, second = (usage["prompt_tokens_details"]["cached_tokens"] for usage in usages)
    assert first == 0 < second


# transformers ---------------------------------------------------------------------------------------------------------


async def test_init_calls_the_model_of_transformers_by_the_name_of_its_folder(transformers: ModelServer) -> None:
    [found] = await find_providers({}, servers=[Server("other", "another", transformers.port)])
    assert {name: model.upstream for name, model in found.models.items()} == {"tiny": transformers.model}


@either_way
@every_client
async def test_texts_and_counts_are_those_of_transformers(
    over_transformers: RunningGateway, transformers: ModelServer, dialect: Client, stream: bool
) -> None:
    await check_texts(over_transformers, transformers, "tiny", dialect, stream=stream)


async def test_stream_of_transformers_has_the_end_that_it_leaves_out(over_transformers: RunningGateway) -> None:
    answer = await ask(over_transformers, CHAT, hi("tiny", stream=True))
    assert answer.text.endswith("data: [DONE]\n\n")


# Infinity -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["float", "base64"])
async def test_embeddings_are_those_of_infinity(infinity: ModelServer, encoding: str) -> None:
    config = f"""
[providers.infinity]
plugin = "openai"
base_url = "{infinity.url}/v1"
[groups.default]
[models.vectors]
provider = "infinity"
endpoints = ["embeddings"]
{PRICE}
"""
    texts = ["a heron", "a gull"]
    theirs = infinity.ask("/v1/embeddings", {"model": "vectors", "input": texts})
    with running_gateway(config) as served:
        answer = await ask(served, "/v1/embeddings", {"model": "vectors", "input": texts, "encoding_format": encoding})
    assert answer.json["usage"] == theirs["usage"]
    ours = [one["embedding"] for one in answer.json["data"]]
    if encoding == "base64":
        ours = [list(struct.unpack("<64f", base64.b64decode(one))) for one in ours]
    for mine, other in zip(ours, theirs["data"], strict=True):
        assert mine == pytest.approx(other["embedding"], abs=1e-6)

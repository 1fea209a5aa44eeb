"""What a model server says of its models becomes their endpoint and their context window."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from typing import Any

import pytest

from gateway.setup import local_models
from gateway.setup.first_configuration import first_configuration
from gateway.setup.found_providers import FoundProvider, find_providers
from gateway.setup.known_providers import SERVERS, Model, ModelEndpoint, Server
from gateway.setup.local_models import endpoint_by_name
from gateway.setup.offered_providers import offers
from gateway_providers.openai.presets import PRESETS
from tests.setup.model_server import ModelServer, listed, serving

CHAT = {
    "capabilities": ["completion", "tools"],
    "parameters": 'stop    "<|eot_id|>"\nnum_ctx                        16384\nnum_keep 24',
    "model_info": {"llama.context_length": 131_072},
}
EMBEDDING = {"capabilities": ["embedding"], "model_info": {"nomic-bert.context_length": 2048, "x.y": "z"}}


@pytest.fixture
def server() -> Iterator[ModelServer]:
    """A server that says nothing yet."""
    with serving(ModelServer()) as server:
        yield server


async def found_at(server: ModelServer, name: str) -> FoundProvider:
    """What is found at its port, where a server of this name may be."""
    [found] = await find_providers({}, servers=[Server(name, name, server.port)])
    return found


@pytest.mark.holds("cli/gateway.md#gateway-init-3")
async def test_ollama_says_what_a_model_serves_and_how_much_it_reads(server: ModelServer) -> None:
    server.listed = listed("llama3:8b", "vectors", "qwen-embed-and-chat", owned_by="library")
    both = {"capabilities": ["completion", "embedding"]}
    server.shown = {"llama3:8b": CHAT, "vectors": EMBEDDING, "qwen-embed-and-chat": both}
    found = await found_at(server, "vllm")
    assert found.options["preset"] == "ollama" and found.why.startswith("Ollama: ")
    assert found.models == {
        "llama3:8b": Model(context_window=16_384),
        "vectors": Model(endpoint="embeddings"),  # it is loaded with a length of Ollama's own
        "qwen-embed-and-chat": Model(),
    }


@pytest.mark.holds("cli/gateway.md#gateway-init-3")
async def test_model_that_ollama_has_loaded_has_the_context_window_of_its_load(server: ModelServer) -> None:
    server.listed, server.shown = listed("llama3:8b", "other", owned_by="library"), {"llama3:8b": CHAT}
    server.told["/api/ps"] = {"models": [{"name": "llama3:8b", "context_length": 4096}, {"name": 1}, "x"]}
    found = await found_at(server, "ollama")
    assert found.models == {"llama3:8b": Model(context_window=4096), "other": Model()}


@pytest.mark.holds("cli/gateway.md#gateway-init-3")
@pytest.mark.parametrize("shown", [{}, {"nomic-embed-text": []}, {"nomic-embed-text": {"capabilities": "x"}}])
async def test_model_that_ollama_does_not_describe_is_judged_by_its_name(
    server: ModelServer, shown: dict[str, Any]
) -> None:
    server.listed, server.shown = listed("llama3", "nomic-embed-text", owned_by="library"), shown
    found = await found_at(server, "ollama")
    assert found.models == {"llama3": Model(), "nomic-embed-text": Model(endpoint="embeddings")}


@pytest.mark.holds("cli/gateway.md#gateway-init-3")
@pytest.mark.parametrize(
    ("said", "endpoint"), [(["embed"], "embeddings"), (["rerank"], "chat"), ([{}], "chat"), ("embed", "chat")]
)
async def test_list_of_infinity_says_whether_a_model_makes_embeddings(
    server: ModelServer, said: Any, endpoint: ModelEndpoint
) -> None:
    server.listed = listed("michael/tiny", owned_by="infinity", capabilities=said)
    assert (await found_at(server, "vllm")).models == {"michael/tiny": Model(endpoint=endpoint)}


async def test_slow_descriptions_are_not_waited_for(server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server.listed, server.shown = listed("llama3", owned_by="library"), {"llama3": CHAT}
    monkeypatch.setattr(local_models, "MOST_AT_ONCE", 0)  # no turn ever comes
    monkeypatch.setattr(local_models, "SHOWN_WITHIN", 0.05)
    assert (await found_at(server, "ollama")).models == {"llama3": Model()}


@pytest.mark.holds("cli/gateway.md#gateway-init-3")
@pytest.mark.parametrize(
    ("owner", "said", "window"),
    [
        ("vllm", {"max_model_len": 32_768}, 32_768),
        ("llamacpp", {"meta": {"n_ctx_train": 8192}}, None),
        ("llamacpp", {"meta": {"n_ctx_train": 8192, "n_ctx": 1024}}, 1024),
        ("llamacpp", {"meta": None}, None),
        ("vllm", {"max_model_len": True}, None),
        ("vllm", {"max_model_len": -1}, None),
        ("vllm", {"max_model_len": "many"}, None),
    ],
)
async def test_list_of_another_server_has_the_context_window(
    server: ModelServer, owner: str, said: dict[str, Any], window: int | None
) -> None:
    server.listed = listed("org/chat", "BAAI/bge-m3", owned_by=owner, **said)
    found = await found_at(server, "vllm")
    assert found.models == {
        "org/chat": Model(context_window=window),
        "BAAI/bge-m3": Model(endpoint="embeddings", context_window=window),
    }


@pytest.mark.parametrize(
    ("props", "window"),
    [
        ({"default_generation_settings": {"n_ctx": 1024}, "total_slots": 4}, 1024),
        ({"default_generation_settings": None}, None),
        ([], None),
    ],
)
async def test_context_window_of_a_slot_of_an_older_llamacpp_is_in_its_properties(
    server: ModelServer, props: Any, window: int | None
) -> None:
    server.listed = listed("tiny", owned_by="llamacpp", meta={"n_ctx_train": 4096})
    server.told["/props"] = props
    assert (await found_at(server, "llamacpp")).models == {"tiny": Model(context_window=window)}


@pytest.mark.parametrize(
    ("names", "public"),
    [
        (["/srv/models/tiny.gguf"], ["tiny"]),
        (["tiny-Q8_0.GGUF"], ["tiny-Q8_0"]),
        (["C:\\models\\tiny.gguf"], ["tiny"]),
        (["/srv/big-00001-of-00003.gguf"], ["big"]),
        (["/srv/models/Qwen3-8B"], ["Qwen3-8B"]),
        (["/a/tiny.gguf", "/b/tiny.gguf", "/b/other.gguf"], ["/a/tiny.gguf", "/b/tiny.gguf", "other"]),
        (["Qwen/Qwen3-8B", "llama3:8b", "tiny"], ["Qwen/Qwen3-8B", "llama3:8b", "tiny"]),
        ([".gguf", "/"], [".gguf", "/"]),
    ],
)
async def test_model_that_is_called_by_a_path_gets_the_name_of_its_file(
    server: ModelServer, names: list[str], public: list[str]
) -> None:
    server.listed = listed(*names, owned_by="vllm")
    found = await found_at(server, "llamacpp")
    assert list(found.models) == public
    upstream = {name: model.upstream or name for name, model in found.models.items()}
    assert list(upstream.values()) == names
    text = first_configuration(offers([found]))
    models = tomllib.loads(text)["models"]
    assert {name: model.get("model", name) for name, model in models.items()} == upstream


@pytest.mark.holds("cli/gateway.md#gateway-init-3")
@pytest.mark.parametrize(
    "name",
    [
        "nomic-embed-text:latest",
        "mxbai-embed-large",
        "all-minilm:22m",
        "bge-m3",
        "BAAI/bge-large-en-v1.5",
        "intfloat/multilingual-e5-large",
        "thenlper/gte-large",
        "Qwen/Qwen3-Embedding-0.6B",
        "sentence-transformers/all-MiniLM-L6-v2",
        "paraphrase-multilingual",
        "/models/nomic-embed-text-v1.5.Q8_0.gguf",
    ],
)
def test_names_of_embedding_models_are_recognised(name: str) -> None:
    assert endpoint_by_name(name) == "embeddings"


@pytest.mark.parametrize(
    "name",
    ["llama3.2:3b", "gpt-oss:20b", "gemma3", "qwen3:8b", "BAAI/bge-reranker-v2-m3", "minilmao", "gtegpt", "phi-4"],
)
def test_names_of_other_models_are_not(name: str) -> None:
    assert endpoint_by_name(name) == "chat"


def test_servers_are_looked_for_where_their_presets_call_them() -> None:
    assert {server.name: f"http://localhost:{server.port}/v1" for server in SERVERS} == {
        server.name: PRESETS[server.name].base_url for server in SERVERS
    }

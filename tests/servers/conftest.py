"""Two llama.cpp servers with one model, a third with a longer context and embeddings, and a gateway before them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.testing import RunningGateway, running_gateway

from .llamacpp import LlamaServer, llama_server

CONFIG = """
[providers.one]
plugin = "openai"
preset = "llamacpp"
base_url = "{one}/v1"

[providers.two]
plugin = "openai"
preset = "llamacpp"
base_url = "{two}/v1"

[providers.long]
plugin = "openai"
preset = "llamacpp"
base_url = "{long}/v1"

[providers.responses]
plugin = "openai"
preset = "llamacpp"
base_url = "{one}/v1"
responses = true

[providers.messages]
plugin = "anthropic"
base_url = "{one}"

[providers.slow]
plugin = "openai"
preset = "llamacpp"
base_url = "{slow}/v1"

[groups.default]

[models.slow]
provider = "slow"
model = "slow"
price = {{ input = 1, output = 2 }}

[models.tiny]
provider = "one"
model = "tiny"
price = {{ input = 1, cached_input = 0.1, output = 2 }}

[models.over-responses]
provider = "responses"
model = "tiny"
price = {{ input = 1, output = 2 }}

[models.over-messages]
provider = "messages"
model = "tiny"
price = {{ input = 1, output = 2 }}

[models.long]
provider = "long"
model = "tiny"
context_window = 8192
price = {{ input = 1, output = 2 }}

[models.with-fallback]
provider = "one"
model = "tiny"
fallbacks = ["long"]
context_window = 2048
price = {{ input = 1, output = 2 }}

[models.both]
targets = [{{ provider = "one", model = "tiny" }}, {{ provider = "two", model = "tiny" }}]
strategy = "weighted"
price = {{ input = 1, cached_input = 0.1, output = 2 }}

[models.both-apart]
targets = [{{ provider = "one", model = "tiny" }}, {{ provider = "two", model = "tiny" }}]
strategy = "weighted"
affinity = "none"
price = {{ input = 1, cached_input = 0.1, output = 2 }}

[models.vectors]
provider = "long"
model = "tiny"
endpoints = ["embeddings"]
price = {{ input = 1 }}
"""


@pytest.fixture(scope="session")
def model_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of the model."""
    from .tiny_model import write_tiny_model  # its packages are in the environment `servers` only

    path = tmp_path_factory.mktemp("models") / "tiny.gguf"
    write_tiny_model(path)
    return path


@pytest.fixture(scope="session")
def one(model_file: Path) -> Iterator[LlamaServer]:
    """2,048 tokens in each of four slots."""
    with llama_server(model_file) as server:
        yield server


@pytest.fixture(scope="session")
def two(model_file: Path) -> Iterator[LlamaServer]:
    """The same again."""
    with llama_server(model_file) as server:
        yield server


@pytest.fixture(scope="session")
def long(model_file: Path) -> Iterator[LlamaServer]:
    """8,192 tokens in each of two slots, and embeddings."""
    with llama_server(model_file, "embeddings", context=16_384, slots=2) as server:
        yield server


@pytest.fixture(scope="session")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlamaServer]:
    """2,048 tokens in each of two slots; an answer of that length takes many seconds."""
    from .tiny_model import write_tiny_model

    path = tmp_path_factory.mktemp("models") / "slow.gguf"
    write_tiny_model(path, layers=12, width=256)
    with llama_server(path, context=4096, slots=2) as server:
        yield server


@pytest.fixture(scope="session")
def served(one: LlamaServer, two: LlamaServer, long: LlamaServer, slow: LlamaServer) -> Iterator[RunningGateway]:
    """The gateway."""
    with running_gateway(CONFIG.format(one=one.url, two=two.url, long=long.url, slow=slow.url)) as gateway:
        yield gateway

"""`gateway init` finds keys and model servers, writes a sound file without a key, and leaves an existing one alone."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gateway.cli import cli
from gateway.config.loader import parse
from gateway.config.public_prices import public_price
from gateway.setup.first_configuration import first_configuration
from gateway.setup.found_providers import find_providers
from gateway.setup.known_providers import VENDORS, Server
from gateway.setup.offered_providers import offers
from gateway.testing.ports import free_ports
from tests.setup.model_server import ModelServer, listed, serving

KEY = "sk-secret-of-a-vendor"


@pytest.fixture
def server() -> Iterator[ModelServer]:
    """An Ollama on this machine."""
    with serving(ModelServer(listed("llama3:8b", "nomic-embed-text", owned_by="library"))) as server:
        yield server


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without keys and servers, in an empty folder."""
    for vendor in VENDORS:
        for variable in vendor.variables:
            monkeypatch.delenv(variable, raising=False)
    [port] = free_ports(1)
    monkeypatch.setattr(
        find_providers, "__kwdefaults__", {"servers": (Server("ollama", "Ollama", port),), "host": "127.0.0.1"}
    )
    monkeypatch.chdir(tmp_path)


def run(*words: str) -> Result:
    return CliRunner().invoke(cli, ["init", *words], prog_name="gateway")


@pytest.mark.holds("README.md#serve-real-models-1")
def test_init_writes_a_sound_file_that_refers_to_the_key_and_names_public_prices(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("GEMINI_API_KEY", " ")
    done = run()
    assert done.exit_code == 0, done.output
    assert "Next: gateway serve --config gateway.toml" in done.stdout and "OPENAI_API_KEY is set" in done.stderr
    text = (tmp_path / "gateway.toml").read_text()
    document = tomllib.loads(text)
    assert document["providers"] == {"openai": {"plugin": "openai", "api_key": "env:OPENAI_API_KEY"}}
    assert document["models"]["gpt-5-mini"] == {
        "provider": "openai",
        "context_window": 400_000,
        "price": "openai/gpt-5-mini",
    }
    assert document["models"]["text-embedding-3-small"]["endpoints"] == ["embeddings"]
    assert KEY not in text + done.output


@pytest.mark.holds("cli/gateway.md#gateway-init-1")
def test_init_leaves_an_existing_file_alone_unless_forced(tmp_path: Path) -> None:
    (tmp_path / "gateway.toml").write_text("mine")
    refused = run()
    assert refused.exit_code == 1 and "say --force" in refused.stderr and refused.stdout == ""
    assert (tmp_path / "gateway.toml").read_text() == "mine"
    forced = run("--force", "--json")
    assert forced.exit_code == 0 and json.loads(forced.stdout)["ok"] is True
    assert 'plugin = "fake"' in (tmp_path / "gateway.toml").read_text()  # nothing was found


async def test_models_of_a_local_server_are_free_and_its_kind_is_what_it_says(server: ModelServer) -> None:
    server.shown = {"llama3:8b": {"capabilities": ["completion"], "parameters": "num_ctx 8192"}}
    found = await find_providers({}, servers=[Server("vllm", "vLLM", server.port)])
    document = tomllib.loads(first_configuration(offers(found)))
    assert document["providers"]["ollama"]["preset"] == "ollama"
    assert document["models"] == {
        "llama3:8b": {"provider": "ollama", "context_window": 8192, "free": True},
        "nomic-embed-text": {"provider": "ollama", "endpoints": ["embeddings"], "free": True},
    }


@pytest.mark.holds("cli/gateway.md#gateway-init-2")
def test_two_servers_of_one_kind_get_names_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = ModelServer(listed("qwen", owned_by="vllm")), ModelServer(listed("qwen", "phi", owned_by="vllm"))
    with serving(first), serving(second):
        servers = (Server("vllm", "vLLM", first.port), Server("llamacpp", "llama.cpp", second.port))
        monkeypatch.setattr(find_providers, "__kwdefaults__", {"servers": servers, "host": "127.0.0.1"})
        done = run()
    assert done.exit_code == 0, done.output
    document = tomllib.loads((tmp_path / "gateway.toml").read_text())
    other = f"vllm-{second.port}"
    assert document["providers"].keys() == {"vllm", other}
    assert {name: model["provider"] for name, model in document["models"].items()} == {"qwen": "vllm", "phi": other}
    assert f"called {other}, because the name vllm is taken" in done.stderr and "has the name: qwen." in done.stderr


async def test_gateway_gets_another_port_than_a_local_server(
    server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = await find_providers({}, servers=[Server("llamacpp", "llama.cpp", server.port)])
    monkeypatch.setattr("gateway.setup.first_configuration.PORT", server.port)
    assert tomllib.loads(first_configuration(offers(found)))["server"]["port"] == 8085


@pytest.mark.parametrize("answer", [{"data": [{"id": 5}]}, {"data": [{"id": "a\nb"}]}, {"data": "x"}, {}, []])
async def test_server_with_another_answer_is_not_taken(server: ModelServer, answer: Any) -> None:
    server.listed = answer
    assert await find_providers({}, servers=[Server("vllm", "vLLM", server.port)]) == []


@pytest.mark.holds("README.md#serve-real-models-1", "cli/gateway.md#gateway-init-1")
def test_last_words_say_how_to_serve_and_how_to_sign_in(tmp_path: Path) -> None:
    done = run("--config", "a file.toml")
    assert done.stdout.splitlines()[0] == "a file.toml is written. Next: gateway serve --config 'a file.toml'"
    assert "gateway users create EMAIL --operator --config 'a file.toml'" in done.stdout
    document = json.loads(run("--force", "--json").stdout)
    assert document["next"] == "gateway serve --config gateway.toml"
    assert document["operator"] == "gateway users create EMAIL --operator --config gateway.toml"


async def test_every_vendor_of_the_list_makes_a_sound_configuration() -> None:
    environment = {vendor.variables[-1]: KEY for vendor in VENDORS}
    found = await find_providers(environment, servers=())
    assert [one.name for one in found] == [vendor.name for vendor in VENDORS]
    models = parse(tomllib.loads(first_configuration(offers(found)))).models
    assert models.keys() == {model for vendor in VENDORS for model in vendor.models}
    for vendor in VENDORS:
        for name, model in vendor.models.items():
            assert public_price(model.price)
            assert (models[name].endpoints, models[name].context_window) == ((model.endpoint,), model.context_window)

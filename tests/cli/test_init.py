"""`gateway init` finds keys and model servers, writes a sound file without a key, and leaves an existing one alone."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gateway.admin import found_providers
from gateway.admin.first_configuration import first_configuration
from gateway.admin.found_providers import VENDORS, Server, find_providers
from gateway.cli import cli
from gateway.config.loader import parse
from gateway.config.public_prices import public_price
from gateway.testing.ports import free_ports

KEY = "sk-secret-of-a-vendor"


@pytest.fixture
def answers() -> dict[str, Any]:
    """What the local server says."""
    return {"data": [{"id": "llama3:8b", "owned_by": "library"}, {"id": "nomic-embed", "owned_by": "library"}]}


@pytest.fixture
def local_server(answers: dict[str, Any]) -> Iterator[int]:
    """The port of a model server on this machine."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(answers).encode()
            self.send_response(200 if self.path == "/v1/models" else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


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
    assert document["models"]["gpt-5-mini"] == {"provider": "openai", "price": "openai/gpt-5-mini"}
    assert KEY not in text + done.output


def test_init_leaves_an_existing_file_alone_unless_forced(tmp_path: Path) -> None:
    (tmp_path / "gateway.toml").write_text("mine")
    refused = run()
    assert refused.exit_code == 1 and "say --force" in refused.stderr and refused.stdout == ""
    assert (tmp_path / "gateway.toml").read_text() == "mine"
    forced = run("--force", "--json")
    assert forced.exit_code == 0 and json.loads(forced.stdout)["ok"] is True
    assert 'plugin = "fake"' in (tmp_path / "gateway.toml").read_text()  # nothing was found


async def test_models_of_a_local_server_are_free_and_its_kind_is_what_it_says(local_server: int) -> None:
    [found] = await find_providers({}, servers=[Server("vllm", "vLLM", local_server)])
    assert found.name == "ollama" and list(found.models) == ["llama3:8b", "nomic-embed"]
    document = tomllib.loads(first_configuration([found]))
    assert document["models"]["llama3:8b"] == {"provider": "ollama", "free": True}


async def test_gateway_gets_another_port_than_a_local_server(
    local_server: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = await find_providers({}, servers=[Server("llamacpp", "llama.cpp", local_server)])
    monkeypatch.setattr("gateway.admin.first_configuration.PORT", local_server)
    assert tomllib.loads(first_configuration(found))["server"]["port"] == 8085


@pytest.mark.parametrize("answer", [{"data": [{"id": 5}]}, {"data": [{"id": "a\nb"}]}, {"data": "x"}, {}, []])
async def test_server_with_another_answer_is_not_taken(answers: Any, local_server: int, answer: Any) -> None:
    answers.clear()
    if isinstance(answer, dict):
        answers.update(answer)
    assert await find_providers({}, servers=[Server("vllm", "vLLM", local_server)]) == []


async def test_every_vendor_of_the_list_makes_a_sound_configuration() -> None:
    environment = {vendor.variables[-1]: KEY for vendor in VENDORS}
    found = await find_providers(environment, servers=())
    assert [one.name for one in found] == [vendor.name for vendor in VENDORS]
    assert parse(tomllib.loads(first_configuration(found))).models.keys() == {
        model for vendor in VENDORS for model in vendor.models
    }
    for vendor in found_providers.VENDORS:
        assert all(public_price(price) for price in vendor.models.values())

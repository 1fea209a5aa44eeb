"""What the console offers for the end of a configuration file: `gateway check` accepts the file with it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from gateway.config.loader import load, parse_files
from gateway.setup import file_additions
from gateway.setup.configuration_check import CheckOptions, Findings, check_in_thread
from gateway.setup.file_additions import Additions, additions
from gateway.setup.found_providers import FoundProvider, find_providers
from gateway.setup.known_providers import Model
from tests.configuration_files import OWN_KEY

ALIASES = """[models]
"gpt-5" = { provider = "fake", free = true, aliases = ["gpt-5-mini", "llama3"] }
[providers]
fake.plugin = "fake"
openai.plugin = "fake"
openai-2.plugin = "fake"
ollama.plugin = "fake"
ollama-11434.plugin = "fake" # the last line has no end"""
DOTTED = """
providers.openai.plugin = "fake"
models.gpt-5.provider = "openai"
models.gpt-5.free = true
"""
EUROS = """
[providers.fake]
plugin = "fake"

[models.fake-chat]
provider = "fake"
price = { input = 1, output = 2, currency = "EUR" }
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A configuration file."""
    return tmp_path / "gateway.toml"


async def found() -> list[FoundProvider]:
    """OpenAI's key, and an Ollama."""
    options = {"plugin": "openai", "preset": "ollama", "base_url": "http://127.0.0.1:11434/v1"}
    ollama = FoundProvider("ollama", "Ollama: it answers", options, {"llama3": Model(), "phi4": Model()}, port=11434)
    return [*await find_providers({"OPENAI_API_KEY": "sk-secret"}, servers=()), ollama]


async def offered(file: Path, text: str) -> Additions:
    """The additions to a file of this text."""
    file.write_text(text)
    return await asyncio.to_thread(additions, await found(), load(file))


async def checked(file: Path, more: str) -> Findings:
    """What the check finds after the text was added."""
    file.write_text(file.read_text() + "\n" + more)
    return await check_in_thread(file, CheckOptions(offline=True))


@pytest.mark.holds("console.md#what-operators-do-4")
@pytest.mark.parametrize("text", ["", OWN_KEY, ALIASES, DOTTED, EUROS], ids=["empty", "own", "alias", "dotted", "euro"])
async def test_file_with_what_is_offered_passes_the_check_and_then_nothing_is_new(file: Path, text: str) -> None:
    offer = await offered(file, text)
    assert offer.faults == [] and len(offer.offers) == 2
    before = load(file)
    findings = await checked(file, offer.text)
    assert findings.ok, findings.faults
    assert findings.providers == len(before.providers) + 2
    after = load(file)
    assert {name: after.models[name] for name in before.models} == before.models
    again = await asyncio.to_thread(additions, await found(), after)
    assert (again.offers, again.text) == ([], "")


async def test_taken_names_are_left_alone_and_said(file: Path) -> None:
    [openai, ollama] = (await offered(file, OWN_KEY)).offers
    assert (openai.name, ollama.name, ollama.notes) == ("openai-2", "ollama", [])
    assert list(openai.models) == ["gpt-5-mini", "gpt-5-nano", "text-embedding-3-small"]
    assert openai.notes[0] == "The provider is called openai-2, because the name openai is taken."
    assert openai.notes[1].startswith("Left out, because a model or an alias has the name: gpt-5. ")
    offer = await offered(file, ALIASES)
    assert [one.name for one in offer.offers] == ["openai-3", "ollama-2"]
    assert [list(one.models) for one in offer.offers] == [["gpt-5-nano", "text-embedding-3-small"], ["phi4"]]
    assert all(f"# {text}" in offer.text for one in offer.offers for text in one.notes)


@pytest.mark.holds("console.md#what-operators-do-4")
async def test_public_prices_are_not_offered_beside_prices_in_another_currency(file: Path) -> None:
    [openai, ollama] = (await offered(file, EUROS)).offers
    assert openai.models == {} and "prices in EUR: gpt-5, gpt-5-mini" in openai.notes[0]
    assert list(ollama.models) == ["llama3", "phi4"] and ollama.notes == []


@pytest.mark.holds("console.md#what-operators-do-4")
@pytest.mark.parametrize(
    "options",
    [
        'preset = "ollama"',
        'base_url = "http://localhost:11434/v1"',
        'base_url = "http://[::1]:11434/v1/"',
        'preset = "vllm"\nbase_url = "http://0.0.0.0:11434/v1"',
        'preset = "ollama"\ncredentials = [{ base_url = "http://127.0.0.1:11434/v1" }]',
    ],
)
async def test_server_that_a_provider_calls_already_is_not_new(file: Path, options: str) -> None:
    offer = await offered(file, f'[providers.mine]\nplugin = "openai"\n{options}\n')
    assert [one.name for one in offer.offers] == ["openai"]


@pytest.mark.parametrize(
    "options", ['preset = "ollama"\nbase_url = "http://gpu.example:11434/v1"', 'preset = "vllm"', 'api_key = "env:X"']
)
async def test_server_elsewhere_does_not_hide_the_one_on_this_machine(file: Path, options: str) -> None:
    offer = await offered(file, f'[providers.mine]\nplugin = "openai"\n{options}\n')
    assert [one.name for one in offer.offers] == ["openai", "ollama"]


async def test_key_in_the_credentials_of_a_provider_is_not_new(file: Path) -> None:
    offer = await offered(
        file, '[providers.mine]\nplugin = "openai"\ncredentials = [{ api_key = "env:OPENAI_API_KEY" }]\n'
    )
    assert [one.name for one in offer.offers] == ["ollama"]


@pytest.mark.parametrize("text", ["", OWN_KEY, ALIASES, DOTTED, EUROS], ids=["empty", "own", "alias", "dotted", "euro"])
@pytest.mark.parametrize("is_new", [True, False])
async def test_file_that_has_not_changed_is_parsed_once(
    file: Path, text: str, is_new: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text(text)
    parsed: list[Any] = []

    def noted(file: str, raw: bytes, parts: Any, **rest: Any) -> Any:
        parsed.append(raw)
        return parse_files(file, raw, parts, **rest)

    monkeypatch.setattr(file_additions, "parse_files", noted)
    offer = await asyncio.to_thread(additions, await found() if is_new else [], load(file))
    assert len(offer.offers) == (2 if is_new else 0)
    assert len(parsed) == 1


async def test_provider_in_an_included_file_is_not_new(file: Path) -> None:
    part = file.parent / "conf.d" / "mine.toml"
    part.parent.mkdir()
    part.write_text('[providers.mine]\nplugin = "openai"\ncredentials = [{ api_key = "env:OPENAI_API_KEY" }]\n')
    offer = await offered(file, 'include = ["conf.d/*.toml"]\n')
    assert ([one.name for one in offer.offers], offer.faults) == (["ollama"], [])


async def test_file_on_the_disk_counts_and_not_the_settings_in_use(file: Path) -> None:
    file.write_text("")
    in_use = load(file)
    file.write_text(OWN_KEY)
    offer = await asyncio.to_thread(additions, await found(), in_use)
    assert [one.name for one in offer.offers] == ["openai-2", "ollama"]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('providers = { fake = { plugin = "fake" } }\n', "not valid TOML"),
        ('[plugins]\ndisabled = ["openai"]\n', "openai"),
    ],
)
async def test_file_that_cannot_take_the_tables_is_said_to_be(file: Path, text: str, fault: str) -> None:
    offer = await offered(file, text)
    assert any(fault in line for line in offer.faults), offer.faults
    assert not (await checked(file, offer.text)).ok


async def test_file_that_is_broken_already_is_said_to_be(file: Path) -> None:
    file.write_text("")
    in_use = load(file)
    file.write_text("[models.a]\n")
    offer = additions(await found(), in_use)
    assert len(offer.offers) == 2 and "models.a.provider" in offer.faults[0]

"""The page "Connect a provider": what it offers, why, and where to begin without a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from gateway.config.loader import load
from gateway.setup.found_providers import find_providers
from gateway.setup.known_providers import VENDORS
from tests.configuration_files import OWN_KEY


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with OpenAI's key alone, and without model servers."""
    for vendor in VENDORS:
        for variable in vendor.variables:
            monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-of-a-vendor")
    monkeypatch.setattr(find_providers, "__kwdefaults__", {"servers": (), "host": "127.0.0.1"})


async def shown(console: Any, file: Path | None) -> Any:
    """The page of a gateway with this configuration file."""
    async with console() as c:
        operator = await c.as_("root", role="operator")
        if file is not None:
            c.services.use(structs.replace(c.services.settings, file=str(file), providers=load(file).providers))
        return await operator.get("/site/connect")


async def test_page_offers_free_names_says_why_and_shows_no_key(console, tmp_path: Path) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text(OWN_KEY)
    page = await shown(console, file)
    assert "OpenAI: the variable OPENAI_API_KEY is set The provider is called openai-2" in page.text
    assert "Add this to the end of the file" in page.text and "[models.gpt-5-mini]" in page.text
    assert "[models.gpt-5]" not in page.text and "has the name: gpt-5." in page.text
    assert "Check it, and reload" in page.text and "sk-secret" not in page.html


async def test_page_says_what_is_wrong_with_a_file_that_cannot_take_the_tables(console, tmp_path: Path) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text('providers = { fake = { plugin = "fake" } }')
    page = await shown(console, file)
    assert "would not be valid with these tables at its end" in page.text and "not valid TOML" in page.text
    assert "Add this to the end" not in page.text


async def test_page_with_nothing_new_says_so(console, tmp_path: Path) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text(OWN_KEY.replace("MY_KEY", "OPENAI_API_KEY"))
    page = await shown(console, file)
    assert "Nothing new was found" in page.text and "Save the file" not in page.text


@pytest.mark.holds("console.md#what-operators-do-4")
async def test_page_of_a_gateway_without_a_file_says_how_to_begin(console) -> None:
    page = await shown(console, None)
    assert (
        "gateway init writes gateway.toml with the names of the variables that hold keys" in page.text
        and "OPENAI_API_KEY is set" in page.text
    )
    assert "Save the file" not in page.text and "Check it, and reload" not in page.text


async def test_configuration_page_of_a_gateway_without_a_file_leads_there(console) -> None:
    async with console() as c:
        operator = await c.as_("root", role="operator")
        viewer = await c.as_("eva", role="viewer")
        assert 'href="/site/connect"' in (await operator.get("/site/configuration")).html
        assert 'href="/site/connect"' not in (await viewer.get("/site/configuration")).html

"""The configurations of docs/migrate are valid, and the commands and columns that they name exist."""

from __future__ import annotations

import re
import tomllib
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from gateway.config.loader import parse

PAGES = sorted((Path(__file__).parents[2] / "docs" / "migrate").glob("*.md"))
OFFERED = {"openai": {"plugin": "openai"}, "anthropic": {"plugin": "anthropic"}}


def merged(text: str) -> dict[str, Any]:
    """All TOML blocks of a page as one configuration, with the providers that it takes for granted."""
    document: dict[str, Any] = {"providers": {}, "models": {}}
    for block in re.findall(r"```toml\n(.*?)```", text, re.DOTALL):
        for name, section in tomllib.loads(block, parse_float=Decimal).items():
            document[name].update(section)
    for name, provider in OFFERED.items():
        document["providers"].setdefault(name, {**provider, "api_key": "env:OFFERED_KEY"})
    return document


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_configurations_of_the_page_are_valid(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OFFERED_KEY", "sk-x")
    monkeypatch.setenv("OPENROUTER_API_KEY", "sk-y")
    document = merged(page.read_text(encoding="utf-8"))
    assert set(parse(document).models) == set(document["models"])


def test_price_of_the_ratios_of_new_api_is_computed_as_the_page_says() -> None:
    [page] = [page for page in PAGES if page.stem == "new-api"]
    text = page.read_text(encoding="utf-8")
    found = re.search(r"ratios ([\d.]+) and ([\d.]+) has", text)
    assert found is not None
    price = merged(text)["models"]["example"]["price"]
    assert price["input"] == Decimal(found[1]) * 2
    assert price["output"] == price["input"] * Decimal(found[2])

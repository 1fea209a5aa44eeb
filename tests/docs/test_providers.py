"""The pages of providers name every option with its default, and their examples are sound."""

from __future__ import annotations

import json
import re
import tomllib
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from msgspec import NODEFAULT, structs

from gateway.config.loader import parse
from gateway.schemas.chat_request import ChatRequest
from gateway_providers.azure import AzureProvider
from gateway_providers.deepgram import DeepgramProvider
from gateway_providers.elevenlabs import ElevenLabsProvider
from gateway_providers.openai import OpenAIProvider
from gateway_providers.openai.presets import PRESETS

PAGES = Path(__file__).parents[2] / "docs" / "providers"
PROVIDERS = (OpenAIProvider, AzureProvider, ElevenLabsProvider, DeepgramProvider)


def documented_default(field: structs.FieldInfo) -> str:
    if field.required:
        return "required"
    value: Any = field.default_factory() if field.default is NODEFAULT else field.default
    return "–" if value is None else f"`{json.dumps(value)}`"


@pytest.mark.parametrize("provider", PROVIDERS, ids=lambda provider: provider.name)
def test_every_option_is_documented_with_its_default(provider: Any) -> None:
    page = (PAGES / f"{provider.name}.md").read_text(encoding="utf-8")
    table = page.split("| key | default | meaning |", 1)[1].split("\n\n", 1)[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*?) \| .+ \|$", table, re.MULTILINE))
    assert rows == {field.name: documented_default(field) for field in structs.fields(provider.Options)}


@pytest.mark.parametrize("path", sorted(PAGES.glob("*.md")), ids=lambda path: path.stem)
def test_toml_of_the_pages_is_valid(path: Path) -> None:
    blocks = re.findall(r"```toml\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL)
    tables = [tomllib.loads(block, parse_float=Decimal) for block in blocks]
    whole = [table for table in tables if "models" in table]  # the others are excerpts
    for table in whole:
        parse(table, file="gateway.toml")
    assert whole or path.stem == "matrix"


def test_presets_are_documented_with_what_they_refuse() -> None:
    page = (PAGES / "openai.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(\w+)` \| (`http.*?) \|$", page, re.MULTILINE))
    assert rows.keys() == PRESETS.keys()
    alone = set(re.findall(r"`(\w+)`", page.split("The fields that only OpenAI has are", 1)[1].split("\n", 1)[0]))
    for preset, row in rows.items():
        address, refused, _ = row.split(" | ")
        named = set(re.findall(r"`(\w+)`", refused)) | (alone if "only OpenAI has" in refused else set())
        assert address == f"`{PRESETS[preset].base_url}`"
        assert named == {name for name in PRESETS[preset].refused if is_refused(name)}, preset


def test_page_lists_the_own_fields_of_each_preset() -> None:
    page = (PAGES / "openai.md").read_text(encoding="utf-8")
    table = page.split("forwarded beside the fields of this API |", 1)[1].split("\n\n", 1)[0]
    rows = {preset: set(re.findall(r"`(\w+)`", names)) for preset, names in re.findall(r"\| `(\w+)` \| (.*) \|", table)}
    assert rows == {preset: set(quirks.own) for preset, quirks in PRESETS.items() if quirks.own}


def is_refused(name: str) -> bool:
    """Whether a request with the field is refused, where others lose it."""
    return ChatRequest.field_classes.get(name, "semantic") == "semantic"

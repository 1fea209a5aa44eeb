"""docs/providers/bedrock.md and cohere.md say what the code says: every key and flag, and configurations that load."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.config.loader import load
from gateway.config.secret import secret_hook
from gateway_providers.bedrock import BedrockProvider
from gateway_providers.bedrock.models import BedrockFlags
from gateway_providers.cohere import CohereProvider
from gateway_providers.cohere.models import ModelFlags

DOCS = Path(__file__).parent.parent.parent / "docs" / "providers"
PAGES: list[tuple[str, Any, Any]] = [
    ("bedrock", BedrockProvider, BedrockFlags),
    ("cohere", CohereProvider, ModelFlags),
]


def rows(text: str) -> set[str]:
    """The names in the first column of a page's tables."""
    return {name for row in re.findall(r"^\| (`.+?) \|", text, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)}


@pytest.mark.parametrize(("name", "provider", "flags"), PAGES)
def test_every_key_and_flag_is_documented_and_no_other(name: str, provider: Any, flags: Any) -> None:
    text = (DOCS / f"{name}.md").read_text(encoding="utf-8")
    documented = rows(text)
    if name == "bedrock":  # whose page leaves the flags of Claude models to Anthropic's
        documented |= rows((DOCS / "anthropic.md").read_text(encoding="utf-8")) & set(flags.__struct_fields__)
    assert documented == {*provider.Options.__struct_fields__, *flags.__struct_fields__}


@pytest.mark.parametrize(("name", "provider", "flags"), PAGES)
def test_configurations_of_the_page_load(name: str, provider: Any, flags: Any, tmp_path: Path) -> None:
    blocks = re.findall(r"```toml\n(.*?)```", (DOCS / f"{name}.md").read_text(encoding="utf-8"), re.DOTALL)
    file = tmp_path / "gateway.toml"
    file.write_text("\n".join(blocks), encoding="utf-8")
    options = tomllib.loads(file.read_text(encoding="utf-8"))["providers"][name]
    assert options.pop("plugin") == name
    assert msgspec.convert(options, provider.Options, dec_hook=secret_hook).models
    assert load(file).models

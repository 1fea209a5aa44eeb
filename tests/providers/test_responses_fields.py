"""The table of docs/providers/openai.md, "Responses", is the data of `responses_fields`, and the switch is obeyed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from gateway import Target, Upstream
from gateway.schemas.native_request import MESSAGES, RESPONSES
from gateway_providers.azure import AzureProvider
from gateway_providers.openai import OpenAIProvider
from gateway_providers.openai.responses_fields import AZURE, CORE, NONE, OPENAI, PRESETS, Support

PAGE = (Path(__file__).parents[2] / "docs" / "providers" / "openai.md").read_text(encoding="utf-8")
ROWS: Mapping[str, Support] = {"OpenAI": OPENAI, "Azure": AZURE, **PRESETS, "others": NONE}


def words(names: Iterable[str]) -> str:
    """Names as the page writes them."""
    return ", ".join(f"`{name}`" for name in sorted(names)) or "–"


def table() -> str:
    """The rows of the table."""
    return "\n".join(
        f"| {name if name[0].isupper() or name == 'others' else f'`{name}`'} | {'yes' if row.on else 'no'} | "
        f"{words(row.accepted.fields - CORE)} | {words(row.accepted.tools)} |"
        for name, row in ROWS.items()
    )


def test_page_has_the_rows_and_the_usual_fields() -> None:
    assert table() in PAGE
    assert " ".join(f"The usual fields are {words(CORE)}.".split()) in " ".join(PAGE.split())


def accepted(provider: type[Any], **options: Any) -> Any:
    """What a provider with these options takes."""
    made = provider(provider.Options(**options), Upstream())
    return made.accepted_fields(RESPONSES, Target("p", "m"))


AZURE_OPTIONS = {"endpoint": "https://a.openai.azure.com", "token": "x"}


@pytest.mark.parametrize(
    ("options", "row"),
    [
        ({}, OPENAI),
        ({"base_url": "https://other.example/v1"}, None),
        ({"base_url": "https://other.example/v1", "responses": True}, NONE),
        ({"responses": False}, None),
        ({"preset": "vllm"}, None),
        ({"preset": "vllm", "responses": True}, PRESETS["vllm"]),
        ({"preset": "mistral", "responses": True}, NONE),
    ],
)
def test_dialect_is_on_where_the_server_has_it_unless_the_options_say_otherwise(
    options: dict[str, Any], row: Support | None
) -> None:
    assert accepted(OpenAIProvider, **options) == (row.accepted if row is not None else None)


def test_older_paths_of_azure_do_not_have_it() -> None:
    assert accepted(AzureProvider, **AZURE_OPTIONS) == AZURE.accepted
    assert accepted(AzureProvider, **AZURE_OPTIONS, api_version="2024-10-21") is None


def test_options_replace_the_fields_and_the_tools() -> None:
    taken = accepted(OpenAIProvider, responses_fields=("seed",), responses_tools=("file_search",))
    assert (taken.fields, taken.tools) == (CORE | {"seed"}, {"file_search"})


def test_other_dialects_are_not_taken() -> None:
    made = OpenAIProvider(OpenAIProvider.Options(), Upstream())
    assert made.accepted_fields(MESSAGES, Target("p", "m")) is None

"""The table of docs/providers/openai.md, "Completions", is the data of `completions_fields`; the switch is obeyed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from gateway import AcceptedFields, Target, Upstream
from gateway.config.secret import Secret
from gateway.schemas.completions.native import PROMPTS, TOKENS, WITHOUT
from gateway.schemas.native_request import COMPLETIONS
from gateway.testing import FakeUpstream, check_provider
from gateway_providers.azure import AzureProvider
from gateway_providers.openai import OpenAIProvider
from gateway_providers.openai.completions_fields import ALL, CORE, PRESETS
from gateway_providers.openai.presets import PRESETS as QUIRKS

PAGE = (Path(__file__).parents[2] / "docs" / "providers" / "openai.md").read_text(encoding="utf-8")
OFFICIAL = "for `gpt-3.5-turbo-instruct`, `davinci-002`, `babbage-002` and models tuned from them"
FORMS = {WITHOUT: "null", PROMPTS: "several prompts", TOKENS: "token numbers"}
KEY = Secret("literal", "sk-completions-canary-0123456789")


def words(names: Iterable[str]) -> str:
    """Names as the page writes them."""
    return ", ".join(f"`{name}`" for name in sorted(names)) or "–"


def table() -> str:
    """The rows of the table."""
    rows: Mapping[str, tuple[str, AcceptedFields]] = {
        "OpenAI": (OFFICIAL, ALL),
        **{f"`{name}`": ("yes", row) for name, row in PRESETS.items()},
        "others": ("no", ALL),
    }
    return "\n".join(
        f"| {name} | {forwarded} | {words(row.fields - CORE)} | "
        f"{', '.join(text for form, text in FORMS.items() if form in row.forms) or '–'} |"
        for name, (forwarded, row) in rows.items()
    )


def test_page_has_the_rows_and_the_usual_fields() -> None:
    assert table() in PAGE
    assert " ".join(f"The usual fields are {words(CORE)}.".split()) in " ".join(PAGE.split())


def accepted(provider: type[Any], model: str = "m", **options: Any) -> Any:
    """What a provider with these options takes."""
    made = provider(provider.Options(**options), Upstream())
    return made.accepted_fields(COMPLETIONS, Target("p", model))


@pytest.mark.parametrize(
    ("options", "row"),
    [
        ({"base_url": "https://other.example/v1"}, None),
        ({"base_url": "https://other.example/v1", "completions": True}, ALL),
        ({"preset": "vllm"}, PRESETS["vllm"]),
        ({"preset": "vllm", "completions": False}, None),
        ({"preset": "mistral"}, None),
        ({"preset": "groq"}, None),
        ({"preset": "mistral", "completions": True}, ALL),
    ],
)
def test_server_gets_completions_by_its_preset_unless_the_option_says_otherwise(
    options: dict[str, Any], row: AcceptedFields | None
) -> None:
    found = accepted(OpenAIProvider, **options)
    if row is None:
        assert found is None
    else:
        own = QUIRKS[options["preset"]].own if "preset" in options else frozenset()
        assert (found.fields - own, found.forms) == (row.fields, row.forms)


def test_fields_of_the_preset_and_of_the_operator_are_forwarded() -> None:
    found = accepted(OpenAIProvider, preset="vllm", forward_params=("best_of",))
    assert {"top_k", "best_of"} <= found.fields
    assert "suffix" not in found.fields


@pytest.mark.parametrize(
    ("model", "has_them"),
    [
        ("gpt-3.5-turbo-instruct", True),
        ("gpt-3.5-turbo-instruct-0914", True),
        ("davinci-002", True),
        ("ft:babbage-002:acme::abc", True),
        ("gpt-3.5-turbo", False),
        ("gpt-5", False),
        ("davinci-0021", False),
    ],
)
def test_only_models_of_openai_that_have_completions_get_them(model: str, has_them: bool) -> None:
    assert (accepted(OpenAIProvider, model) is not None) is has_them
    assert accepted(OpenAIProvider, model, completions=False) is None


def test_azure_gets_them_only_by_the_option() -> None:
    options: dict[str, Any] = {"endpoint": "https://a.openai.azure.com", "api_key": KEY}
    assert accepted(AzureProvider, "davinci-002", **options) is None
    assert accepted(AzureProvider, "deployed", completions=True, **options) == ALL


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"completions": True}, {"preset": "vllm"}, {"preset": "ollama"}], ids=str)
def test_servers_with_completions_conform(options: dict[str, Any]) -> None:
    options = {"base_url": "{upstream}/v1", "api_key": KEY, **options}
    report = check_provider(OpenAIProvider, options=options, upstream=FakeUpstream())
    assert {"completion_is_sound", "completion_fields_are_sent", "cut_completion_never_looks_whole"} <= set(report)
    assert ("choices_are_numbered_by_prompt" in report) is (options.get("preset") != "ollama")

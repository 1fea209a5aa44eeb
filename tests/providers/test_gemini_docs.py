"""The page about the `gemini` provider says what the code says."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from gateway.config.loader import parse
from gateway_providers.gemini import GeminiProvider
from gateway_providers.gemini.finish import FAILED, FILTERED, VAGUE
from gateway_providers.gemini.model_flags import ModelFlags

PAGE = (Path(__file__).parents[2] / "docs" / "providers" / "gemini.md").read_text(encoding="utf-8")
ROWS = [line.split("|")[1:4] for line in PAGE.splitlines() if line.startswith("| `")]
TOLD = {name: value.strip() for names, value, _ in ROWS for name in re.findall(r"`(\w+)`", names)}


@pytest.mark.parametrize("kind", [GeminiProvider.Options, ModelFlags])
def test_every_option_and_flag_is_in_a_table(kind: Any) -> None:
    assert set(kind.__struct_fields__) <= set(TOLD)


def test_no_other_option_or_flag_is_in_a_table() -> None:
    assert set(TOLD) == {*GeminiProvider.Options.__struct_fields__, *ModelFlags.__struct_fields__}


def test_defaults_in_the_tables_equal_those_of_the_code() -> None:
    defaults = {"auth": '"google"', "max_inline_audio": 14 * 1024 * 1024}
    flags = ModelFlags()
    for name in ("thinking", "least_budget", "least_thought", "most_budget", "max_output_tokens", "signatures"):
        value = getattr(flags, name)
        defaults[name] = f'"{value}"' if isinstance(value, str) else str(value).lower()
    assert {name: TOLD[name].strip("`") for name in defaults} == {name: str(value) for name, value in defaults.items()}
    assert GeminiProvider.Options().max_inline_audio == defaults["max_inline_audio"]


def test_configuration_examples_are_valid(tmp_path: Path) -> None:
    examples = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    assert len(examples) == 3
    for example in examples:
        table = tomllib.loads(example)
        for provider in table["providers"].values():
            provider.setdefault("plugin", "gemini")
        settings = parse({"store": {"data_dir": str(tmp_path)}, "groups": {"default": {}}, **table})
        for name in table["providers"]:
            settings.provider_options(name, GeminiProvider.Options)


def test_finish_reasons_on_the_page_equal_those_of_the_code() -> None:
    section = PAGE.split("## Finish reasons\n", 1)[1].split("\n## ", 1)[0].replace("\n  ", " ")
    told = {
        ours: set(re.findall(r"`([A-Z_]+)`", theirs))
        for ours, theirs in re.findall(r"^- (.*?): (.*)$", section, re.MULTILINE)
    }
    assert told == {
        "`tool_calls`": set(),
        "`stop`": {"STOP", "NO_IMAGE"},
        "`length`": {"MAX_TOKENS"},
        "`content_filter`": FILTERED,
        "`stop` after some text, otherwise `content_filter`": VAGUE,
        "`stop` after some output, otherwise a 502 `upstream_invalid_response`": FAILED,
    }

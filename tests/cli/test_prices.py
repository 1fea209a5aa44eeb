"""`gateway prices`: what a file changes is shown before it holds; nothing bad or absurd holds by accident."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.cli.prices import NAMED
from gateway.config.loader import load
from gateway.discovery.discovered import NO_LISTS
from gateway.setup.pattern_changes import PatternChange, pattern_changes
from gateway.setup.price_files import read_price_file
from gateway.setup.price_tables import rows_of, write_table
from tests.cli.conftest import Terminal
from tests.discovery.lists import settings_of
from tests.discovery.shared_lists import MODELS, known_lists

CONFIG = """
[store]
data_dir = "{folder}"

[providers.openai]
plugin = "openai"

[models.mini]
provider = "openai"
price = "openai/gpt-5-mini"

[models.pinned]
provider = "openai"
price = "openai/gpt-5@2026-11"
"""
NOON = datetime.now(UTC).replace(hour=12)
TODAY = NOON.date().isoformat()


@pytest.fixture
def prices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A configuration that uses public prices; no store is needed."""
    clock = SimpleNamespace(now=NOON.astimezone)  # the day does not end while the commands run
    monkeypatch.setattr("gateway.cli.prices.datetime", clock)
    config = tmp_path / "gateway.toml"
    config.write_text(CONFIG.format(folder=tmp_path / "var"))
    return Terminal(config)


def price_of(terminal: Terminal, model: str = "mini") -> int | None:
    price = load(terminal.config).models[model].price
    assert price is not None
    return price[0].input


def write(folder: Path, text: str, name: str = "new.toml") -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def own(**rows: str) -> str:
    """A table whose other rows of openai are those that the configuration needs."""
    lines = {"openai/gpt-5-mini": "{ input = 0.5, output = 4 }", **rows}
    return "".join(f'"{name}" = {row}\n' for name, row in lines.items())


def tables(tmp_path: Path) -> list[str]:
    folder = tmp_path / "var" / "prices"
    return sorted(file.name for file in folder.iterdir()) if folder.is_dir() else []


def test_a_file_renews_its_vendors_and_the_table_has_the_name_of_the_day(prices: Terminal, tmp_path: Path) -> None:
    file = write(tmp_path, own())
    result = prices.run("prices", "update", "--from", file, "--yes")
    assert result.exit_code == 0, result.output
    assert "openai/gpt-5-mini" in result.stdout
    assert "input=0.25" in result.stdout and "input=0.5" in result.stdout and "mini" in result.stdout
    assert tables(tmp_path) == [f"{TODAY}.toml"]
    assert price_of(prices) == 500_000_000
    assert price_of(prices, "pinned") == 1_250_000_000  # the month it names
    assert "anthropic/claude-opus-4-1" in load(prices.config).tables.read()  # of another vendor
    assert "openai/gpt-4o" not in load(prices.config).tables.read()


def test_models_of_patterns_whose_price_changes_are_named_within_bounds(prices: Terminal, tmp_path: Path) -> None:
    pattern = '[models."openai/*"]\nprovider = "openai"\nprice = "public"\n'
    prices.config.write_text(prices.config.read_text() + pattern)
    file = write(tmp_path, own(**{"openai/gpt-new": "{ input = 1, output = 2 }"}))
    result = prices.run("prices", "update", "--from", file, "--dry-run", "--allow-large", "--json")
    changes = {one["model"]: one["change"] for one in json.loads(result.stdout)["pattern_models"]}
    assert changes["openai/gpt-5-mini"] == "changed"
    assert changes["openai/gpt-new"] == "added"
    assert set(changes.values()) == {"changed", "added", "removed"}
    shown = prices.run("prices", "update", "--from", file, "--dry-run", "--allow-large").stderr
    lines = [line for line in shown.splitlines() if "of a pattern: " in line]
    assert len(lines) == NAMED < len(changes)
    assert f"and {len(changes) - NAMED} more models of patterns" in shown


def test_models_of_lists_whose_price_changes_are_named(tmp_path: Path) -> None:
    rule = 'price = ["public", "upstream"]'
    text = MODELS.replace('price = "upstream"', rule)
    settings = settings_of(text, tmp_path)
    rows = {**rows_of(settings.tables), "acme/large": [{"input": 9, "output": 9}]}
    assert pattern_changes(settings, rows, NO_LISTS) == []
    changed = pattern_changes(settings, rows, known_lists(settings))
    assert changed == [PatternChange(model="router/acme/large", change="changed")]
    rows["acme/unpriced"] = rows["acme/large"]
    added = pattern_changes(settings, rows, known_lists(settings))
    assert PatternChange(model="router/acme/unpriced", change="added") in added


def test_a_second_file_of_the_day_gets_a_number_and_a_table_is_never_changed(prices: Terminal, tmp_path: Path) -> None:
    prices.ok("prices", "update", "--from", write(tmp_path, own()), "--yes")
    before = (tmp_path / "var" / "prices" / f"{TODAY}.toml").read_bytes()
    again = own().replace("0.5", "0.75")
    prices.ok("prices", "update", "--from", write(tmp_path, again), "--yes")
    assert tables(tmp_path) == [f"{TODAY}.2.toml", f"{TODAY}.toml"]
    assert (tmp_path / "var" / "prices" / f"{TODAY}.toml").read_bytes() == before
    assert price_of(prices) == 750_000_000


def test_it_asks_and_writes_nothing_without_a_yes(prices: Terminal, tmp_path: Path) -> None:
    file = write(tmp_path, own())
    no = prices.run("prices", "update", "--from", file, stdin="n\n")
    assert no.exit_code == 1
    assert "Apply 1 changed" in no.stderr
    nobody = prices.run("prices", "update", "--from", file)
    assert nobody.exit_code == 1
    dry = prices.run("prices", "update", "--from", file, "--dry-run")
    assert dry.exit_code == 0
    assert "nothing was written" in dry.stderr
    assert tables(tmp_path) == []
    assert prices.run("prices", "update", "--from", file, stdin="y\n").exit_code == 0
    assert len(tables(tmp_path)) == 1


def test_the_document_has_each_change(prices: Terminal, tmp_path: Path) -> None:
    file = write(tmp_path, own(**{"openai/new": "{ input = 1, output = 2 }"}))
    document = json.loads(prices.ok("prices", "update", "--from", file, "--dry-run", "--json"))
    rows = {row["name"]: row for row in document["changes"]}
    assert (document["form"], document["table"]) == ("gateway", "")
    assert rows["openai/gpt-5-mini"]["change"] == "changed"
    assert rows["openai/gpt-5-mini"]["models"] == ["mini"]
    assert rows["openai/new"]["change"] == "added"
    assert rows["openai/gpt-4o"]["change"] == "removed"


def test_bad_rows_are_named_and_refuse_the_file_unless_they_are_skipped(prices: Terminal, tmp_path: Path) -> None:
    rows = {
        "openai/a": "{ input = -1, output = 1 }",
        "openai/b": "{ input = nan, output = 1 }",
        "openai/c": '{ input = "x", output = 1 }',
        "openai/d": "{ input = 0, output = 0 }",
        "openai/e": "{ inptu = 1 }",
        "openai/f": "{ input = 200000, output = 1 }",
        "openai/g": "7",
        "noslash": "{ input = 1, output = 1 }",
        "openai/h": '{ input = 1, output = 1, currency = "EUR" }',
    }
    file = write(tmp_path, own(**rows))
    refused = prices.run("prices", "update", "--from", file, "--yes")
    assert refused.exit_code == 1
    for name in rows:
        assert f"gateway: {name}: " in refused.stderr
    assert "--skip-bad" in refused.stderr
    assert tables(tmp_path) == []
    prices.ok("prices", "update", "--from", file, "--yes", "--skip-bad")
    assert not rows.keys() & load(prices.config).tables.read().keys()
    assert price_of(prices) == 500_000_000


@pytest.mark.parametrize("amounts", ["input = 3, output = 2", "input = 0.02, output = 2", "input = 0.25, output = 0"])
def test_changes_by_more_than_ten_times_need_a_word_of_the_operator(
    prices: Terminal, tmp_path: Path, amounts: str
) -> None:
    file = write(tmp_path, own(**{"openai/gpt-5-mini": f"{{ {amounts} }}"}))
    refused = prices.run("prices", "update", "--from", file, "--yes")
    assert refused.exit_code == 1
    assert "openai/gpt-5-mini: " in refused.stderr
    assert "--allow-large" in refused.stderr
    assert tables(tmp_path) == []
    prices.ok("prices", "update", "--from", file, "--yes", "--allow-large")
    assert len(tables(tmp_path)) == 1


def test_a_price_that_the_configuration_uses_cannot_be_removed(prices: Terminal, tmp_path: Path) -> None:
    file = write(tmp_path, '"openai/other" = { input = 1, output = 1 }\n')
    refused = prices.run("prices", "update", "--from", file, "--yes")
    assert refused.exit_code == 1
    assert "openai/gpt-5-mini is not in the new table, and is the price of mini" in refused.stderr
    assert "openai/gpt-5 is" not in refused.stderr  # pinned to its month
    assert tables(tmp_path) == []


def test_a_table_is_taken_back_by_a_new_one(prices: Terminal, tmp_path: Path) -> None:
    prices.ok("prices", "update", "--from", write(tmp_path, own()), "--yes")
    prices.ok("prices", "revert", "--yes")
    assert price_of(prices) == 250_000_000
    assert "openai/gpt-4o" in load(prices.config).tables.read()
    assert tables(tmp_path) == [f"{TODAY}.2.toml", f"{TODAY}.toml"]
    listed = prices.json("prices", "tables")
    assert [(row["table"], row["source"], row["newest"]) for row in listed] == [
        ("2026-11", "the program", False),
        (TODAY, "this installation", False),
        (f"{TODAY}.2", "this installation", True),
    ]
    prices.ok("prices", "revert", "--to", TODAY, "--yes")
    assert price_of(prices) == 500_000_000
    assert "no price table is named" in prices.run("prices", "revert", "--to", "2020-01").stderr


def test_without_a_table_before_there_is_nothing_to_take_back(prices: Terminal) -> None:
    assert "there is no table before the newest one" in prices.refused("prices", "revert", "--yes")


def test_a_file_that_changes_nothing_writes_nothing(prices: Terminal, tmp_path: Path) -> None:
    prices.ok("prices", "update", "--from", write(tmp_path, own()), "--yes")
    again = prices.run("prices", "update", "--from", write(tmp_path, own()), "--yes")
    assert "nothing was written: 0 changed, 0 added, 0 removed" in again.stderr
    assert len(tables(tmp_path)) == 1


def test_the_clock_of_the_machine_cannot_put_a_table_before_the_newest(prices: Terminal, tmp_path: Path) -> None:
    later = datetime(2099, 1, 1, tzinfo=UTC)
    rows: dict[str, Any] = {"openai/gpt-5-mini": [{"input": 1, "output": 1}]}
    assert write_table(tmp_path / "var", rows, source="x", now=later) == "2099-01-01"
    refused = prices.run("prices", "update", "--from", write(tmp_path, own()), "--yes")
    assert refused.exit_code == 1
    assert "the newest table is 2099-01-01" in refused.stderr


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"a": 1, "a": 2}', "\x00", '{"data": []}', "[" * 100_000])
def test_what_is_no_file_of_prices_is_refused(prices: Terminal, tmp_path: Path, text: str) -> None:
    result = prices.run("prices", "update", "--from", write(tmp_path, text), "--yes")
    assert result.exit_code == 1
    assert "Traceback" not in result.output
    assert tables(tmp_path) == []


# Other forms ---------------------------------------------------------------------------------------------------------

LITELLM = {
    "sample_spec": {"input_cost_per_token": 0, "litellm_provider": "one of …"},
    "gpt-5-mini": {
        "litellm_provider": "openai",
        "mode": "chat",
        "max_tokens": 128000,
        "input_cost_per_token": 2.5e-07,
        "output_cost_per_token": 2e-06,
        "cache_read_input_token_cost": 2.5e-08,
        "output_cost_per_reasoning_token": 0,
    },
    "gemini/gemini-2.5-pro": {
        "litellm_provider": "gemini",
        "mode": "chat",
        "input_cost_per_token": 1.25e-06,
        "output_cost_per_token": 1e-05,
        "input_cost_per_token_above_200k_tokens": 2.5e-06,
        "output_cost_per_token_above_200k_tokens": 1.5e-05,
    },
    "text-embedding-3-small": {
        "litellm_provider": "openai", "mode": "embedding", "input_cost_per_token": 2e-08, "output_cost_per_token": 0.0,
    },
    "dall-e-3": {"litellm_provider": "openai", "mode": "image_generation", "output_cost_per_image": 0.04},
    "rerank-1": {"litellm_provider": "cohere", "mode": "rerank", "input_cost_per_query": 0.002},
    "ocr-1": {"litellm_provider": "mistral", "mode": "ocr", "ocr_cost_per_page": 0.001},
    "free-one": {"litellm_provider": "openai", "mode": "chat", "input_cost_per_token": 0, "output_cost_per_token": 0},
}  # fmt: skip


def test_the_file_of_litellm_is_read() -> None:
    found = read_price_file(json.dumps(LITELLM).encode())
    assert found.form == "litellm"
    assert found.bad == {}
    shown: dict[str, dict[str, Any]] = {
        name: {key: str(value) if not isinstance(value, (dict, list)) else value for key, value in row[0].items()}
        for name, row in found.rows.items()
    }
    assert shown["openai/gpt-5-mini"] == {"input": "0.25", "output": "2", "cached_input": "0.025"}
    assert {key: shown["google/gemini-2.5-pro"][key] for key in ("input", "output")} == {
        "input": "1.25",
        "output": "1E+1",
    }
    [tier] = shown["google/gemini-2.5-pro"]["tiers"]
    assert (tier["above_input_tokens"], f"{tier['input']:f}", f"{tier['output']:f}") == (200_000, "2.5", "15")
    assert shown["openai/text-embedding-3-small"]["input"] == "0.02"
    assert "per_image" in shown["openai/dall-e-3"]
    assert shown["cohere/rerank-1"] == {"per_search_unit": "0.002"}
    assert found.left_out == {"mode ocr": 1, "no price": 1}


def test_wrong_amounts_of_litellm_are_named() -> None:
    wrong = {
        name: {"litellm_provider": "openai", "input_cost_per_token": amount, "output_cost_per_token": 1e-06}
        for name, amount in (("a", "1e-06"), ("b", -1), ("c", [1]), ("d", 1e9), ("e", True))
    }
    assert read_price_file(json.dumps(wrong).encode()).bad.keys() == {f"openai/{name}" for name in wrong}
    assert (
        "openai/n"
        in read_price_file(
            b'{"n": {"litellm_provider": "openai", "input_cost_per_token": NaN, "output_cost_per_token": 1}}'
        ).bad
    )


def test_the_list_of_openrouter_is_read_and_written(prices: Terminal, tmp_path: Path) -> None:
    def entry(name: str, prompt: str, completion: str) -> dict[str, Any]:
        return {"id": name, "pricing": {"prompt": prompt, "completion": completion, "image": "0", "request": "0"}}

    document = {
        "data": [
            entry("openai/gpt-5-mini", "0.00000025", "0.000002"),
            entry("acme/free:free", "0", "0"),
            entry("openrouter/auto", "-1", "-1"),
        ]
    }
    file = write(tmp_path, json.dumps(document), "models.json")
    result = prices.run("prices", "update", "--from", file, "--yes")
    assert result.exit_code == 0, result.output
    assert "left out: 1 (free), 1 (no fixed price)" in result.stderr
    rows = load(prices.config).tables.read()
    assert str(rows["openrouter/openai/gpt-5-mini"]["input"]) == "0.25"
    assert price_of(prices) == 250_000_000
    text = (tmp_path / "var" / "prices" / f"{TODAY}.toml").read_text()
    assert "Source: models.json, sha256 " in text
    assert str(tmp_path) not in text
    prices.config.write_text(
        prices.config.read_text() + '[models."openrouter/*"]\nprovider = "openai"\nmodel = "*"\nprice = "public"\n'
    )
    assert load(prices.config).models["openrouter/openai/gpt-5-mini"].model == "openai/gpt-5-mini"

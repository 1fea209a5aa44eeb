"""`gateway prices` against hostile files, other commands at the same time, and files that cannot be read."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gateway.config.public_tables import PublicTables, UnreadableTable
from gateway.errors import InvalidValue
from gateway.setup.price_tables import changes, write_table
from tests.cli.conftest import Terminal
from tests.cli.test_prices import TODAY, own, price_of, prices, tables, write

__all__ = ["prices"]

MINI = "openai/gpt-5-mini"
BASE = "input = 0.25, output = 2"


@pytest.mark.parametrize(
    "row",
    [
        "[{ input = 0.0001, output = 0.0001 }, { input = 0.25, output = 2, effective_from = 2099-01-01 }]",
        f"[{{ {BASE} }}, {{ input = 0.0001, output = 0.001, effective_from = 2099-01-01 }}]",
        f"{{ {BASE}, tiers = [{{ above_input_tokens = 100, input = 0, output = 0 }}] }}",
        f"{{ {BASE}, tiers = [{{ above_input_tokens = 100, output = 0.001 }}] }}",
        f"{{ {BASE}, cached_input = 0 }}",
        f'{{ {BASE}, cached_input = "0.000001" }}',
        f"{{ {BASE}, service_tier_multiplier = {{ new = 0.000001 }} }}",
    ],
    ids=["today", "later", "tier_free", "tier_low", "cached_free", "text", "service_tier"],
)
def test_no_part_of_a_price_becomes_free_or_far_lower_without_a_word(
    prices: Terminal, tmp_path: Path, row: str
) -> None:
    refused = prices.run("prices", "update", "--from", write(tmp_path, own(**{MINI: row})), "--yes")
    assert refused.exit_code == 1, refused.output
    assert "--allow-large" in refused.stderr
    assert tables(tmp_path) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"per_image": {"*": 1}}, {"per_image": {"*": 0, "hd": 1}}),
        ({"input": 1, "output": 1, "per_request": 1}, {"input": 1, "output": 1}),
        ({"per_second_in": 1, "minimum": 1}, {"minimum": 1}),
    ],
)
def test_an_amount_that_is_charged_no_more_is_a_large_change(old: dict[str, Any], new: dict[str, Any]) -> None:
    assert changes({"a/b": [old]}, {"a/b": [new]}, {})[0].large


def test_a_default_in_place_of_an_amount_is_no_large_change() -> None:
    old = {"input": 1, "cached_input": 1, "output": 2, "reasoning": 2, "service_tier_multiplier": {"flex": 1}}
    assert changes({"a/b": [old]}, {"a/b": [{"input": 1, "output": 2}]}, {})[0].large == ""


def test_a_table_that_another_command_writes_before_the_yes_is_not_taken_back_unseen(
    prices: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def confirm(*_: Any, **__: Any) -> None:
        prices.ok("prices", "update", "--from", write(tmp_path, own(), "other.toml"), "--yes")

    monkeypatch.setattr("click.confirm", confirm)
    file = write(tmp_path, own(**{MINI: "{ input = 0.3, output = 2 }"}))
    late = prices.run("prices", "update", "--from", file)
    assert late.exit_code == 1
    assert f"another command has written {TODAY} meanwhile" in late.stderr
    assert price_of(prices) == 500_000_000
    assert tables(tmp_path) == [f"{TODAY}.toml"]


def test_the_hundredth_table_of_a_day_is_refused_instead_of_ignored(tmp_path: Path) -> None:
    rows: dict[str, Any] = {MINI: [{"input": 1, "output": 1}]}
    now = datetime.now(UTC)
    (tmp_path / "prices").mkdir()
    (tmp_path / "prices" / f"{now.date().isoformat()}.99.toml").write_text("")
    with pytest.raises(InvalidValue, match="at most 99 tables"):
        write_table(tmp_path, rows, source="x", now=now)
    assert len(list((tmp_path / "prices").iterdir())) == 1


def test_a_new_data_directory_is_private_and_its_tables_can_be_read_under_any_umask(
    prices: Terminal, tmp_path: Path
) -> None:
    before = os.umask(0o077)
    try:
        prices.ok("prices", "update", "--from", write(tmp_path, own()), "--yes")
    finally:
        os.umask(before)
    folder = tmp_path / "var"
    modes = [path.stat().st_mode & 0o777 for path in (folder, folder / "prices", folder / "prices" / f"{TODAY}.toml")]
    assert modes == [0o700, 0o755, 0o644]


def test_the_name_of_a_file_adds_no_line_to_the_table(prices: Terminal, tmp_path: Path) -> None:
    name = 'x\n"openai_gpt-4o" = { input = 0.000001, output = 0 }\n#.toml'
    prices.ok("prices", "update", "--from", write(tmp_path, own(), name), "--yes")
    assert "openai_gpt-4o" not in "".join(
        line for line in (tmp_path / "var" / "prices" / f"{TODAY}.toml").read_text().splitlines() if line[:1] != "#"
    )


@pytest.mark.parametrize(
    "amounts",
    ["input = 1e99999999999999999999, output = 2", f"input = 0.{'1' * 5000}, output = 2", "input = 1e-30, output = 2"],
)
def test_numbers_without_bounds_are_a_problem_and_no_fault(prices: Terminal, tmp_path: Path, amounts: str) -> None:
    result = prices.run("prices", "update", "--from", write(tmp_path, f'"{MINI}" = {{ {amounts} }}\n'), "--yes")
    assert result.exit_code == 1
    assert "internal error" not in result.stderr
    assert "too large" in result.stderr or f"{MINI}: " in result.stderr


def test_a_file_without_an_end_is_refused(prices: Terminal) -> None:
    assert "the file is over" in prices.refused("prices", "update", "--from", "/dev/zero", "--yes")


def test_a_file_cannot_write_control_characters_to_the_terminal(prices: Terminal, tmp_path: Path) -> None:
    row = f'{{ {BASE}, service_tier_multiplier = {{ "\\u001b[2J" = 0.5 }} }}'
    result = prices.run("prices", "update", "--from", write(tmp_path, own(**{MINI: row})), "--yes")
    assert result.exit_code == 1
    assert "control characters" in result.stderr
    modes = '{"a": {"mode": "\\u001b[2J", "litellm_provider": "x"}}'
    result = prices.run("prices", "update", "--from", write(tmp_path, modes), "--yes")
    assert "\x1b" not in result.output


@pytest.mark.parametrize("content", [b"[", b"\xff", b"a = 1e99999999999999999999"])
def test_a_table_that_cannot_be_read_is_named_and_no_other_table_holds(
    prices: Terminal, tmp_path: Path, content: bytes
) -> None:
    prices.ok("prices", "update", "--from", write(tmp_path, own()), "--yes")
    (tmp_path / "var" / "prices" / f"{TODAY}.toml").write_bytes(content)
    text = prices.config.read_text()
    pattern = '[models."openai/*"]\nprovider = "openai"\nprice = "public"\n'
    for models in (text[text.index("[models") :], pattern):
        prices.config.write_text(text[: text.index("[models")] + models)
        result = prices.run("prices", "tables")
        assert result.exit_code != 0
        assert f"{TODAY}.toml cannot be read" in result.stderr
        assert "internal error" not in result.stderr


def test_an_older_table_that_cannot_be_read_is_named(prices: Terminal, tmp_path: Path) -> None:
    for amount in ("0.5", "0.75"):
        prices.ok("prices", "update", "--from", write(tmp_path, own().replace("0.5", amount)), "--yes")
    (tmp_path / "var" / "prices" / f"{TODAY}.toml").write_bytes(b"[")
    for command in (["tables"], ["revert", "--yes"]):
        said = prices.refused("prices", *command)
        assert f"{TODAY}.toml cannot be read" in said and "internal error" not in said


def test_a_folder_of_tables_that_cannot_be_read_is_named_and_no_other_table_holds(
    prices: Terminal, tmp_path: Path
) -> None:
    (tmp_path / "var").mkdir()
    (tmp_path / "var" / "prices").write_text("")
    result = prices.run("prices", "tables")
    assert result.exit_code != 0
    assert "cannot be read: Not a directory" in result.stderr


def test_a_table_that_siblings_use_and_that_is_gone_is_not_replaced_by_another(tmp_path: Path) -> None:
    with pytest.raises(UnreadableTable, match="2026-12-09 is no longer in"):
        PublicTables.of(tmp_path, "2026-12-09")

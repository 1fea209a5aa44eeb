"""docs/architecture.md matches the code: paths, packages and ranks."""

from __future__ import annotations

import re
from pathlib import Path

from tests.test_layers import RANKS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
FOLDERS = "gateway|providers|tests|benchmarks|docs|plugins"


def section(title: str) -> str:
    """The text between one heading and the next."""
    return PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]


def ranks_on_the_page() -> list[set[str]]:
    """The names in the first column of the table of ranks, row by row."""
    rows = re.findall(r"^\| (`.*?) \|", section("Package ranks"), re.MULTILINE)
    return [set(re.findall(r"`([^`]+)`", row)) for row in rows]


def test_every_file_path_on_the_page_exists() -> None:
    paths = re.findall(rf"\b(?:{FOLDERS})/[\w./-]*\w", PAGE)
    assert len(set(paths)) > 30
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_every_file_name_on_the_page_has_its_whole_path() -> None:
    names = re.findall(r"[\w./-]+\.(?:py|lua|md|toml)\b", PAGE)
    assert [name for name in names if not re.match(rf"(?:{FOLDERS})/", name)] == []


def test_ranks_on_the_page_are_those_of_the_layer_test() -> None:
    assert ranks_on_the_page() == RANKS


def test_every_package_of_the_gateway_is_in_the_table() -> None:
    packages = {path.parent.name for path in (ROOT / "gateway").glob("*/__init__.py")}
    modules = {path.stem for path in (ROOT / "gateway").glob("*.py")} - {"__init__"}
    assert packages | modules == set().union(*ranks_on_the_page())


def test_streamed_chat_section_has_ten_steps() -> None:
    steps = re.findall(r"^(\d+)\. ", section("One streamed chat in ten steps"), re.MULTILINE)
    assert [int(step) for step in steps] == list(range(1, 11))

"""docs/benchmarks.md and docs/scaling.md name what the bench has, and nothing that it has not."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from benchmarks.__main__ import COMMANDS
from benchmarks.contenders import all_contenders
from benchmarks.costs import FILE, Costs, table_of
from benchmarks.growth import all_dimensions
from benchmarks.instructions.stages import MEANINGS
from benchmarks.scenarios import all_scenarios
from benchmarks.targets import TARGETS

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
SCALING = (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8")


def section(name: str) -> str:
    return re.split(r"^## ", PAGE.split(f"## {name}\n", 1)[1], flags=re.MULTILINE)[0]


def rows(text: str) -> list[str]:
    """The first cells of the rows that begin with code."""
    return re.findall(r"^\| (`.*?) \|", text, re.MULTILINE)


def options(command: str) -> set[str]:
    found = [option for parameter in COMMANDS[command].params for option in parameter.opts]
    return {option for option in found if option.startswith("--")}


def test_each_option_of_the_bench_is_in_the_first_table() -> None:
    table = PAGE.split("| option | meaning |", 1)[1].split("## ", 1)[0]
    assert set(re.findall(r"--[a-z]+", " ".join(rows(table)))) == options("compare")


@pytest.mark.parametrize(
    "command",
    [
        "growth",
        "installation",
        "targets",
        "plot",
        "pairs",
        "instructions",
        "idle-cpu",
        "structure",
        "hostile",
        "console",
        "importer",
        "batches",
        "store-memory",
        "reload",
        "fairness",
        "failover",
    ],
)
def test_options_of_the_other_commands_are_documented(command: str) -> None:
    missing = {option for option in options(command) if f"`{option}" not in PAGE and f" {option}" not in PAGE}
    assert not missing


@pytest.mark.holds("scaling.md#scaling-required-hardware-and-limits-1")
def test_each_command_is_shown_in_a_line_that_runs_it() -> None:
    pages = PAGE + SCALING
    assert [name for name in COMMANDS if name != "compare" and f"python -m benchmarks {name}" not in pages] == []


def test_each_stage_of_a_request_has_a_row() -> None:
    assert re.findall(r"^\| `(.*?)` \|", section("Measure one tree"), re.MULTILINE) == list(MEANINGS)


def test_each_scenario_has_a_row_and_is_named_among_the_options() -> None:
    names = [f"`{name}`" for name in all_scenarios()]
    assert rows(section("Scenarios")) == names
    assert ", ".join(names) in PAGE


def test_each_contender_has_a_row() -> None:
    names = [contender.name for contender in all_contenders(at="", litellm="", portkey="")]
    assert sorted(rows(section("Contenders"))) == sorted(f"`{name}`" for name in names)


def test_each_dimension_of_growth_has_a_row() -> None:
    assert sorted(rows(section("Cost as work grows"))) == sorted(f"`{name}`" for name in all_dimensions())


def test_the_targets_table_is_generated_from_the_targets() -> None:
    table = PAGE.split("<!-- targets:", 1)[1].split("<!-- end of targets -->", 1)[0]
    assert re.findall(r"^\| (.*?) \|", table, re.MULTILINE)[1:] == [target.text for target in TARGETS]


@pytest.mark.holds("README.md#model-gateway-3")
def test_figures_of_the_readme_are_the_medians_of_the_targets_table() -> None:
    readme = re.sub(r"\s+", " ", (ROOT / "README.md").read_text(encoding="utf-8"))
    table = PAGE.split("<!-- targets:", 1)[1].split("<!-- end of targets -->", 1)[0]
    litellm, portkey, stock = (int(median) for median in re.findall(r"\| (\d+)(?:\.\d+)?× \(", table)[:3])
    assert f"serves {litellm} times the requests of LiteLLM's proxy, {portkey} times those of Portkey" in readme
    assert "twice those of a plain pass-through of Tornado and aiohttp" in readme
    assert stock == 2


@pytest.mark.holds("scaling.md#costs-1")
def test_the_table_of_costs_equals_costs_json() -> None:
    table = SCALING.split("<!-- costs:", 1)[1].split("-->\n", 1)[1].split("<!-- end of costs -->", 1)[0]
    assert table == table_of(msgspec.json.decode(FILE.read_bytes(), type=Costs))


@pytest.mark.parametrize("page", ["docs/benchmarks.md", "docs/scaling.md", "README.md"])
def test_plots_shown_on_a_page_exist(page: str) -> None:
    for image in re.findall(r"!\[[^]]*]\(([^):]+\.svg)\)", (ROOT / page).read_text(encoding="utf-8")):
        assert ((ROOT / page).parent / image).is_file(), image

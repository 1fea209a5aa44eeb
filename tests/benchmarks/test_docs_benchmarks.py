"""docs/benchmarks.md and docs/scaling.md name what the bench has, and nothing that it has not."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.polling import ENDS_WITHIN

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
SCALING = (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8")


def section(name: str) -> str:
    return re.split(r"^## ", PAGE.split(f"## {name}\n", 1)[1], flags=re.MULTILINE)[0]


def rows(text: str) -> list[str]:
    """The first cells of the rows that begin with code."""
    return re.findall(r"^\| (`.*?) \|", text, re.MULTILINE)


def told(code: str) -> list[str]:
    """What a piece of Python that knows the bench prints, line by line."""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=ENDS_WITHIN)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def options(command: str) -> set[str]:
    code = f"from benchmarks.__main__ import COMMANDS\nfor p in COMMANDS[{command!r}].params: print(*p.opts, sep='\\n')"
    return {line for line in told(code) if line.startswith("--")}


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
        "store-memory",
        "reload",
        "fairness",
    ],
)
def test_options_of_the_other_commands_are_documented(command: str) -> None:
    missing = {option for option in options(command) if f"`{option}" not in PAGE and f" {option}" not in PAGE}
    assert not missing


@pytest.mark.holds("scaling.md#scaling-required-hardware-and-limits-1")
def test_each_command_is_shown_in_a_line_that_runs_it() -> None:
    names = told("from benchmarks.__main__ import COMMANDS\nprint(*COMMANDS, sep='\\n')")
    pages = PAGE + SCALING
    assert [name for name in names if name != "compare" and f"python -m benchmarks {name}" not in pages] == []


def test_each_stage_of_a_request_has_a_row() -> None:
    names = told("from benchmarks.instructions.stages import MEANINGS\nprint(*MEANINGS, sep='\\n')")
    assert re.findall(r"^\| `(.*?)` \|", section("Measure one tree"), re.MULTILINE) == names


def test_each_scenario_has_a_row_and_is_named_among_the_options() -> None:
    names = told("from benchmarks.scenarios import all_scenarios\nprint(*all_scenarios(), sep='\\n')")
    assert rows(section("Scenarios")) == [f"`{name}`" for name in names]
    assert ", ".join(f"`{name}`" for name in names) in PAGE


def test_each_contender_has_a_row() -> None:
    code = (
        "from benchmarks.contenders import all_contenders\n"
        "print(*(c.name for c in all_contenders(at='', litellm='', portkey='')), sep='\\n')"
    )
    assert sorted(rows(section("Contenders"))) == sorted(f"`{name}`" for name in told(code))


def test_each_dimension_of_growth_has_a_row() -> None:
    names = told("from benchmarks.growth import all_dimensions\nprint(*all_dimensions(), sep='\\n')")
    assert sorted(rows(section("Cost as work grows"))) == sorted(f"`{name}`" for name in names)


def test_the_targets_table_is_generated_from_the_targets() -> None:
    code = "from benchmarks.targets import TARGETS\nfor t in TARGETS: print(t.text)"
    table = PAGE.split("<!-- targets:", 1)[1].split("<!-- end of targets -->", 1)[0]
    assert re.findall(r"^\| (.*?) \|", table, re.MULTILINE)[1:] == told(code)


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
    code = (
        "import msgspec\nfrom benchmarks.costs import FILE, Costs, table_of\n"
        "print(table_of(msgspec.json.decode(FILE.read_bytes(), type=Costs)), end='')"
    )
    table = SCALING.split("<!-- costs:", 1)[1].split("-->\n", 1)[1].split("<!-- end of costs -->", 1)[0]
    assert table.splitlines() == told(code)


@pytest.mark.parametrize("page", ["docs/benchmarks.md", "docs/scaling.md", "README.md"])
def test_plots_shown_on_a_page_exist(page: str) -> None:
    for image in re.findall(r"!\[[^]]*]\(([^):]+\.svg)\)", (ROOT / page).read_text(encoding="utf-8")):
        assert ((ROOT / page).parent / image).is_file(), image

"""The boards of conf/boards are those that their program writes, and read metrics and labels that exist."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.docs.promql import parse
from tests.docs.test_promql import OF_SCRAPE, STORED

BOARDS = Path(__file__).parents[2] / "conf" / "boards"
NAMES = sorted(path.name for path in BOARDS.glob("*.json"))
RUNBOOK = (BOARDS.parents[1] / "docs" / "runbook.md").read_text(encoding="utf-8")


def board(name: str) -> dict[str, Any]:
    """A board as Grafana imports it."""
    document: dict[str, Any] = json.loads((BOARDS / name).read_text(encoding="utf-8"))
    return document


def panels(name: str) -> list[dict[str, Any]]:
    """Its panels without the headings."""
    return [panel for panel in board(name)["panels"] if panel["type"] != "row"]


def expressions(name: str) -> list[str]:
    """What its panels ask, with values for the variables."""
    texts = [target["expr"] for panel in panels(name) for target in panel["targets"]]
    return [text.replace("$__rate_interval", "5m").replace("$model", "m").replace("$provider", "p") for text in texts]


ALL = [(name, expression) for name in NAMES for expression in expressions(name)]


def test_there_are_three_boards() -> None:
    assert NAMES == ["money.json", "operator.json", "providers.json"]
    assert len({board(name)["uid"] for name in NAMES}) == 3


def test_files_are_those_that_the_program_writes() -> None:
    spec = importlib.util.spec_from_file_location("build_boards", BOARDS / "build.py")
    assert spec is not None
    assert spec.loader is not None
    build = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build)
    for name, document in build.BOARDS.items():
        text = (BOARDS / name).read_text(encoding="utf-8")
        assert text == build.text_of(document), f"python conf/boards/build.py writes another {name}"


@pytest.mark.parametrize(("name", "expression"), ALL)
def test_expressions_name_metrics_and_labels_that_exist(name: str, expression: str) -> None:
    found = parse(expression)
    for selector in found.selectors:
        assert selector.metric in STORED, selector.metric
        assert selector.labels <= STORED[selector.metric] | OF_SCRAPE
    known = (STORED[selector.metric] for selector in found.selectors)
    assert found.groups <= OF_SCRAPE.union(*known)


@pytest.mark.parametrize("name", NAMES)
def test_legends_name_labels_of_their_series(name: str) -> None:
    for panel in panels(name):
        for target in panel["targets"]:
            groups = parse(target["expr"].replace("$__rate_interval", "5m")).groups | OF_SCRAPE
            assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= groups, panel["title"]


@pytest.mark.parametrize("name", NAMES)
def test_panels_lie_beside_each_other_and_none_covers_another(name: str) -> None:
    taken = set[tuple[int, int]]()
    for panel in board(name)["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells


@pytest.mark.parametrize("name", NAMES)
def test_sections_of_the_runbook_that_panels_name_exist(name: str) -> None:
    for panel in panels(name):
        for anchor in re.findall(r"docs/runbook\.md#(\w+)", panel["description"]):
            assert re.search(rf"^#+ {anchor}$", RUNBOOK, re.MULTILINE | re.IGNORECASE), anchor


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_prometheus_reads_each_expression(tmp_path: Path) -> None:
    rules = [{"record": f"board:{number}", "expr": expression} for number, (_, expression) in enumerate(ALL)]
    file = tmp_path / "boards.yaml"
    file.write_text(json.dumps({"groups": [{"name": "boards", "rules": rules}]}))
    checked = subprocess.run(["promtool", "check", "rules", file], capture_output=True, text=True, timeout=60)
    assert checked.returncode == 0, checked.stderr
    assert f"{len(ALL)} rules found" in checked.stdout

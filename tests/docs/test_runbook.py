"""docs/runbook.md and docs/operations/upgrade.md have a section for each rule and procedure, and name what exists."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from gateway.config.settings import ServerSettings
from gateway.runtime.process_manager import MANAGED_DELAY
from gateway.runtime.stopping import GRACE
from tests.docs.test_promql import ALERTS, ROOT
from tests.docs.test_promql import test_expressions_name_metrics_and_labels_of_a_scrape as check

RUNBOOK = (ROOT / "docs" / "runbook.md").read_text(encoding="utf-8")
UPGRADE = (ROOT / "docs" / "operations" / "upgrade.md").read_text(encoding="utf-8")
PAGE = f"{RUNBOOK}\n{UPGRADE}"
CLI = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "cli").glob("*.md"))
UNIT = (ROOT / "conf" / "model-gateway.service").read_text(encoding="utf-8")
SECTIONS = re.split(r"^#{2,3} (.+)$", PAGE, flags=re.MULTILINE)
TEXTS = dict(zip(SECTIONS[1::2], SECTIONS[2::2], strict=True))
NEEDED = MANAGED_DELAY + ServerSettings().drain_timeout + GRACE  # seconds


def test_every_rule_has_a_section_and_every_section_of_that_kind_a_rule() -> None:
    assert sorted(title for title in TEXTS if title.startswith("Gateway")) == sorted(rule["alert"] for rule in ALERTS)


@pytest.mark.parametrize(
    "title",
    ["Rolling restart", "Upgrade and return", "A leaked key", "A customer who was charged too much", "A full disk"],
)
def test_procedure_has_a_section(title: str) -> None:
    assert title in TEXTS


def test_sections_say_something() -> None:
    assert all(text.strip() for title, text in TEXTS.items() if title != "Alerts")


def test_commands_exist() -> None:
    known = set(re.findall(r"^## (gateway .+)$", CLI, re.MULTILINE))
    named = re.findall(r"`gateway ([a-z-]+)(?: ([a-z-]+))?", PAGE)
    assert len(named) > 20
    unknown = [words for words in named if not {f"gateway {words[0]}", f"gateway {words[0]} {words[1]}"} & known]
    assert unknown == []


def test_expressions_are_well_formed() -> None:
    expressions = re.findall(r"`(sum by [^`]+)`", PAGE)
    assert len(expressions) > 2
    for expression in expressions:
        check(expression)


def test_links_to_sections_of_the_page_lead_somewhere() -> None:
    anchors = {title.lower().replace(" ", "-") for title in TEXTS}
    assert set(re.findall(r"\]\(#([^)]+)\)", RUNBOOK)) <= anchors


@pytest.mark.holds("operations/start.md#signals-7")
def test_supervisors_wait_longer_than_a_stop_takes() -> None:
    [seconds] = re.findall(r"^TimeoutStopSec=(\d+)$", UNIT, re.MULTILINE)
    assert int(seconds) > NEEDED
    [block] = [block for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL) if "Grace" in block]
    assert yaml.safe_load(block)["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] > NEEDED
    assert "Type=notify" in UNIT


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """The unit with a program that exists, for systemd's own checks."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd is not installed")
    file = tmp_path / "model-gateway.service"
    file.write_text(re.sub(r"^ExecStart=\S+", f"ExecStart={sys.executable}", UNIT, flags=re.MULTILINE))
    return file


def test_unit_is_well_formed(unit: Path) -> None:
    checked = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
    assert (checked.returncode, [line for line in checked.stderr.splitlines() if unit.name in line]) == (0, [])


@pytest.mark.holds("operations/start.md#signals-7")
def test_unit_takes_the_gateway_what_it_does_not_need(unit: Path) -> None:
    command = [
        "systemd-analyze",
        "security",
        "--offline=true",
        "--threshold=20",
        str(unit),
    ]  # tenths of its exposure level
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout

"""No test waits for a fixed time: it polls, or waits for an event; a delay that is the scenario has a name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NOT_BY_DEFAULT = ("chaos", "fleet", "fuzz", "soak")  # run by themselves, against the clock
SIMULATED = ("simulation",)  # no time passes there
HELPERS = ("polling.py", "delays.py", "plugin_packages.py")  # the last one waits before it downloads again
# Text and not syntax: a program that a test starts is a string in it. Zero is a turn of the event loop and no time.
SLEEP = re.compile(r"\bsleep\((?!0\))|\bimport\b.*\bsleep\b")


def sources() -> list[Path]:
    """Every file of the default tests, and of the plugins' own."""
    tests = ROOT / "tests"
    ours = (path for path in tests.rglob("*.py") if path.relative_to(tests).parts[0] not in NOT_BY_DEFAULT + SIMULATED)
    return [
        path
        for path in sorted([*ours, *ROOT.glob("plugins/*/tests/**/*.py")])
        if path.name not in HELPERS and path != Path(__file__)
    ]


def sleeps(text: str) -> list[int]:
    """Numbers of the lines that sleep."""
    return [number for number, line in enumerate(text.splitlines(), start=1) if SLEEP.search(line)]


def test_no_default_test_sleeps_outside_the_helpers() -> None:
    found = {str(path.relative_to(ROOT)): sleeps(path.read_text(encoding="utf-8")) for path in sources()}
    assert len(found) > 100
    assert {path: lines for path, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    "line",
    [
        "await asyncio.sleep(0.05)",
        "await asyncio.sleep(30)",
        "await asyncio.sleep(pause)",
        "time.sleep(1)",
        "await sleep(0.5)",
        "from time import sleep as wait",
        "call(lambda at: asyncio.sleep(3600))",
    ],
)
def test_every_form_of_a_fixed_sleep_is_found(line: str) -> None:
    assert sleeps(f"import asyncio\n{line}\n") == [2]


@pytest.mark.parametrize("line", ["await asyncio.sleep(0)", "await turns()", "await upstream_is_silent_for(0.1)"])
def test_one_loop_iteration_and_a_named_delay_are_not_fixed_sleeps(line: str) -> None:
    assert sleeps(line) == []

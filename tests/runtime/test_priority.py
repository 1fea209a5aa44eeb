"""Processes that work beside calls leave the processor to them."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.runtime import priority

ENABLED = Path("/proc/sys/kernel/sched_autogroup_enabled")
LOWERED = (
    "import os; from gateway.runtime.priority import lower_priority; lower_priority(7);"
    "print(os.nice(0), open('/proc/self/autogroup').read())"
)
grouped = pytest.mark.skipif(
    not ENABLED.exists() or ENABLED.read_text().strip() != "1" or not Path("/proc/self/autogroup").read_text(),
    reason="this kernel does not group processes by session",
)


def lowered(*, own_session: bool) -> tuple[str, str]:
    """The niceness of a process that lowers its priority, and that of its group."""
    found = subprocess.run(
        [sys.executable, "-c", LOWERED], capture_output=True, text=True, check=True, start_new_session=own_session
    )
    own, *_, group = found.stdout.split()
    return own, group


@grouped
def test_niceness_is_that_of_the_sessions_group_too() -> None:
    own, group = lowered(own_session=True)
    assert own == group != "0"


@grouped
def test_group_that_has_other_processes_keeps_its_niceness() -> None:
    before = Path("/proc/self/autogroup").read_text().split()[-1]
    own, group = lowered(own_session=False)
    assert own != "0"
    assert group == before


def test_group_is_lowered_once_the_kernel_takes_changes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[str] = []

    class Busy:
        def __init__(self) -> None:
            self.refusals = [errno.EAGAIN, errno.EAGAIN]

        def write_text(self, text: str) -> None:
            if self.refusals:
                raise OSError(self.refusals.pop(), "refused")
            taken.append(text)

    monkeypatch.setattr(priority, "AUTOGROUP", Busy())
    monkeypatch.setattr(priority, "AGAIN_AFTER", 0.0)
    priority._lower_group(3)
    assert taken == ["3"]


def test_missing_group_is_no_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(priority, "AUTOGROUP", tmp_path / "missing" / "autogroup")
    priority._lower_group(3)

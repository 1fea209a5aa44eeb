"""Processes that work beside calls leave the processor to them."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path
from typing import cast

import pytest

from gateway.runtime import priority
from gateway.runtime.priority import NICENESS, lower_priority

ENABLED = Path("/proc/sys/kernel/sched_autogroup_enabled")
grouped = pytest.mark.skipif(
    not ENABLED.exists() or ENABLED.read_text().strip() != "1" or not Path("/proc/self/autogroup").read_text(),
    reason="this kernel does not group processes by session",
)


def niceness_of_group(pid: int | str = "self") -> str:
    return Path(f"/proc/{pid}/autogroup").read_text().split()[-1]


def added(niceness: int) -> int:
    """What 19, the lowest priority, leaves of it."""
    return min(niceness, 19 - os.getpriority(os.PRIO_PROCESS, 0))


async def lowered(*, own_session: bool) -> tuple[int, str]:
    """What is added to the niceness of a process whose priority is lowered, and the niceness of its group."""
    process = await asyncio.create_subprocess_exec("sleep", "60", start_new_session=own_session)
    try:
        await lower_priority(process.pid, 7)
        own = os.getpriority(os.PRIO_PROCESS, process.pid) - os.getpriority(os.PRIO_PROCESS, 0)
        return own, niceness_of_group(process.pid)
    finally:
        process.kill()
        await process.wait()


@pytest.mark.holds("operations/history.md#history-3")
@grouped
async def test_niceness_is_that_of_the_sessions_group_too() -> None:
    assert await lowered(own_session=True) == (added(7), "7")


@grouped
async def test_group_that_has_other_processes_keeps_its_niceness() -> None:
    assert await lowered(own_session=False) == (added(7), niceness_of_group())


async def test_process_that_has_ended_is_no_error() -> None:
    process = await asyncio.create_subprocess_exec("true")
    await process.wait()
    await lower_priority(process.pid, 7)


async def test_group_is_lowered_once_the_kernel_takes_changes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[str] = []

    class Busy:
        def __init__(self) -> None:
            self.refusals = [errno.EAGAIN, errno.EAGAIN]

        def write_text(self, text: str) -> None:
            if self.refusals:
                raise OSError(self.refusals.pop(), "refused")
            taken.append(text)

    monkeypatch.setattr(priority, "AGAIN_AFTER", 0.0)
    await priority._lower_group(cast(Path, Busy()), 3)
    assert taken == ["3"]


async def test_missing_group_is_no_error(tmp_path: Path) -> None:
    await priority._lower_group(tmp_path / "missing" / "autogroup", 3)


@pytest.mark.skipif(not hasattr(os, "SCHED_IDLE"), reason="this system has no such class")
@pytest.mark.holds("operations/batches.md#the-process-1")
@pytest.mark.parametrize(("niceness", "is_idle"), [(NICENESS["importer"], False), (NICENESS["batches"], True)])
async def test_process_of_batches_gets_only_what_others_leave(niceness: int, is_idle: bool) -> None:
    process = await asyncio.create_subprocess_exec("sleep", "60", start_new_session=True)
    try:
        await lower_priority(process.pid, niceness)
        assert (os.sched_getscheduler(process.pid) == os.SCHED_IDLE) is is_idle
    finally:
        process.kill()
        await process.wait()

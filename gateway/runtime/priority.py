"""The scheduling priority of helper processes."""

from __future__ import annotations

import asyncio
import errno
import os
from contextlib import suppress
from pathlib import Path

PROC = Path("/proc")
ATTEMPTS, AGAIN_AFTER = 10, 0.11  # seconds: for all users but root the kernel takes one change every 0.1 s

#: What is added to the gateway's own niceness. Beside a worker at full load, a tenth of its processor is left for the
#: importer. Pages wait for calls, too; with 10, a page of a machine at full load took a second.
NICENESS = {"importer": 10, "console": 5, "batches": 15}

#: Niceness from which on a process only gets what all others leave: a worker that wakes up runs at once. A process that
#: is only nice runs on to the end of its time slice.
IDLE_FROM = 15


async def lower_priority(pid: int, niceness: int) -> None:
    """Give calls the processor first: for a process that was just started in a session of its own, without threads yet.

    The process does not do this itself: it would import its modules first, for a second and with an equal share of the
    processor.

    Where the kernel groups processes by session, a niceness counts only within the group, and each group gets the same
    share: the group needs the niceness, too. Beside an importer without it, the p99 of calls was 3.3 times as long, and
    1.1 times with it.
    """
    with suppress(OSError):  # it has ended
        os.setpriority(os.PRIO_PROCESS, pid, os.getpriority(os.PRIO_PROCESS, 0) + niceness)
        if niceness >= IDLE_FROM and hasattr(os, "SCHED_IDLE"):  # Linux
            os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0))
        if os.getsid(pid) == pid:  # else the group has other processes, too
            await _lower_group(PROC / str(pid) / "autogroup", niceness)


async def _lower_group(file: Path, niceness: int) -> None:
    """There is no group in a control group (a service, a container) and on other systems: nothing changes then."""
    for _ in range(ATTEMPTS):
        if _is_answered(file, niceness):
            return
        await asyncio.sleep(AGAIN_AFTER)


def _is_answered(file: Path, niceness: int) -> bool:
    """Whether the kernel has taken the niceness, or never will."""
    try:
        file.write_text(str(niceness))
    except OSError as error:
        return error.errno != errno.EAGAIN
    return True

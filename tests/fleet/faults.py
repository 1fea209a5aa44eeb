"""What fails in the fleet, one after the other. Each fault lasts for a share of the run, and then the fleet recovers.

A fault is a function of the fleet and of the seconds that it lasts; it returns a note for the table. Shorter runs have
the same faults, and each of them lasts for a shorter time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from tests.fleet.fleet import Fleet
from tests.fleet.machines import Machine
from tests.fleet.table import Part
from tests.polling import until

FULL = 30.0  # minutes of the run that `minutes` is about
SHORTEST = 8.0  # seconds
PAUSE_BETWEEN_RESTARTS = 3.0  # seconds, as docs/operations/proxies.md has it for nginx
WATCHED_EVERY = 0.5  # seconds
NO_JOURNAL = "the journal cannot be written"  # in the log of a gateway

Act = Callable[[Fleet, float, Part], Awaitable[str]]


class Fault(NamedTuple):
    """A fault and the minutes that it lasts in a run of `FULL` minutes; the number of its gateway, if it has one."""

    name: str
    minutes: float
    act: Act
    sick: int = 0

    def seconds(self, minutes: float) -> float:
        """How long it lasts in a run of so many minutes."""
        return max(SHORTEST, self.minutes * 60.0 * minutes / FULL)


async def calm(fleet: Fleet, seconds: float, part: Part) -> str:
    """Nothing fails."""
    await asyncio.sleep(seconds)
    return ""


async def upgrade_gateways(fleet: Fleet, seconds: float, part: Part) -> str:
    """Restart one gateway after the other with the new version."""
    for machine in fleet.machines:
        machine.use(None)
        await machine.restart()
        await asyncio.sleep(PAUSE_BETWEEN_RESTARTS)
    return ""


async def reload_nginx(fleet: Fleet, seconds: float, part: Part) -> str:
    """nginx reads its configuration again."""
    fleet.nginx.reload()
    await asyncio.sleep(seconds)
    return ""


async def upgrade_nginx(fleet: Fleet, seconds: float, part: Part) -> str:
    """Another nginx takes over the port."""
    await asyncio.to_thread(fleet.nginx.upgrade)
    await asyncio.sleep(seconds)
    return ""


async def restart_store(fleet: Fleet, seconds: float, part: Part) -> str:
    """Restart each of the six nodes; a replica takes over before its master is restarted."""
    await asyncio.to_thread(fleet.cluster.restart_each)
    return ""


async def restart_database(fleet: Fleet, seconds: float, part: Part) -> str:
    """Restart PostgreSQL."""
    await asyncio.to_thread(fleet.postgres.stop)
    await asyncio.to_thread(fleet.postgres.start)
    await asyncio.sleep(seconds)
    return ""


async def lose_master(fleet: Fleet, seconds: float, part: Part) -> str:
    """Kill a master; its replica takes over, and it comes back as a replica."""
    took = await asyncio.to_thread(fleet.cluster.fail_over)
    await asyncio.sleep(seconds)
    return f"the replica took over after {took:.1f} s"


async def lose_database(fleet: Fleet, seconds: float, part: Part) -> str:
    """PostgreSQL is away."""
    await asyncio.to_thread(fleet.postgres.stop)
    await asyncio.sleep(seconds)
    await asyncio.to_thread(fleet.postgres.start)
    return f"away for {seconds:.0f} s"


async def break_egress(fleet: Fleet, seconds: float, part: Part) -> str:
    """A gateway cannot reach the upstream, but everything else."""
    machine = fleet.machine(part.sick)
    machine.net.break_egress()
    try:
        said = await _unready(machine, seconds)
    finally:
        machine.net.mend_egress()
    return f"{said}; {await _ready(machine)}"


async def hang(fleet: Fleet, seconds: float, part: Part) -> str:
    """All processes of a gateway stop where they are, and go on later."""
    machine = fleet.machine(part.sick)
    machine.stop_all()
    try:
        await asyncio.sleep(seconds)
    finally:
        machine.continue_all()
    return await _ready(machine)


async def fill_disk(fleet: Fleet, seconds: float, part: Part) -> str:
    """The disk of a gateway's data directory is full."""
    machine = fleet.machine(part.sick)
    before = machine.gateway.text.count(NO_JOURNAL)
    try:
        said = await _unready(machine, seconds, machine.fill_disk)
    finally:
        machine.empty_disk()
    unwritten = machine.gateway.text.count(NO_JOURNAL) - before
    return f"{said}; the journal could not be written {unwritten} times; {await _ready(machine)}"


async def _unready(machine: Machine, seconds: float, act: Callable[[], None] = lambda: None) -> str:
    """Watch /readyz for so long, and `act` before each look; when it first was not 200."""
    started, found = time.monotonic(), ""
    while time.monotonic() < started + seconds:
        act()
        if not found and await machine.readiness() != 200:
            found = f"/readyz was not 200 after {time.monotonic() - started:.1f} s"
        await asyncio.sleep(WATCHED_EVERY)
    return found or "/readyz stayed 200"


async def _ready(machine: Machine) -> str:
    started = time.monotonic()

    async def ready() -> bool:
        return await machine.readiness() == 200

    await until(ready, within=120.0)
    return f"/readyz was 200 again {time.monotonic() - started:.1f} s after the end"


FAULTS = (
    Fault("nothing", 2.0, calm),
    Fault("rolling upgrade of the gateways", 0.0, upgrade_gateways),
    Fault("nginx reads its configuration again", 0.5, reload_nginx),
    Fault("nginx is replaced", 0.5, upgrade_nginx),
    Fault("rolling restart of the store", 0.0, restart_store),
    Fault("PostgreSQL restarts", 0.5, restart_database),
    Fault("a gateway has no egress", 3.0, break_egress, sick=1),
    Fault("a gateway hangs", 3.0, hang, sick=2),
    Fault("a gateway's disk is full", 3.0, fill_disk, sick=3),
    Fault("a master of the store dies", 0.5, lose_master),
    Fault("PostgreSQL is away", 5.0, lose_database),
    Fault("nothing, at the end", 2.0, calm),
)
RECOVERY = Fault("", 0.5, calm)  # after each fault

"""What may happen to a machine as a whole: its power, its disk, its clock, its processes that stand still."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.simulation.processes import Process

if TYPE_CHECKING:
    from tests.simulation.machines import Machine
    from tests.simulation.world import World

LONGEST = 130.0  # seconds that a process stands still


async def power_fails(world: World) -> None:
    """A machine loses its power, and with it a part of what it wrote to its files in the last seconds."""
    machine = world.dice.choice(world.machines)
    before, since = machine.place.files(), world.clock.passed
    await asyncio.sleep(world.dice.uniform(0.0, 5.0))
    machine.crash()
    machine.place.lose_writes(before, world.dice)
    world.lost.append((machine.name, since, world.clock.passed))
    await asyncio.sleep(world.dice.choice([0.5, 5.0, 75.0]))
    if not machine.alive:
        await machine.start(1)


async def disk_is_full(world: World) -> None:
    """A machine can write nothing, or the half."""
    machine = world.dice.choice(world.machines)
    since = world.clock.passed
    machine.place.is_full = True
    await asyncio.sleep(world.dice.choice([0.3, 3.0, 12.0]))
    machine.place.is_full = False
    world.unwritten.append((machine.name, since, world.clock.passed))


async def clock_of_a_machine_jumps(world: World) -> None:
    """The clock of a machine is set: a leap second, a minute, an hour, a day; forwards or back."""
    machine = world.dice.choice(world.machines)
    machine.place.ahead += world.dice.choice([-86400.0, -3600.0, -60.0, -1.0, 1.0, 60.0, 3600.0, 86400.0])


async def clock_of_the_store_jumps(world: World) -> None:
    """The clock of the store is set."""
    world.store.ahead += world.dice.choice([-60.0, -5.0, -1.0, 1.0, 5.0, 61.0, 90.0])


async def worker_hangs(world: World) -> None:
    """A worker stands still, sometimes for longer than its leases last, and goes on where it was."""
    workers = [worker.process for machine in world.machines for worker in machine.workers]
    if workers:
        _hang(world, [world.dice.choice(workers)])


async def machine_hangs(world: World) -> None:
    """All processes of a machine stand still, as a virtual machine that is moved."""
    machine = world.dice.choice(world.machines)
    _hang(world, machine.processes)


def _hang(world: World, processes: list[Process]) -> None:
    until = world.loop.time() + world.dice.choice([1.0, 20.0, 70.0, LONGEST])
    for process in processes:
        if process.alive:
            process.hangs_until = max(process.hangs_until, until)


async def supervisor_is_doubled(world: World) -> None:
    """A second supervisor takes over the same folder at the same time."""
    machine: Machine = world.dice.choice(world.machines)
    if machine.alive:
        await machine.start_recovery()

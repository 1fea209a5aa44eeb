"""What may happen to the importers and their database. The databases of worlds without importers are left alone."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.world import World


async def importer_is_killed(world: World) -> None:
    """The importer of a machine dies, and its supervisor starts another one."""
    machine = world.dice.choice(world.machines)
    machine.kill_importer()
    await asyncio.sleep(world.dice.uniform(0.1, 3.0))
    if machine.alive:
        await machine.start_importer()


async def commits_fail(world: World) -> None:
    """Some of the next commits report an error, before or after they are made."""
    if world.history is not None:
        world.history.fail_commits(*world.dice.choices(["before", "after"], k=world.dice.randrange(1, 4)))


async def database_is_away(world: World) -> None:
    """The database takes no call."""
    if world.history is not None:
        world.history.away_until = world.clock.passed + world.dice.choice([1.0, 10.0])


async def database_is_replaced(world: World) -> None:
    """The database comes back as it was some seconds ago, as from a backup."""
    history = world.history
    if history is None or history.trims:  # lines that have left the store are only in the database
        return
    before = history.copied()
    await asyncio.sleep(world.dice.choice([0.2, 3.0, 20.0]))
    history.replace(before, file=world.dice.random() < 0.5)

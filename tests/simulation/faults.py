"""What may happen in a schedule. Each fault draws its own moments and lengths; all of them end before the promises."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from gateway.admin.refunds import Refunds
from tests.simulation.history_faults import commits_fail, database_is_away, database_is_replaced, importer_is_killed
from tests.simulation.machine_faults import (
    clock_of_a_machine_jumps,
    clock_of_the_store_jumps,
    disk_is_full,
    machine_hangs,
    power_fails,
    supervisor_is_doubled,
    worker_hangs,
)

if TYPE_CHECKING:
    from tests.simulation.world import World

ADDED = 1_000_000  # nano units
Fault = Callable[["World"], Awaitable[None]]


async def reply_is_lost(world: World) -> None:
    """The store runs one script or more, and the connection is cut before the reply."""
    world.store.lose_replies += world.dice.randrange(1, 4)


async def connections_are_cut(world: World) -> None:
    """Every connection to the store is cut."""
    world.store.cut_all()


async def store_pauses(world: World) -> None:
    """The store answers nothing for a while, and then everything."""
    until = world.clock.passed + world.dice.choice([0.1, 0.5, 2.0, 10.0])
    world.store.paused_until = max(world.store.paused_until, until)


async def store_is_away(world: World) -> None:
    """The store takes no connection."""
    from tests.simulation.store_end import ADDRESS

    world.network.refused.add(ADDRESS)
    world.store.cut_all()
    await asyncio.sleep(world.dice.choice([0.3, 1.5, 8.0]))
    world.network.refused.discard(ADDRESS)


async def store_restarts(world: World) -> None:
    """The store is another process with the same data."""
    world.store.restart()


async def store_loses_the_last_moment(world: World) -> None:
    """The store comes back with its data of up to a second ago, as after a failover."""
    before = world.store.copied()
    await asyncio.sleep(world.dice.uniform(0.01, 1.0))
    world.store.restart(before)


async def worker_is_killed(world: World) -> None:
    """One worker dies; its supervisor starts another one."""
    machines = [machine for machine in world.machines if machine.workers]
    if machines:
        machine = world.dice.choice(machines)
        machine.kill_worker(world.dice.choice(machine.workers))
        await asyncio.sleep(world.dice.uniform(0.2, 1.0))
        if machine.alive:
            await machine.start_worker()


async def machine_crashes(world: World) -> None:
    """Every process of a machine dies, and starts again later."""
    machine = world.dice.choice(world.machines)
    machine.crash()
    # After more than a minute, another machine has charged its calls by what the store knows.
    await asyncio.sleep(world.dice.choice([0.5, 5.0, 75.0, 120.0]))
    if not machine.alive:
        await machine.start(1)


async def upstream_fails(world: World) -> None:
    """The upstream refuses every request for a while."""
    world.upstream.fails_until = world.loop.time() + world.dice.choice([0.2, 2.0])


async def upstream_is_silent(world: World) -> None:
    """The upstream sends nothing for a while, in the middle of its answers too."""
    world.upstream.silent_until = world.loop.time() + world.dice.choice([1.0, 8.0, 15.0])


async def money_is_added(world: World) -> None:
    """An operator adds money, twice with one operation: it counts once."""
    operation = f"top-up-{world.clock.passed:.3f}"
    for _ in range(2):
        await world.operate(lambda: world.accounts.credit("acme", ADDED, operation=operation))


async def charge_is_refunded(world: World) -> None:
    """An operator gives the charge of a call back, and tries it twice."""
    done = [outcome.request_id for outcome in world.outcomes if outcome.whole and not outcome.replayed]
    if done:
        request_id = world.dice.choice(done)
        for _ in range(2):
            await world.operate(lambda: Refunds(world.ledger).refund("acme", request_id))


async def key_is_revoked(world: World) -> None:
    """The second key is revoked: no call that begins after that is served."""
    if await world.operate(lambda: world.keys.revoke(world.callers[1].id)):
        world.revoked_at = min(world.revoked_at, world.clock.passed)


async def account_is_moved(world: World) -> None:
    """An operator moves the account to another group, and perhaps back."""
    for group in ("other", "default")[: world.dice.randrange(1, 3)]:
        await world.operate(lambda group=group: world.accounts.move("acme", group))  # type: ignore[misc]
        await asyncio.sleep(world.dice.uniform(0.1, 2.0))


async def price_changes(world: World) -> None:
    """Every machine gets settings with another price; calls under way keep theirs."""
    from tests.simulation.world import Price, settings_at

    input_, output = world.dice.choice([(1, 2), (3, 5), (2, 9)])
    before = list(world.prices)
    world.prices.append(Price(input_ * 1000, output * 1000, world.clock.passed))
    settings = settings_at(input_, output)
    await asyncio.gather(*(machine.reload(settings) for machine in world.machines))
    for price in before:
        price.until = min(price.until, world.clock.passed)


FAULTS: tuple[Fault, ...] = (
    reply_is_lost,
    connections_are_cut,
    store_pauses,
    store_is_away,
    store_restarts,
    store_loses_the_last_moment,
    worker_is_killed,
    machine_crashes,
    upstream_fails,
    upstream_is_silent,
    money_is_added,
    charge_is_refunded,
    key_is_revoked,
    importer_is_killed,
    commits_fail,
    database_is_away,
    database_is_replaced,
    power_fails,
    disk_is_full,
    clock_of_a_machine_jumps,
    clock_of_the_store_jumps,
    worker_hangs,
    machine_hangs,
    supervisor_is_doubled,
    account_is_moved,
    price_changes,
)
#: The names of those whose effects end with a lease or with the life of a journal.
LASTING = frozenset(
    fault.__name__
    for fault in (
        store_restarts,
        store_loses_the_last_moment,
        worker_is_killed,
        machine_crashes,
        power_fails,
        disk_is_full,
        clock_of_the_store_jumps,
        worker_hangs,
        machine_hangs,
        supervisor_is_doubled,
    )
)

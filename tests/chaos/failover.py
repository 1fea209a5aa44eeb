"""Traffic on a ledger while masters die, and what it must have come to in the end.

`Drill` keeps the truth: what every call that was delivered cost. Afterwards each account's balance has to be its first
balance less exactly that, with nothing held and a clean audit.
"""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path

from gateway.errors import StoreUnavailable
from gateway.ledger import Journal, Ledger, Outcome
from gateway.store import Store
from tests.polling import until
from tests.world import World

START = 1_000_000_000
ACCOUNTS = 9  # enough for every master of a cluster to have some
AT_ONCE = 24
LEASE = 70.0  # seconds in which every hold ends that nobody renews


class Drill:
    """One worker's ledger with its journal, under load."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.folder = folder
        self.truth: dict[str, int] = {}
        self.delivered = 0
        self.unavailable = 0
        self.replays = 0
        self.replayed_within = self.released_within = 0.0  # seconds after the last call
        self.left_holding = 0  # nano-units held by then whose call is over
        self._stop = False

    async def run(self, topology, *, rounds: int, behind: float = 0.3, replay: bool = True) -> dict[str, int]:
        """Fail over so many times under load; by account, what the ledger says more or less than the truth."""
        store = await Store.open(self.url)
        # A control without replay forgets what was confirmed at once, or it would be sent along with what was not.
        journal = Journal(self.folder) if replay else Journal(self.folder, keep=0.0, segment_seconds=0.0)
        world = World(store, {})
        world.ledger = ledger = Ledger(store, {}, journal=journal)
        assert ledger.recovery is not None
        recovery = ledger.recovery

        def reconnected(before, now) -> None:
            self.replays += before.run_id != now.run_id
            if replay:
                recovery.reconnected(before, now)

        store.on_reconnect = reconnected
        try:
            keys = [await world.caller(f"acct-{n}", balance=START) for n in range(ACCOUNTS)]
            await asyncio.sleep(0.1)  # opened before the replica is cut off: credits have no journal
            callers = [asyncio.create_task(self._call_on(world, keys)) for _ in range(AT_ONCE)]
            for _ in range(rounds):
                await asyncio.sleep(0.3)
                await asyncio.to_thread(topology.fail_over, behind=behind)
            self._stop = True
            await asyncio.gather(*callers)
            started = time.monotonic()
            await until(lambda: not journal.unconfirmed, within=30.0)
            self.replayed_within = time.monotonic() - started
            self.left_holding = await self._held(world)
            if replay:  # a control shows what is not charged, and that is known before the last lease ends
                await until(lambda: self._nothing_held(world), within=LEASE)
            self.released_within = time.monotonic() - started
            off = {}
            for key in keys:
                balance = (await world.accounts.show(key.account)).balance
                off[key.account] = balance - (START - self.truth.get(key.account, 0))
            await world.proved()
            return {name: amount for name, amount in off.items() if amount}
        finally:
            self._stop = True
            await recovery.close()
            await store.close()
            journal.close()

    async def _held(self, world: World) -> int:
        return sum(account.held for account in await world.accounts.list())

    async def _nothing_held(self, world: World) -> bool:
        """An admission whose reply was lost may have been made after its void had come: its lease ends it."""
        await world.ledger.reclaim()
        return not await self._held(world)

    async def _call_on(self, world: World, keys) -> None:
        while not self._stop:
            key, cost = random.choice(keys), random.randint(1, 900)
            try:
                hold = await world.admit(key, 1000)
            except StoreUnavailable:
                self.unavailable += 1
                await asyncio.sleep(0.01)
                continue
            await asyncio.sleep(random.uniform(0, 0.02))
            try:
                if cost % 10 == 0:
                    await world.ledger.void(hold)
                    continue
                settled = await world.ledger.settle(hold, Outcome(cost))
            except StoreUnavailable:  # a void that waits in the journal
                continue
            assert settled.status != "refused", settled
            self.truth[key.account] = self.truth.get(key.account, 0) + cost
            self.delivered += 1

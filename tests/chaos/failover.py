"""Traffic on a ledger while masters die, and what it must have come to in the end.

With `restarts` a worker takes the place of the one before every tenth of a second, and the supervisor's heir adopts.
`Drill` keeps the truth: what every call that was delivered cost. Afterwards each account's balance has to be its first
balance less exactly that, with nothing held and a clean audit.
"""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path

from gateway.billing.quote import Quote
from gateway.errors import StoreUnavailable
from gateway.ledger import Journal, Ledger
from gateway.ledger.api_key import ApiKey
from gateway.ledger.recovery import Recovery
from gateway.runtime.worker_recovery import WorkerRecovery
from gateway.store import Store
from tests.ledger.records import settle, void
from tests.polling import until
from tests.world import World

START = 1_000_000_000
ACCOUNTS = 9  # enough for every master of a cluster to have some
AT_ONCE = 24
LEASE = 70.0  # seconds in which every hold ends that nobody renews
RESTART_EVERY = 0.1  # seconds


class Worker:
    """A worker as the ledger knows it, and how many calls it serves."""

    def __init__(self, store: Store, journal: Journal) -> None:
        self.journal = journal
        self.ledger = Ledger(store, {}, journal=journal)
        assert self.ledger.recovery is not None
        self.recovery: Recovery = self.ledger.recovery
        self.calls = 0

    async def end(self) -> None:
        """Serve what runs, and go."""
        await until(lambda: not self.calls, within=30.0)
        await self.recovery.close()
        self.journal.close()


class Drill:
    """One worker's ledger with its journal, or many's, under load."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.folder = folder
        self.truth: dict[str, int] = {}
        self.delivered = 0
        self.unavailable = 0
        self.replays = 0
        self.restarts = 0
        self._workers: list[Worker] = []
        self.replayed_within = self.released_within = 0.0  # seconds after the last call
        self.left_holding = 0  # nano-units held by then whose call is over
        self._stop = False

    async def run(
        self, topology, *, rounds: int, behind: float = 0.3, replay: bool = True, restarts: bool = False
    ) -> dict[str, int]:
        """Fail over so many times under load; by account, what the ledger says more or less than the truth."""
        store = await Store.open(self.url)
        # A control without replay forgets what was confirmed at once, or it would be sent along with what was not.
        journal = Journal(self.folder) if replay else Journal(self.folder, keep=0.0, segment_seconds=0.0)
        world = World(store, {})
        self._workers.append(Worker(store, journal))

        def reconnected(before, now) -> None:
            self.replays += before.run_id != now.run_id
            for worker in self._workers if replay else ():
                worker.recovery.reconnected(before, now)

        store.on_reconnect = reconnected
        heir_store = await Store.open(self.url)
        heir = WorkerRecovery(heir_store, self.folder)
        heir_store.on_reconnect = heir.reconnected
        beside = [asyncio.create_task(heir.run())]
        try:
            keys = [await world.caller(f"acct-{n}", balance=START) for n in range(ACCOUNTS)]
            await asyncio.sleep(0.1)  # opened before the replica is cut off: credits have no journal
            callers = [asyncio.create_task(self._call_on(world, keys)) for _ in range(AT_ONCE)]
            if restarts:
                beside.append(asyncio.create_task(self._restart(store, heir)))
            for _ in range(rounds):
                await asyncio.sleep(0.3)
                await asyncio.to_thread(topology.fail_over, behind=behind)
            self._stop = True
            await asyncio.gather(*callers, *beside[1:])
            started = time.monotonic()
            await until(lambda: self._all_sent(heir), within=30.0)
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
            for task in beside:
                task.cancel()
            await asyncio.wait(beside)
            await asyncio.gather(*(worker.recovery.close() for worker in self._workers), heir.close())
            await asyncio.gather(store.close(), heir_store.close())
            for worker in self._workers:
                worker.journal.close()

    async def _restart(self, store: Store, heir: WorkerRecovery) -> None:
        """A new worker takes over, the old one ends within the same moment that a failover may forget."""
        while not self._stop:
            await asyncio.sleep(RESTART_EVERY)
            self._workers.append(Worker(store, Journal(self.folder)))
            await self._workers[0].end()
            del self._workers[0]
            heir.look()
            self.restarts += 1

    def _all_sent(self, heir: WorkerRecovery) -> bool:
        """Nobody is left without an heir, and nothing waits in a journal."""
        journals = [worker.journal for worker in self._workers] + [heir._journal]
        return not heir._journal.orphans() and not any(journal.unconfirmed for journal in journals)

    async def _held(self, world: World) -> int:
        return sum(account.held for account in await world.accounts.list())

    async def _nothing_held(self, world: World) -> bool:
        """An admission whose reply was lost may have been made after its void had come: its lease ends it."""
        await world.ledger.reclaim()
        return not await self._held(world)

    async def _call_on(self, world: World, keys) -> None:
        while not self._stop:
            worker = self._workers[-1]
            worker.calls += 1
            try:
                await self._call(worker.ledger, *world.ask(random.choice(keys), 1000))
            finally:
                worker.calls -= 1

    async def _call(self, ledger: Ledger, request_id: str, key: ApiKey, quote: Quote) -> None:
        cost = random.randint(1, 900)
        try:
            hold = await ledger.admit(request_id, key, quote)
        except StoreUnavailable:
            self.unavailable += 1
            await asyncio.sleep(0.01)
            return
        await asyncio.sleep(random.uniform(0, 0.02))
        if cost % 10 == 0:
            await void(ledger, hold)
            return
        await settle(ledger, hold, cost)
        self.truth[key.account] = self.truth.get(key.account, 0) + cost
        self.delivered += 1

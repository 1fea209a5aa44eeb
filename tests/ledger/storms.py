"""Storms on a ledger and what is true afterwards: small in test_storms.py, full size in tests/chaos/chaos_ledger.py.

Each keeps its own truth while it rages, and answers the figure it reached. Sharp edge: a call counts once its
settlement is in the store or in a journal, for that is what a caller of the gateway was promised.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import random
import shutil
import signal
from collections import Counter
from collections.abc import AsyncIterator
from fractions import Fraction
from pathlib import Path
from typing import Any

from gateway import errors
from gateway.billing.price import Price
from gateway.billing.usage import Usage
from gateway.ledger import Hold, Journal, Ledger
from gateway.ledger.api_key import ApiKey
from gateway.store import EmbeddedServer, Store, StoreEvent
from tests.delays import caller_is_silent_for, time_passes
from tests.ledger.records import quote_of, settle, void
from tests.polling import until
from tests.world import OpenWorld, World

START = 10**15
LINKS = 4


async def overdraw(world: OpenWorld, *, asks: int, fits: int) -> int:
    """Ask for 1,000 nano so many times at once over several links, on a balance for `fits`; how many were admitted."""
    async with world() as w, contextlib.AsyncExitStack() as stack:
        key = await w.caller(balance=1000 * fits)
        ledgers = []
        for _ in range(LINKS):
            store = await Store.open(w.store.address, timeout=10.0)
            stack.push_async_callback(store.close)
            ledgers.append(Ledger(store, {}))
        answers = await asyncio.gather(
            *(ledgers[n % LINKS].admit(*w.ask(key, 1000)) for n in range(asks)), return_exceptions=True
        )
        admitted = [answer for answer in answers if isinstance(answer, Hold)]
        refused = [answer for answer in answers if isinstance(answer, errors.BalanceExhausted)]
        assert len(admitted) + len(refused) == asks
        assert (await w.accounts.show("acme")).held == 1000 * len(admitted)
        await w.proved()
        await asyncio.gather(*(settle(ledgers[0], hold, 1000) for hold in admitted))
        account = await w.accounts.show("acme")
        assert (account.balance, account.held) == (1000 * (fits - len(admitted)), 0)
        await w.proved()
        return len(admitted)


# Mixed calls ---------------------------------------------------------------------------------------------------------


class MixedCalls:
    """Calls of all fates over accounts and prices, and by fractions what each must have cost."""

    ACCOUNTS = 5

    def __init__(self, world: World, keys: list[ApiKey], *, seed: int) -> None:
        self.world = world
        self.keys = keys
        self.dice = random.Random(seed)
        self.truth: Counter[str] = Counter()
        self.fates: Counter[str] = Counter()

    async def one(self) -> None:
        """Admit a call and let a random fate befall it."""
        dice, ledger = self.dice, self.world.ledger
        price, usage = _price(dice), _usage(dice)
        key = dice.choice(self.keys)
        fate = dice.choice(("settled", "settled", "twice", "extended", "voided", "reclaimed", "amended", "freed"))
        cost, exact = price.cost(usage), _exact(price, usage)
        hold = await self.world.admit(key, dice.choice((cost, cost * 2, cost // 2)))
        self.fates[fate] += 1
        match fate:
            case "settled":
                await settle(ledger, hold, cost)
            case "twice":
                await asyncio.gather(*(settle(ledger, hold, cost) for _ in range(2)))
                await settle(ledger, hold, cost + 1)
            case "extended":
                await ledger.extend(hold, 1 + cost)
                await settle(ledger, hold, cost)
            case "voided":
                await void(ledger, hold)
                await settle(ledger, hold, cost)
                exact = 0
            case "reclaimed" | "amended" | "freed":
                hold.used = exact = cost if fate == "reclaimed" else 0 if fate == "freed" else cost // 3
                await ledger.renew_leases([hold])
                await self.world.expire(hold)
                await ledger.reclaim(key.account)
                if fate == "amended":  # the frozen worker came back with the true count
                    await settle(ledger, hold, cost)
                    exact = _exact(price, usage)
        self.truth[key.account] += exact


async def mixed_calls(world: OpenWorld, *, calls: int, seed: int = 1) -> Counter[str]:
    """So many calls, 50 at a time; the fates they had, once every balance was found right to the nano-unit."""
    async with world() as w:
        keys = [await w.caller(f"account-{n % MixedCalls.ACCOUNTS}", balance=START) for n in range(10)]
        mixed = MixedCalls(w, keys, seed=seed)
        for start in range(0, calls, 50):
            await asyncio.gather(*(mixed.one() for _ in range(min(50, calls - start))))
        for n in range(MixedCalls.ACCOUNTS):
            account = await w.accounts.show(f"account-{n}")
            assert (account.balance, account.held) == (START - mixed.truth[account.name], 0)
            lines = [line.amount async for line in w.ledger.lines(account.name)]
            assert sum(lines[1:]) == -mixed.truth[account.name]
        await w.proved()
        return mixed.fates


def _price(dice: random.Random) -> Price:
    def rate() -> int:
        return dice.choice((0, 1, 7, 250_000_000, 333_333_333, dice.randrange(10**11)))

    return Price(
        input=rate(),
        cached_input=rate(),
        cache_write=rate(),
        output=rate(),
        reasoning=rate(),
        audio_input=rate(),
        per_request=dice.choice((0, 0, 1, 12_345)),
        minimum=dice.choice((0, 0, 0, 99)),
    )


def _usage(dice: random.Random) -> Usage:
    def count() -> int:
        return dice.choice((0, 1, 3, dice.randrange(1000), dice.randrange(200_000)))

    return Usage(
        in_text=count(),
        in_cached=count(),
        in_cache_write_short=count(),
        in_audio=count(),
        out_text=count(),
        out_reasoning=count(),
    )


def _exact(price: Price, usage: Usage) -> int:
    """The cost by fractions, rounded up once."""
    pairs = (
        (usage.in_text, price.input),
        (usage.in_cached, price.cached_input),
        (usage.in_cache_write_short, price.cache_write),
        (usage.in_audio, price.audio_input),
        (usage.out_text, price.output),
        (usage.out_reasoning, price.reasoning),
    )
    return max(math.ceil(sum(Fraction(n * rate, 10**6) for n, rate in pairs) + price.per_request), price.minimum)


# The store dies ------------------------------------------------------------------------------------------------------


class Writers:
    """Eight writers with a journal each, on a store that may die under them."""

    COUNT = 8

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.server = EmbeddedServer(folder / "data")
        self.journals = folder / "journals"
        self.truth: Counter[str] = Counter()
        self.settled = 0
        self.asked = 0
        self.opened = 0  # bytes of append-only file once the accounts were there
        self.deaths = 0  # as the server's own watch saw them
        self._stop = False

    def _saw(self, event: StoreEvent) -> None:
        self.deaths += event.kind == "died"

    async def storm(self, *, kills: int, between: int, pause: float = 0.0) -> None:
        """Kill the store so many times under the writers; ends when every settlement has reached it.

        Before each kill there are at least `between` settlements and `pause` seconds.
        """
        await self.server.start()
        watching = asyncio.create_task(self.server.watch(self._saw))
        try:
            async with opened(self.server.socket) as world:
                keys = [await world.caller(f"account-{n}", balance=START) for n in range(self.COUNT)]
                await on_disk(world.store)  # credits have no journal
                self.opened = append_only_file(self.folder / "data").stat().st_size
                writers = [asyncio.create_task(self._write(keys, n)) for n in range(self.COUNT)]
                for _ in range(kills):
                    await self._kill_after(between, pause)
                self._stop = True
                await asyncio.gather(*writers)
                await self._compare(world)
        finally:
            self._stop = True
            watching.cancel()
            await asyncio.wait([watching])

    async def _kill_after(self, between: int, pause: float) -> None:
        enough = self.settled + between
        await time_passes(pause)
        # A number of settlements and not only a time, or a slow machine would make it a storm without writers.
        pid = await until(lambda: self.server.pid if self.settled >= enough else None)
        os.kill(pid, signal.SIGKILL)
        await until(lambda: self.server.pid != pid)

    async def _write(self, keys: list[ApiKey], number: int) -> None:
        dice = random.Random(number)
        store = await Store.open(self.server.socket, timeout=1.0)
        # A file cut anywhere needs the journal of all that was; a minute's is enough for a server's last two seconds.
        journal = Journal(self.journals, keep=math.inf)
        ledger = Ledger(store, {}, journal=journal)
        assert ledger.recovery is not None
        store.on_reconnect = ledger.recovery.reconnected
        while not self._stop:
            await asyncio.gather(*(self._call(ledger, dice.choice(keys), dice.randrange(1, 5000)) for _ in range(8)))
        # Nothing unconfirmed says little while the store is away: what a dead server confirmed in its last two
        # seconds may be in no file, and one who leaves now leaves that to an heir, who does not come here.
        await _answered(store)
        await until(lambda: not journal.unconfirmed)
        await ledger.recovery.close()
        journal.close()
        await store.close()

    async def _call(self, ledger: Ledger, key: ApiKey, cost: int) -> None:
        self.asked += 1
        try:
            hold = await ledger.admit(f"req_{self.asked}", key, quote_of(5000, tokens=0))
        except errors.StoreUnavailable:
            await caller_is_silent_for(0.02)
            return
        await settle(ledger, hold, cost)
        self.truth[key.account] += cost
        self.settled += 1

    async def _compare(self, world: World) -> None:
        await expire_all(world)
        for n in range(self.COUNT):
            account = await world.accounts.show(f"account-{n}")
            off = account.balance - (START - self.truth[account.name])  # above 0: lost, below: charged too much
            assert (off, account.held) == (0, 0), f"{account.name} is off by {off}, holds {account.held}"
        await world.proved()

    async def cut(self, *, times: int, seed: int = 1) -> int:
        """Cut the store's file at random bytes; how many copies were clean, before and after the journal's replay."""
        await self.server.stop()
        dice, clean = random.Random(seed), 0
        for n in range(times):
            copy = self.folder / f"cut-{n}"
            shutil.copytree(self.folder / "data", copy / "data", ignore=shutil.ignore_patterns("*.sock", "*.lock"))
            shutil.copytree(self.journals, copy / "journals")
            file = append_only_file(copy / "data")
            os.truncate(file, dice.randrange(self.opened, file.stat().st_size))
            await self._revive(copy)
            shutil.rmtree(copy)
            clean += 1
        return clean

    async def _revive(self, copy: Path) -> None:
        server = EmbeddedServer(copy / "data")
        await server.start()
        try:
            async with opened(server.socket) as world:
                await world.proved()
                journal = Journal(copy / "journals")
                ledger = Ledger(world.store, {}, journal=journal)
                assert ledger.recovery is not None
                await ledger.recovery.take_over()
                journal.close()
                await self._compare(world)
        finally:
            await server.stop()


@contextlib.asynccontextmanager
async def opened(socket: Path) -> AsyncIterator[World]:
    """A world on a store as it is."""
    store = await Store.open(socket, timeout=10.0)
    try:
        yield World(store, {})
    finally:
        await store.close()


async def expire_all(world: World) -> None:
    """Let a minute have passed: holds whose admission was never answered run out and cost nothing."""
    for account in await world.ledger.accounts():
        client, name = world.store.client, f"{{a:{account}}}"
        stale: list[Any] = await client.zrange(f"{name}:rx", 0, -1)
        if stale:
            await client.zadd(f"{name}:rx", dict.fromkeys(stale, 1))
    await world.ledger.reclaim()


async def _answered(store: Store) -> None:
    """Wait until the store is back."""

    async def answers() -> bool:
        try:
            await store.ping()
        except errors.StoreUnavailable:
            return False
        return True

    await until(answers)


async def on_disk(store: Store) -> None:
    """Wait until the server's file has all that was answered: while a sync takes long it is written later."""

    async def written() -> bool:
        return not (await store.client.info("persistence"))["aof_buffer_length"]

    await until(written)


def append_only_file(folder: Path) -> Path:
    """The file the server appends to."""
    (file,) = folder.rglob("*.incr.aof")
    return file

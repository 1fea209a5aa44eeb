"""Gateways, their store and their database, in which faults happen under load; after each of them all is proved.

::

    stand = Stand("SQLite", gateways, upstream, sql, rng)
    await stand.open_accounts()
    proof = await stand.moment(fault)       # async def fault(stand): …
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from msgspec import Struct

from gateway.amounts import NANO
from gateway.testing import FakeUpstream
from tests.chaos.history_proof import Proof, Sql, prove
from tests.chaos.traffic import MODELS, Call, Traffic, paced, traffic_on
from tests.chaos.truth import written
from tests.full_disk import FullDisk
from tests.polling import until
from tests.processes.conftest import Yard
from tests.processes.served import Served, children, is_alive

ACCOUNTS = ("first", "second", "third")
PEPPER = "a pepper that all machines share"
SHORT_TIMES = Path(__file__).with_name("short_times")
WORKERS = 2
HOLDS_END = 3.0  # seconds after the load, before the leases of what is still held are ended
IMPORTED_WITHIN = 60.0  # seconds
# A worker whose supervisor was killed may end seconds after the next one has started; only then is its journal taken
# over. A call that it settled without a store is charged then, after its lease was ended here.
TAKEN_OVER_WITHIN = 20.0  # seconds


class Fault(Struct, frozen=True):
    """What happens: `during` the load, and perhaps `after` it, when all of it is imported."""

    name: str
    during: Callable[[Stand], Awaitable[None]]
    after: Callable[[Stand], Awaitable[None]] | None = None


class Stand:
    """One deployment; the first of its gateways made the accounts."""

    def __init__(self, gateways: list[Served], upstream: FakeUpstream, sql: Sql, rng: random.Random) -> None:
        self.gateways = gateways
        self.upstream = upstream
        self.sql = sql
        self.rng = rng
        self.calls: list[Call] = []
        self.keys: dict[str, str] = {}
        self.lost: dict[str, int] = {}  # by call, chunks that went with a store and its journals
        self.notes: list[str] = []  # what the faults saw: refusals, takeovers
        self.parts: dict[str, Any] = {}  # what faults of this stand need
        paced(upstream, 0.02)

    @property
    def first(self) -> Served:
        """The gateway whose commands are used."""
        return self.gateways[0]

    async def open_accounts(self) -> None:
        """Accounts with a key each, in the database, too: from then on the store knows its database."""
        async with self.first.session() as session:
            for account in ACCOUNTS:
                await session.accounts.create(account, balance=1000 * NANO)
                self.keys[account] = (await session.keys.create(account)).text
        await self.settled()

    async def moment(self, fault: Fault) -> Proof:
        """Load, the fault at a random moment of it, the end of the load, and the proof."""
        async with AsyncExitStack() as stack:
            traffics = [await stack.enter_async_context(traffic_on(gateway)) for gateway in self.gateways]
            for traffic in traffics:
                self._load(traffic)
            await asyncio.gather(*(self._served(traffic, since=0.0) for traffic in traffics))
            await asyncio.sleep(self.rng.uniform(0.0, 1.0))
            await fault.during(self)
            mended = time.monotonic()
            await asyncio.gather(*(self._served(traffic, since=mended) for traffic in traffics))
            await asyncio.sleep(self.rng.uniform(0.0, 0.5))
            for traffic in traffics:
                await traffic.ended()
                self.calls += traffic.calls
        if fault.after is not None:
            await self.settled()
            await fault.after(self)
        await self.settled()
        return await self.proved()

    def _load(self, traffic: Traffic) -> None:
        traffic.tag = "call"
        for key in self.keys.values():
            traffic.keep(1, 6, key=key, pause=0.05)
            traffic.keep(1, 3, stream=False, key=key, pause=0.05)

    async def _served(self, traffic: Traffic, *, since: float) -> None:
        def answered() -> bool:
            return any(call.answered_well and call.started > since for call in traffic.calls)

        await until(answered, within=60.0)

    async def settled(self) -> None:
        """Nothing is held, and the database has every line."""
        ended = time.monotonic() + HOLDS_END
        async with self.first.session() as session:

            async def free() -> bool:
                shown = [await session.accounts.show(account) for account in ACCOUNTS]
                if any(one.held for one in shown) and time.monotonic() > ended:
                    await self.end_leases()
                await asyncio.sleep(0.05)
                return not any(one.held for one in shown)

            await until(free, within=30.0)
            await until(lambda: self._imported(session), within=IMPORTED_WITHIN)

    async def _imported(self, session: Any) -> bool:
        await asyncio.sleep(0.1)
        ends = await asyncio.to_thread(self.sql.ends)
        for account in ACCOUNTS:
            seq = int(await session.store.client.hget(f"{{a:{account}}}", "seq"))
            if ends.get(account) != (seq, (await session.accounts.show(account)).balance):
                return False
        return True

    async def end_leases(self) -> None:
        """Let every hold's lease have run out, as a minute would, and reclaim what it held."""
        async with self.first.session() as session:
            client: Any = session.store.client
            for account in ACCOUNTS:
                name = f"{{a:{account}}}:rx"
                for request_id in await client.zrange(name, 0, -1):
                    await client.zadd(name, {request_id: 1}, xx=True)
                await session.ledger.reclaim(account)

    async def proved(self) -> Proof:
        """The first proof without a fault; the last one, if journals that are taken over late do not mend it."""
        ends = time.monotonic() + TAKEN_OVER_WITHIN
        while (proof := await self._proof()).faults and time.monotonic() < ends:
            await asyncio.sleep(0.5)
            await self.settled()
        return proof

    async def _proof(self) -> Proof:
        """The proof, and the audit command's."""
        async with self.first.session() as session:
            proof = await prove(session, self.sql, ACCOUNTS, self.calls, written(self.upstream), self.lost)
        audit = await asyncio.to_thread(self.first.run, "audit")
        if audit.returncode:
            proof.faults.append(f"audit: {audit.stdout}{audit.stderr}")
        return proof

    # What faults do --------------------------------------------------------------------------------------------------

    def one_gateway(self) -> Served:
        """Any of them."""
        return self.rng.choice(self.gateways)

    async def kill_machine(self, gateway: Served) -> None:
        """End all processes of a gateway at once."""
        pids = [gateway.pid, *children(gateway.pid)]
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        await gateway.ended()
        await until(lambda: not any(map(is_alive, pids)), within=20.0)


def gateway_of(
    yard: Yard, upstream: FakeUpstream, *, name: str, store: str = "", database: str = "", disk: FullDisk | None = None
) -> Served:
    """A gateway that is not started, with short times; its SQLite file is on `disk`."""
    models = f'{MODELS.format(url=upstream.base_url)}\n[database]\nurl = "{database}"\n'
    gateway = yard.make(models, name=name, workers=WORKERS, store=store)
    text = gateway.config.read_text(encoding="utf-8")
    gateway.config.write_text(text.replace("[server]\n", '[server]\ntags = ["call"]\n', 1), encoding="utf-8")
    gateway.environment["PYTHONPATH"] = os.pathsep.join(
        [str(SHORT_TIMES), *filter(None, [os.environ.get("PYTHONPATH", "")])]
    )
    if disk is not None:
        gateway.environment |= disk.environment(gateway.data_dir / "gateway.db")
    gateway.data_dir.mkdir(mode=0o700)
    pepper = gateway.data_dir / "pepper"
    pepper.write_text(PEPPER)
    pepper.chmod(0o600)
    return gateway


def copy_of_store(root: Path, to: Path) -> Path:
    """A copy of the files of a store that runs."""
    shutil.rmtree(to, ignore_errors=True)
    return Path(shutil.copytree(root / "appendonlydir", to))


def put_back(copy: Path, root: Path) -> None:
    """Let a store that does not run have the copied files."""
    shutil.rmtree(root / "appendonlydir")
    shutil.copytree(copy, root / "appendonlydir")

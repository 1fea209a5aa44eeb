"""The fleet: all its parts, started; its accounts and keys; its load; the parts of its run."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from msgspec import structs

from gateway.testing import FakeUpstream, Reply
from tests.chaos.redis_topologies import SixNodes, six_nodes
from tests.chaos.versions import archived_source
from tests.fleet.clients import Load
from tests.fleet.machines import Machine, models_of
from tests.fleet.network import FRONT, STORE, UPSTREAM, prepare
from tests.fleet.nginx import PORT, Nginx
from tests.fleet.pages import Person
from tests.fleet.table import Part
from tests.postgres import PostgresServer, postgres_server
from tests.processes.proxy_programs import CONSOLE

OLD = "dc8e832b"  # the version before
UPSTREAM_PORT = 9000
DELAY = 0.1  # seconds until a whole answer
INTERVAL = 0.05  # seconds between the words of a stream
RPM = 60
BALANCE = "1000"
TURNS = 10  # of a session, until its budget is used
SESSION_BUDGET = "0.0001"  # TURNS × SESSION_WORDS × PER_TOKEN
PREPAID_WORDS = 5
PREPAID = "0.005"  # 1,000 calls of PREPAID_WORDS
ACCOUNTS = {
    "chats": ("--balance", BALANCE),
    "agents": ("--balance", BALANCE),
    "batches": ("--balance", BALANCE),
    "limited": ("--balance", BALANCE),
    "prepaid": ("--balance", PREPAID),
}
KEYS = {"agents": ("--max-session-cost", SESSION_BUDGET), "limited": ("--rpm", str(RPM))}


class Fleet:
    """All parts. `parts` are those of the run so far."""

    def __init__(
        self, machines: list[Machine], cluster: SixNodes, postgres: PostgresServer, nginx: Nginx, database: str
    ) -> None:
        self.machines = machines
        self.cluster = cluster
        self.postgres = postgres
        self.nginx = nginx
        self.database = database
        self.upstream = FakeUpstream()
        self.upstream.tamper = _paced
        self.load = Load(f"https://{FRONT}:{PORT}", nginx.trust)
        self.person = Person(nginx.trust)
        self.keys: dict[str, str] = {}
        self.parts: list[Part] = []

    @property
    def first(self) -> Machine:
        """The gateway whose commands are used."""
        return self.machines[0]

    def machine(self, address: str) -> Machine:
        """The gateway with an address."""
        return next(one for one in self.machines if one.address == address)

    async def start(self) -> None:
        """Start the upstream, the gateways one after the other, and nginx; make accounts, keys and a person."""
        await self.upstream.start(host=UPSTREAM, port=UPSTREAM_PORT)
        for machine in self.machines:
            await machine.start()
        await asyncio.to_thread(self.nginx.start)
        for account, options in ACCOUNTS.items():
            await self.first.gateway.command("accounts", "create", account, *options)
            created = await self.first.gateway.command("keys", "create", account, *KEYS.get(account, ()))
            self.keys[account] = created["key"]
        created = await self.first.gateway.command("users", "create", "ann@example.com", "--operator")
        await self.person.sign_in(created["link"])

    def begin_load(self) -> None:
        """Some thirty calls a second in all."""
        load, chats = self.load, self.load.openai_sdk(self.keys["chats"])
        load.keep(lambda: load.chat(chats, "chats", stream=False), pause=0.4, count=4)
        load.keep(lambda: load.chat(chats, "chats", stream=True), pause=0.4, count=4)
        load.keep(lambda: load.chat(chats, "chats", stream=True, kind="long", words=100), pause=0.5, count=3)
        agents = load.anthropic_sdk(self.keys["agents"])

        async def session() -> None:
            name, turn = secrets.token_hex(8), 0
            while not (await load.message(agents, "agents", name, stream=turn % 2 == 0)).refused and not load.over:
                turn += 1
                await asyncio.sleep(0.3)

        load.keep(session, pause=0.3, count=4)
        batches = load.openai_sdk(self.keys["batches"])
        load.keep(lambda: load.batch(batches, "batches"), pause=0.6, count=2)
        limited = load.openai_sdk(self.keys["limited"])
        load.keep(lambda: load.chat(limited, "limited", stream=False, kind="rpm"), pause=0.2, count=3)
        prepaid = load.openai_sdk(self.keys["prepaid"])
        load.keep(lambda: load.chat(prepaid, "prepaid", stream=False, kind="prepaid", words=PREPAID_WORDS), pause=2.0)
        self.person.begin()

    async def drain_prepaid(self) -> None:
        """Use the prepaid account up by many clients at once."""
        sdk = self.load.openai_sdk(self.keys["prepaid"])

        async def until_refused() -> None:
            while True:
                call = await self.load.chat(sdk, "prepaid", stream=False, kind="prepaid", words=PREPAID_WORDS)
                if call.refused:
                    return

        await asyncio.gather(*(until_refused() for _ in range(10)))

    @contextmanager
    def part(self, name: str, sick: int = 0) -> Iterator[Part]:
        """A part of the run, from the begin to the end of the block."""
        now = time.monotonic()
        part = Part(name, now, sick=self.machines[sick - 1].address if sick else "", sick_since=now)
        yield part
        part.ended = time.monotonic()
        self.parts.append(part)


def _paced(reply: Reply) -> Reply:
    return structs.replace(reply, delay=DELAY) if reply.frames is None else structs.replace(reply, interval=INTERVAL)


@contextmanager
def fleet_in(folder: Path, *, with_health: bool) -> Iterator[Fleet]:
    """A fleet of the old version in a folder, its gateways not started; the network namespace must be its own."""
    prepare()
    source = archived_source(folder / "old", OLD)
    assert source is not None, f"the history has no {OLD}"
    with ExitStack() as stack:
        (folder / "store").mkdir()
        cluster = stack.enter_context(six_nodes(folder / "store", STORE))
        postgres = stack.enter_context(postgres_server())
        assert postgres is not None, "there is no PostgreSQL"
        database = postgres.new_database()
        models = models_of(UPSTREAM_PORT, database)
        console_url = f"https://{CONSOLE}:{PORT}"
        machines = [
            Machine(folder, number, store=cluster.url, models=models, console_url=console_url) for number in (1, 2, 3)
        ]
        for machine in machines:
            machine.use(source)
        nginx = Nginx(folder, with_health=with_health)
        yield Fleet(machines, cluster, postgres, nginx, database)

"""One schedule: machines, a store, an upstream and callers in one process, with the faults that a seed draws.

::

    report = run(7, folder)  # running.py
    assert not report.broken, shrunk(report, folder).story()

Everything that is not an edge is the gateway's own code.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from contextvars import Context
from functools import cache
from math import inf
from pathlib import Path
from typing import Any

from msgspec import Struct

from gateway.accounts.accounts import Accounts
from gateway.accounts.keys import Keys
from gateway.amounts import NANO
from gateway.config.loader import parse
from gateway.config.settings import Settings
from gateway.errors import GatewayError, StoreUnavailable
from gateway.ledger import GroupLimits, Ledger
from gateway.ledger.api_key import ApiKey
from gateway.plugins.loader import Plugins
from gateway.store import Store
from tests.simulation.callers import Caller, Outcome
from tests.simulation.clock_loop import BEGINNINGS, Clock, SimulatedLoop, Stuck
from tests.simulation.faults import FAULTS, LASTING, Fault
from tests.simulation.history_end import HistoryEnd
from tests.simulation.machines import PEPPER, TIMEOUT, Machine, address
from tests.simulation.network import Network
from tests.simulation.promises import broken_promises
from tests.simulation.store_end import StoreEnd
from tests.simulation.upstream import WorldProvider, WorldUpstream

CALLS = 30
OVER_HTTP = 0.5  # of the schedules have callers over HTTP; the others call the pipeline
IMPORTED = 0.4  # of the schedules have importers and a database
TRIES = 40  # of an operator, a second apart
STORY = 12  # lines
OPENING = 20 * NANO // 1000
#: Seconds after the last fault: by then the journals of living processes are sent, and after a death or a loss of data
#: also the leases of dead calls have ended, and what was confirmed before is no longer sent again.
SHORT, LONG = 15.0, 200.0
ENDS_WITHIN = 2000.0  # seconds of the clock
ACCOUNT = "acme"
DOCUMENT: dict[str, Any] = {
    "log": {"access": False},
    "providers": {"world": {"plugin": "world"}},
    "groups": {"default": {}, "other": {}},
    "models": {
        "m": {
            "provider": "world", "model": "any", "price": {"input": 1, "output": 2}, "context_window": 1000,
            "max_output_tokens": 50, "retries": 1, "total_timeout": 30, "idle_timeout": 10, "first_byte_timeout": 10,
        }
    },
}  # fmt: skip


Window = tuple[str, float, float]


class Price(Struct):
    """What a token costs, in nano units, and the seconds of the clock between which some worker may charge that."""

    input: int
    output: int
    since: float
    until: float = inf


def settings_at(input_: int, output: int) -> Settings:
    """The settings of the gateway with these prices of a token, in thousands of nano units."""
    model = {**DOCUMENT["models"]["m"], "price": {"input": input_, "output": output}}
    return parse({**DOCUMENT, "models": {"m": model}}, demo=True)


class Plan(Struct, frozen=True):
    """A whole schedule, or what is left of it while it is made smaller."""

    calls: int = CALLS
    without: frozenset[int] = frozenset()  # places of faults that do not happen


class Report(Struct):
    """What came of a schedule."""

    seed: int
    plan: Plan
    faults: list[str]
    broken: list[str]
    log: list[str]
    digest: str = ""

    def story(self) -> str:
        """The schedule for a person, with the command that repeats it."""
        again = f"python -m tests.simulation --seed {self.seed}"
        if self.plan != Plan():
            without = ",".join(map(str, sorted(self.plan.without)))
            again += f" --calls {self.plan.calls}" + (f" --without {without}" if without else "")
        told = [line for line in self.log if "fault: " in line or any(one in line for one in self._named_in_broken())]
        return "\n".join([f"seed {self.seed}, {self.plan.calls} calls:", *told[-STORY:], *self.broken[:5], again])

    def _named_in_broken(self) -> list[str]:
        """The requests and calls that the broken promises name."""
        return [word.strip(",") for text in self.broken for word in text.split() if word.startswith(("req_", "again-"))]


@cache
def _settings() -> Settings:
    return settings_at(1, 2)


class World:
    """Everything of one schedule."""

    def __init__(self, seed: int, folder: Path, loaded: Plugins, plan: Plan) -> None:
        self.dice = random.Random(seed)
        self.seed, self.folder, self.loaded = seed, folder, loaded
        self.clock = Clock(self.dice.choice(BEGINNINGS))
        self.network = Network(self.dice)
        self.network.context = Context()
        self.loop = SimulatedLoop(self.clock, self.network)
        self.network.loop = self.loop
        self.store = StoreEnd(self.clock, self.network)
        self.upstream = WorldUpstream(self.dice)
        self.history = HistoryEnd(self) if self.dice.random() < IMPORTED else None
        self.over_http = self.dice.random() < OVER_HTTP
        self.machines: list[Machine] = []
        self.outcomes: list[Outcome] = []
        self.prices = [Price(1000, 2000, 0.0)]
        self.log: list[str] = []
        self.callers: list[ApiKey] = []
        self.tokens: dict[str, str] = {}  # by the ids of the keys
        self.revoked_at = inf  # seconds of the clock from which the second key is surely dead
        #: Machines, and the seconds of the clock between which their files lost writes, or took none.
        self.lost: list[Window] = []
        self.unwritten: list[Window] = []
        self._plan = plan
        self._named: list[str] = []

    ledger: Ledger
    accounts: Accounts
    keys: Keys

    async def operate(self, work: Callable[[], Awaitable[object]]) -> bool:
        """Do what an operator does, again while the store is away; whether it was done."""
        for _ in range(TRIES):
            try:
                await work()
            except StoreUnavailable:
                await asyncio.sleep(1.0)
            except GatewayError as error:
                self.note(f"refused: {error.message}")
                return False
            else:
                return True
        return False

    def note(self, text: str) -> None:
        """Add a line to the story."""
        self.log.append(f"{self.clock.passed:9.4f} {text}")

    async def live(self) -> list[str]:
        """Run the schedule; returns the broken promises."""
        settings = _settings()
        WorldProvider.world = self.upstream
        store = await Store.open(address(), timeout=TIMEOUT)
        ledger = Ledger(store, {"default": GroupLimits(), "other": GroupLimits()})
        self.ledger, self.accounts, self.keys = ledger, Accounts(store, ledger), Keys(store, PEPPER)
        await self.accounts.create(ACCOUNT, balance=OPENING)
        made = [await self.keys.create(ACCOUNT), await self.keys.create(ACCOUNT, budget=OPENING, every="day")]
        self.callers = [ApiKey(one.account, one.id) for one in made]
        self.tokens = {one.id: one.text for one in made}
        for name in ("m1", "m2")[: self.dice.randrange(1, 3)]:
            machine = Machine(
                name,
                settings,
                self.folder,
                self.loaded,
                importer=None if self.history is None else self.history.serve,
                network=self.network if self.over_http else None,
            )
            await machine.start(self.dice.randrange(1, 3))
            self.machines.append(machine)
        caller = Caller(self, self.outcomes)
        span = self.dice.uniform(0.5, 20.0)
        asks = [(self.dice.uniform(0, span), number) for number in range(CALLS)]
        chosen = [(self.dice.uniform(0, span), self.dice.choice(FAULTS)) for _ in range(self.dice.randrange(1, 6))]
        chosen = [chosen[place] for place in range(len(chosen)) if place not in self._plan.without]
        self._named = [fault.__name__ for _, fault in chosen]
        await asyncio.gather(
            *(self._at(when, caller.call(number)) for when, number in asks[: self._plan.calls]),
            *(self._at(when, self._happen(fault)) for when, fault in chosen),
        )
        await self._heal(store)
        broken = await broken_promises(self, store, ledger)
        for machine in self.machines:
            await machine.stop()
        await store.close()
        return broken

    async def _at(self, when: float, work: Any) -> None:
        await asyncio.sleep(when)
        await work

    async def _happen(self, fault: Fault) -> None:
        self.note(f"fault: {fault.__name__}")
        await fault(self)

    async def _heal(self, store: Store) -> None:
        """Every fault ends, and time passes until nothing is due."""
        self.store.paused_until = self.store.lose_replies = 0
        self.network.refused.clear()
        if self.history is not None:
            self.history.heal()
        for machine in self.machines:
            if not machine.alive:
                await machine.start(1)
            await machine.start_importer()
        while any(process.hangs_until > self.loop.time() for machine in self.machines for process in machine.processes):
            await asyncio.sleep(SHORT)
        lasts, ends = bool(LASTING & set(self._named)), self.clock.passed + LONG
        await asyncio.sleep(SHORT)
        if self.history is not None:
            await self.history.attach_if_forgotten(store)
        while self.clock.passed < ends and (lasts or self._held()):
            await asyncio.sleep(SHORT)
        ends = self.clock.passed + LONG
        while self.clock.passed < ends and self._is_behind():
            await asyncio.sleep(1.0)

    def _is_behind(self) -> bool:
        """Whether the database lacks lines."""
        found: dict[bytes, bytes] = self.store.server.model.keys.values[b"{a:%b}" % ACCOUNT.encode()]
        return self.history is not None and self.history.is_behind(ACCOUNT, found[b"seq"])

    def _held(self) -> bool:
        """Whether anything is held: a call whose admission had no reply holds it until its lease has ended."""
        return self.store.server.model.keys.values[b"{a:%b}" % ACCOUNT.encode()][b"held"] != b"0"

    @property
    def named(self) -> list[str]:
        """The names of the faults."""
        return self._named

    def close(self) -> None:
        """Let go of everything, without running what dead tasks would still do."""
        for machine in self.machines:
            for process in machine.processes:
                process.kill()
        with contextlib.suppress(Stuck):
            self.loop.run_until_complete(self._end())
        self.loop.close()

    async def _end(self) -> None:
        for machine in self.machines:
            for process in machine.processes:
                process.forget()
        rest = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in rest:
            task.cancel()
        await asyncio.sleep(0)

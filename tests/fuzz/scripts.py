"""The ledger's scripts on a real store, with arguments at the edge of what the gateway passes on.

After every case the audit finds nothing, and no call was charged more than its cost. What each operation does to a
balance is compared in tests/ledger/test_state_machine.py.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct

from gateway.admin.account_limits import FIELDS, AccountLimits
from gateway.admin.refunds import Refunds
from gateway.amounts import MAX_AMOUNT
from gateway.errors import GatewayError, InvalidValue
from gateway.ledger import GroupLimits, Hold
from gateway.ledger.api_key import ApiKey
from gateway.store import EmbeddedServer
from tests.fuzz.choices import Choices
from tests.ledger.records import quote_of, record_of
from tests.world import World, open_world

AMOUNTS = (
    0,
    1,
    999,
    10**6,
    10**9,
    MAX_AMOUNT,
    MAX_AMOUNT + 1,
    2**53,
    2**53 + 1,
    2**63,
    10**30,
    -1,
    -(10**9),
    -MAX_AMOUNT,
)
COUNTS = (0, 1, 10, 1000, 10**9, 2**31, 2**53, 2**64)
TEXTS = (
    "m", "", "m\nn", "\nm\n", "m n", "%s %d %", "m" * 1024, "m" * 1025, "é" * 600, "\0", "\r\n$1\r\nx\r\n", "-", "+",
    "*", '"', "\\", "{a:x}", "0", "-1", "1e400", "nan", "use 5 -", "\u2028",
)  # fmt: skip
OPERATIONS = ("admit", "admit", "admit", "settle", "settle", "void", "extend", "renew", "reclaim", "credit", "refund",
              "limit", "explain", "replay", "rule")  # fmt: skip


class Step(Struct, frozen=True):
    """One operation."""

    name: str
    pick: int  # which call or key
    text: str
    amount: int
    count: int
    flag: bool


class Steps(Struct, frozen=True):
    """The operations on one account with two keys."""

    balance: int
    budget: int | None
    models: list[str] | None
    steps: list[Step]
    at_once: bool  # they are sent without waiting for one another


class ScriptsTarget:
    """`Ledger` with its scripts."""

    name = "scripts"
    seconds = 5.0

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._loop = asyncio.new_event_loop()
        self._server = EmbeddedServer(Path(self._folder.name))
        self._server.start_blocking()
        groups = {"limited": GroupLimits(rpm=1000, tpm=10**6, concurrency=5)}
        self._context = open_world(self._server.socket, **groups)
        self._world = self._loop.run_until_complete(self._context.__aenter__())
        self._cases = 0

    def make(self, choices: Choices) -> Steps:
        def step() -> Step:
            text = choices.text(12) if choices.one_in(4) else choices.of(TEXTS)
            text = text.encode(errors="replace").decode()  # as from JSON and TOML, which have no lone surrogates
            amount = choices.below(60_000) if choices.one_in(2) else choices.of(AMOUNTS)
            name = choices.of(OPERATIONS)
            return Step(name, choices.below(256), text, amount, choices.of(COUNTS), choices.one_in(2))

        balance = choices.pick(10**6, 10**6, 0, MAX_AMOUNT)
        models = choices.many(lambda: choices.of(TEXTS), 3, least=1) if choices.one_in(3) else None
        budget = choices.pick(None, None, 5000, MAX_AMOUNT)
        return Steps(balance, budget, models, choices.many(step, 14), choices.one_in(3))

    def check(self, case: Steps) -> None:
        self._loop.run_until_complete(self._check(case))

    def close(self) -> None:
        self._loop.run_until_complete(self._context.__aexit__(None, None, None))
        self._loop.close()
        self._server.stop_blocking()
        self._folder.cleanup()

    async def _check(self, case: Steps) -> None:
        self._cases += 1
        if self._cases % 200 == 0:
            await self._world.store.client.flushall()
        account = await Walk.begin(self._world, f"case-{self._cases}", case)
        if case.at_once:
            await asyncio.gather(*(account.take(step) for step in case.steps))
        else:
            for step in case.steps:
                await account.take(step)
        await account.end()


class Walk:
    """The operations of one case."""

    def __init__(self, world: World, name: str, keys: list[ApiKey]) -> None:
        self._world, self._name, self._keys = world, name, keys
        self._calls: list[Hold] = []
        self._costs: dict[str, int] = {}  # by request id, of the calls that were settled
        self._asks = 0

    @classmethod
    async def begin(cls, world: World, name: str, case: Steps) -> Walk:
        """Open the account."""
        group = "limited" if case.balance == 0 else "default"
        await world.ledger.open(name, group, balance=case.balance)
        keys = [await world.caller(name)]
        # Not by the service, which would refuse some of the names.
        fields: dict[Any, Any] = {} if case.budget is None else {"cap": case.budget}
        if case.models is not None:
            fields["models"] = "\n" + "\n".join(case.models) + "\n"
        if fields:
            await world.store.client.hset(f"{{a:{name}}}:k:{keys[0].id}", mapping=fields)
        return cls(world, name, [*keys, ApiKey(name, "key_unknown")])

    async def take(self, step: Step) -> None:
        """One operation; a refusal is no fault."""
        operations: dict[str, Callable[[Step], Awaitable[Any]]] = {
            "admit": self._admit, "settle": self._settle, "void": self._settle, "extend": self._extend,
            "renew": self._renew, "reclaim": self._reclaim, "credit": self._credit, "refund": self._refund,
            "limit": self._limit, "explain": self._explain, "replay": self._replay, "rule": self._rule,
        }  # fmt: skip
        try:
            await operations[step.name](step)
        except GatewayError as error:
            # 500: a negative amount. 503: the key of an unknown id; the store seems to have lost it.
            assert error.status < 500 or step.amount < 0 or self._is_unknown(step), (step, error.detail)

    def _is_unknown(self, step: Step) -> bool:
        return step.pick % len(self._keys) == 1

    async def end(self) -> None:
        """Compare."""
        world = self._world
        await world.ledger.drain()
        report = await world.ledger.audit(self._name)
        assert report.mismatches == [], report.mismatches
        shown = await world.accounts.show(self._name)
        assert abs(shown.balance) <= MAX_AMOUNT
        assert 0 <= shown.held <= MAX_AMOUNT
        charged: dict[str, int] = {}
        async for line in world.ledger.lines(self._name):
            if line.kind in ("use", "adj", "reclaim") and line.request_id in self._costs:
                charged[line.request_id] = charged.get(line.request_id, 0) - line.amount
        for request_id, amount in charged.items():
            assert 0 <= amount <= self._costs[request_id], request_id

    def _ask(self, step: Step) -> tuple[str, ApiKey, Any]:
        self._asks += 1
        request_id = f"req_{self._asks:032x}"
        quote = quote_of(step.amount, step.count, model=step.text, version=step.text)
        return request_id, self._keys[step.pick % len(self._keys)], quote

    def _call(self, step: Step) -> Hold:
        if not self._calls:
            raise InvalidValue("no call")
        return self._calls[step.pick % len(self._calls)]

    async def _admit(self, step: Step) -> None:
        hold = await self._world.ledger.admit(*self._ask(step))
        assert hold.amount == step.amount
        self._calls.append(hold)

    async def _settle(self, step: Step) -> None:
        hold = self._call(step)
        if step.name == "void":
            self._world.ledger.book(hold, None)
            return
        # An impossible cost is replaced by the hold.
        cost = step.amount if 0 <= step.amount <= MAX_AMOUNT else hold.amount
        self._costs[hold.request_id] = max(cost, self._costs.get(hold.request_id, 0), hold.used)
        record = record_of(step.amount, tokens=min(step.count, 10**9), provider=step.text, served_model=step.text)
        self._world.ledger.book(hold, record)
        if step.flag:
            await self._world.ledger.drain()

    async def _extend(self, step: Step) -> None:
        if step.amount > 0:
            await self._world.ledger.extend(self._call(step), step.amount)

    async def _renew(self, step: Step) -> None:
        hold = self._call(step)
        hold.used = max(hold.used, step.amount)
        self._costs[hold.request_id] = max(self._costs.get(hold.request_id, 0), hold.used)
        await self._world.ledger.renew_leases([hold])

    async def _reclaim(self, step: Step) -> None:
        if step.flag and self._calls:
            await self._world.expire(self._call(step))
        await self._world.ledger.reclaim(self._name)

    async def _credit(self, step: Step) -> None:
        operation = step.text if step.flag else None
        await self._world.accounts.credit(
            self._name, step.amount, operation=operation, allow_negative=True, force=step.count == 1
        )

    async def _refund(self, step: Step) -> None:
        amount = step.amount if step.flag else None
        await Refunds(self._world.ledger).refund(self._name, self._call(step).request_id, amount, note=step.text[:500])

    async def _limit(self, step: Step) -> None:
        name = sorted(FIELDS)[step.pick % len(FIELDS)]
        limits = AccountLimits(self._world.store, self._world.accounts)
        await limits.change(self._name, **{name: step.amount})  # type: ignore[arg-type, misc]

    async def _explain(self, step: Step) -> None:
        await self._world.ledger.explain(*self._ask(step))

    async def _replay(self, step: Step) -> None:
        await self._world.ledger.count_replay(*self._ask(step))

    async def _rule(self, step: Step) -> None:
        change = self._world.accounts.allow if step.flag else self._world.accounts.deny
        with suppress(InvalidValue):
            await change(self._name, [step.text])

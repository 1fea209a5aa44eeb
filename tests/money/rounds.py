"""Runs rounds on a gateway, and reports the first promise that does not hold, in the smallest round that shows it.

A `Driver` makes the calls of a round, in this process or over sockets. Everything before and after them is the same.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

import msgspec
from msgspec import Struct, structs

from gateway.accounts.accounts import Accounts
from gateway.accounts.key_record import CreatedKey
from gateway.accounts.keys import Keys
from gateway.admin.account_limits import AccountLimits
from gateway.admin.account_prices import AccountPrices
from gateway.admin.actor import command_line
from gateway.admin.outbox import AuditOutbox
from gateway.amounts import NANO
from gateway.billing.price_terms import OwnPrice
from gateway.billing.quote import Quote
from gateway.ledger import Hold
from gateway.ledger.api_key import ApiKey
from gateway.ledger.periods import Every
from gateway.runtime.gateway import Gateway
from gateway.store.links import slot
from tests.conftest import PEPPER
from tests.money.cases import BUDGET, BUDGETS, CELLS, Case, Cell, Round, plan
from tests.money.observed import Balance, KeyState, Outcome, Seen, SessionState
from tests.money.promises import OWN, Broken, broken
from tests.money.upstreams import Truth, Upstreams

SEED = int(os.environ.get("MONEY_SEED", "1"))
ONLY = os.environ.get("MONEY_ROUND", "")  # the number of the only round to run
AT_ONCE = 8  # rounds
OPERATOR = command_line("operator")


class Driver(Protocol):
    """Makes one call and returns what its caller saw."""

    async def call(self, case: Case, key: CreatedKey) -> Seen: ...


class Failure(Struct, frozen=True):
    """The promises that one round breaks, and the cases that are enough for it."""

    round: Round
    broken: list[Broken]
    promises: frozenset[str]  # that the whole round breaks

    def text(self, seed: int) -> str:
        """The report."""
        lines = [f"MONEY_SEED={seed} MONEY_ROUND={self.round.number} repeats it; balance {self.round.balance}"]
        lines += [
            f"floor {self.round.floor}, cap {self.round.cap}, pricing {self.round.pricing}",
            f"budget of each session {self.round.session_budget}",
            *(f"  {case.document()} {case.cell}" for case in self.round.cases),
        ]
        return "\n".join([*lines, *(f"BROKEN {promise}: {figures}" for promise, figures in self.broken[:12])])


class Report(Struct):
    """What a run covered, and its first failure."""

    calls: int = 0
    left: Counter[str] = msgspec.field(default_factory=Counter)  # callers, by moment
    uncollected: int = 0
    covered: Counter[Cell] = msgspec.field(default_factory=Counter)
    served: Counter[Cell] = msgspec.field(default_factory=Counter)  # the admitted calls of them
    failure: Failure | None = None

    def text(self) -> str:
        """The covered cells, by dimension and in all."""
        out = [f"{self.calls} calls, {self.served.total()} admitted, {self.uncollected} with uncollected cost"]
        out.append("left early: " + ", ".join(f"{moment} {count}" for moment, count in sorted(self.left.items())))
        for at, dimension in enumerate(Cell._fields):
            counts: Counter[str] = Counter()
            for cell, count in self.covered.items():
                counts[cell[at]] += count
            out.append(f"{dimension}: " + ", ".join(f"{name} {count}" for name, count in sorted(counts.items())))
        least = min(self.covered.values()) if len(self.covered) == CELLS else 0
        cells = f"{len(self.covered)} of {CELLS} cells covered, each at least {least} times"
        return "\n".join([*out, f"{cells}; {len(self.served)} with an admitted call"])


class Runner:
    """Runs rounds on one gateway."""

    def __init__(
        self,
        gateway: Gateway,
        upstreams: Upstreams,
        driver: Driver,
        change: Callable[[Round], Round] = lambda one: one,
    ) -> None:
        self._change = change  # what the driver can do of a round
        self._gateway, self._upstreams, self._driver = gateway, upstreams, driver
        self._keys = Keys(gateway.store, PEPPER)
        self._holds: dict[str, tuple[Hold, int]] = {}
        self._tries = 0
        self._record_holds()

    def _record_holds(self) -> None:
        ledger, admit = self._gateway.ledger, self._gateway.ledger.admit

        async def recorded(request_id: str, key: ApiKey, quote: Quote) -> Hold:
            hold = await admit(request_id, key, quote)
            self._holds[request_id] = hold, hold.amount
            return hold

        ledger.admit = recorded  # type: ignore[method-assign, assignment]

    async def run(self, cases: int, *, seed: int = SEED) -> Report:
        """Run so many cases; stops at the first round that breaks a promise."""
        report = Report()
        rounds = (self._change(one) for one in plan(cases, seed) if not ONLY or one.number == int(ONLY))
        await asyncio.gather(*(self._work(rounds, report) for _ in range(AT_ONCE)))
        return report

    async def _work(self, rounds: Iterator[Round], report: Report) -> None:
        for one in rounds:
            if report.failure is not None:
                return
            outcome = await self.outcome(one)
            found = list(broken(outcome))
            if found and report.failure is None:
                report.failure = Failure(one, found, frozenset(each.promise for each in found))
                report.failure = await self._shrunk(report.failure)
            _add(report, outcome)

    async def _shrunk(self, failure: Failure) -> Failure:
        """The same promise broken by fewer cases, as far as leaving one out after the other finds them."""
        promise = failure.broken[0].promise
        for case in failure.round.cases:
            rest = [other for other in failure.round.cases if other is not case]
            if not rest:
                break
            smaller = structs.replace(failure.round, cases=rest)
            found = [one for one in broken(await self.outcome(smaller)) if one.promise == promise]
            if found:
                failure = Failure(smaller, found, failure.promises)
        return failure

    async def outcome(self, one: Round) -> Outcome:
        """Make the calls of a round on a new account."""
        self._tries += 1
        account = f"round-{self._tries}"
        gateway, link = self._gateway, self._gateway.store.link(slot(account))
        await gateway.ledger.open(account, one.group, balance=one.balance)
        accounts = Accounts(gateway.store, gateway.ledger)
        if (own := _own_price(one)) is not None:
            prices = AccountPrices(gateway.store, accounts, AuditOutbox(gateway.store))
            for model in {case.model for case in one.cases}:
                await prices.set(OPERATOR, account, model, own)
        await AccountLimits(gateway.store, accounts).change(
            account, floor=min(one.floor, one.balance), monthly=one.cap, max_session_cost=one.session_budget
        )
        await link.call("HSET", slot(account), "floor", str(one.floor))  # also one above the balance
        budgets = [name for name in BUDGETS if any(case.cell.budget == name for case in one.cases)]
        made = []
        for name in budgets:
            budget = BUDGET[name]
            every: Every | None = "month" if budget is not None and one.number % 2 else None
            made.append(await self._keys.create(account, budget=budget, every=every))
        keys = dict(zip(budgets, made, strict=True))
        samples: list[Balance] = []
        calls = await asyncio.gather(*(self._call(case, keys[case.cell.budget], samples) for case in one.cases))
        await gateway.ledger.drain()
        return await self._observed(one, account, calls, samples=samples, keys=keys)

    async def _call(self, case: Case, key: CreatedKey, samples: list[Balance]) -> Seen:
        self._upstreams.add(case)
        try:
            seen = await self._driver.call(case, key)
        finally:
            truth = self._upstreams.forget(case)
        seen.truth = truth
        samples.append(await self._balance(key.account))
        return seen

    async def _balance(self, account: str) -> Balance:
        link = self._gateway.store.link(slot(account))
        balance, floor, held, month, spent = (
            (value or b"").decode()
            for value in await link.call("HMGET", slot(account), "bal", "floor", "held", "month", "mspent")
        )
        sessions = {}
        for session in ("agent-0", "agent-1"):
            sums = await link.call("HMGET", f"{slot(account)}:ss:{session}", "spent", "held")
            if sums[1] is not None:
                sessions[session] = SessionState(int(sums[0] or 0), int(sums[1]))
        return Balance(int(balance), int(floor), int(held), month, int(spent or 0), sessions)

    async def _observed(
        self, one: Round, account: str, calls: Iterable[Seen], *, samples: list[Balance], keys: dict[str, CreatedKey]
    ) -> Outcome:
        ledger, link, name = self._gateway.ledger, self._gateway.store.link(slot(account)), slot(account)
        lines = [line async for line in ledger.lines(account)]
        seen, markers = list(calls), dict[str, int]()
        for call in seen:
            call.hold, call.granted = self._holds.pop(call.request_id, (None, 0))
            call.lines = [line for line in lines if line.request_id == call.request_id]
            if marker := await link.call("GET", f"{name}:st:{call.request_id}"):
                markers[call.request_id] = -int(marker.split()[1])
        states = {}
        for budget, key in keys.items():
            spent, held = await link.call("HMGET", f"{name}:k:{key.id}", "spent", "held")
            states[key.id] = KeyState(BUDGET[budget], int(spent or 0), int(held or 0))
        report = await ledger.audit(account)
        audit = [f"{m.rule}: {m.expected}, {m.found}" for m in report.mismatches]
        if report.not_recomputed or report.unreachable or report.moving:
            audit.append(f"not recomputed {report.not_recomputed}, moving {report.moving}")
        holds, end = await link.call("HLEN", f"{name}:rv"), await self._balance(account)
        return Outcome(one, seen, samples, end, lines, states, holds, markers, audit)


def _own_price(one: Round) -> OwnPrice | None:
    """The account's own price of every model, if it has one."""
    if one.pricing == "amounts":
        return OwnPrice(amounts=tuple(sorted((name, amount * NANO) for name, amount in OWN.items())))
    return OwnPrice(int(one.own_factor * NANO)) if one.pricing.startswith("factor") else None


def _add(report: Report, outcome: Outcome) -> None:
    for call in outcome.calls:
        report.calls += 1
        report.left[call.case.cell.moment] += call.left
        report.uncollected += any(line.uncollected for line in call.lines)
        report.covered[call.case.cell] += 1
        if call.hold is not None:
            report.served[call.case.cell] += 1


NO_TRUTH = Truth()

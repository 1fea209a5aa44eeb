"""All operations of the ledger, in any order, against a small model of what they should do.

The default run takes some 2,000 steps; LEDGER_STEPS=100000 takes more. Time does not pass in the model, so the rate
limits are left out; test_limits.py has them.
"""

import asyncio
import math
import os
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from gateway import errors
from gateway.admin.account_limits import AccountLimits
from gateway.admin.refunds import Refunds
from gateway.amounts import MAX_AMOUNT
from gateway.errors import InvalidValue
from gateway.ledger import GroupLimits, Hold
from gateway.ledger.api_key import ApiKey
from gateway.ledger.scripts import load_script
from tests.ledger.records import settle, void

pytestmark = pytest.mark.slow

STEPS = int(os.environ.get("LEDGER_STEPS", "2000"))
PER_RUN = 50
GROUPS = ("default", "gold")
MODELS = {"m": frozenset({"default"}), "n": frozenset({"gold"}), "o": frozenset(GROUPS)}
AMOUNTS = st.one_of(st.integers(0, 3000), st.sampled_from([0, 1, 5 * 10**15]))
PICK = st.integers(0, 10**6)
EVERY = st.none() | st.sampled_from(["month", "week", "day"])
A, USER, SESSION = "{a:acme}", "usr_ann", "agent-7"


class Budget:
    """The model's budget of a key or of a member."""

    def __init__(self, most: int | None, every: str | None) -> None:
        self.most, self.every = most, every
        self.spent = self.base = 0  # base: what was spent when the period began

    def spend(self, amount: int) -> None:
        """Count a charge, or money that is given back."""
        self.spent += amount
        self.base = min(self.base, self.spent)

    def left(self, held: int) -> float:
        """What may still be held."""
        return math.inf if self.most is None else self.most + self.base - self.spent - held


class Key:
    """The model's key; `member`: it is one of the keys of the only user; `session`: what a session may cost."""

    def __init__(
        self,
        key: ApiKey,
        budget: Budget,
        concurrency: int | None,
        models: list[str] | None,
        member: bool,
        session: int | None,
    ) -> None:
        self.key, self.budget, self.concurrency, self.models, self.member = key, budget, concurrency, models, member
        self.session = session
        self.active = True


class Call:
    """The model's call: running, then settled, voided or reclaimed."""

    def __init__(self, hold: Hold, owner: Key, group: str, session: str) -> None:
        self.hold, self.owner, self.session = hold, owner, session
        self.group = group  # of the account at the admission
        self.amount, self.used = hold.amount, 0
        self.state = "running"
        self.charged = 0
        self.uncollected = self.refunded = 0


class Agreement(RuleBasedStateMachine):
    """One account in the real store and in the model; every rule compares the two."""

    opening: Any  # set by the test: the `world` fixture
    taken: list[int]  # set by the test: how many steps all runs together have taken

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.context = self.opening(gold=GroupLimits(concurrency=4))
        self.world = self.loop.run_until_complete(self.context.__aenter__())
        self.run(self.world.accounts.create("acme", balance=10_000))
        self.balance, self.state, self.group = 10_000, "active", "default"
        self.rules: dict[str, str] = {}  # type: ignore[assignment]
        self.keys: list[Key] = []
        self.member = Budget(None, None)
        self.session_spent = 0
        self.calls: list[Call] = []
        self.operations: dict[str, int] = {}
        self.forced = False  # a debit took money that was not free
        self.floor = 0
        self.charged = self.month = 0  # in all, and in the month of the cap
        self.cap: int | None = None

    def run(self, awaitable: Any) -> Any:
        return self.loop.run_until_complete(awaitable)

    def teardown(self) -> None:
        try:
            self.run(self.world.proved())
            self.compare()
        finally:
            self.run(self.context.__aexit__(None, None, None))
            self.loop.close()

    @invariant()
    def count(self) -> None:
        self.taken[0] += 1

    # What the model knows --------------------------------------------------------------------------------------------

    def running(self, owner: Key | None = None) -> list[Call]:
        return [call for call in self.calls if call.state == "running" and owner in (None, call.owner)]

    def held(self, owner: Key | None = None) -> int:
        return sum(call.amount for call in self.running(owner))

    def held_by_member(self) -> int:
        return sum(call.amount for call in self.running() if call.owner.member)

    def left_of_session(self, owner: Key) -> float:
        held = sum(call.amount for call in self.running() if call.session)
        return math.inf if owner.session is None else owner.session - self.session_spent - held

    def live(self, call: Call) -> bool:
        return call.owner.active and self.state == "active"

    def refusal(self, owner: Key, model: str, amount: int, session: str = "") -> type[errors.GatewayError] | None:
        if not owner.active:
            return errors.InvalidApiKey
        if self.state != "active":
            return errors.InsufficientPermissions
        rule_ = self.rules.get(model)
        if owner.models is not None and model not in owner.models:
            return errors.ModelNotPermitted
        if rule_ == "-" or (rule_ is None and self.group not in MODELS[model]):
            return errors.ModelNotPermitted
        if owner.concurrency is not None and len(self.running(owner)) >= owner.concurrency:
            return errors.ConcurrencyLimited
        leased = [call for call in self.running() if call.group == "gold"]  # counted while the group had a limit
        if self.group == "gold" and len(leased) >= 4:
            return errors.ConcurrencyLimited
        return self.lacking(owner, amount, session) if amount else None

    def lacking(self, owner: Key, amount: int, session: str) -> type[errors.GatewayError] | None:
        """Why there is less than `amount` for another hold of the key."""
        if owner.budget.left(self.held(owner)) < amount:
            return errors.BudgetExceeded
        if owner.member and self.member.left(self.held_by_member()) < amount:
            return errors.MemberBudgetExceeded
        if session and self.left_of_session(owner) < amount:
            return errors.SessionBudgetExceeded
        if self.balance - self.held() - self.floor < amount:
            return errors.BalanceExhausted
        if self.cap is not None and self.cap - self.month - self.held() < amount:
            return errors.SpendLimitExceeded
        return None

    def room(self, owner: Key, session: str) -> int:
        """What no call holds of the balance, and of the budgets of the key, its user and the session."""
        free: float = self.balance - self.held() - self.floor
        if self.cap is not None:
            free = min(free, self.cap - self.month - self.held())
        free = min(free, owner.budget.left(self.held(owner)))
        if owner.member:
            free = min(free, self.member.left(self.held_by_member()))
        if session:
            free = min(free, self.left_of_session(owner))
        return max(0, int(free))

    def charge(self, call: Call, cost: int) -> None:
        """Charge what can be collected; the rest of the cost is uncollected."""
        held = call.amount if call.state == "running" else 0
        charged = min(cost, max(call.charged, 0) + held + self.room(call.owner, call.session))
        self.balance -= charged - call.charged
        self.spend(call, charged - call.charged)
        call.charged, call.uncollected = charged, cost - charged

    def spend(self, call: Call, amount: int) -> None:
        call.owner.budget.spend(amount)
        if call.owner.member:
            self.member.spend(amount)
        if call.session:
            self.session_spent = max(0, self.session_spent + amount)
        self.charged += amount
        self.month = max(0, self.month + amount)

    async def booked(self, call: Call) -> tuple[int, int]:
        """What the lines of the call take, and what they leave uncollected."""
        lines = [line async for line in self.world.ledger.lines("acme") if line.request_id == call.hold.request_id]
        return -sum(line.amount for line in lines), sum(line.uncollected for line in lines)

    def compare(self) -> None:
        account = self.run(self.world.accounts.show("acme"))
        if not self.forced:
            assert account.balance - account.floor >= account.held
        assert account.month_spent == (None if self.cap is None else self.month)
        assert (account.balance, account.held) == (self.balance, self.held())
        fields = self.run(self.world.store.client.hmget(f"{A}:ss:{SESSION}", "spent", "held"))
        held_in_session = sum(call.amount for call in self.running() if call.session)
        assert [int(value or 0) for value in fields] == [self.session_spent, held_in_session]
        records = {record.id: record for record in self.run(self.world.keys.list("acme"))}
        for owner in self.keys:
            assert records[owner.key.id].spent == owner.budget.spent
            if owner.budget.most is not None:
                assert records[owner.key.id].period_spent == owner.budget.spent - owner.budget.base

    # Operations ------------------------------------------------------------------------------------------------------

    @rule(
        budget=st.none() | st.integers(1, 9000),
        concurrency=st.none() | st.integers(1, 3),
        models=st.none() | st.lists(st.sampled_from(sorted(MODELS)), min_size=1),
        every=EVERY,
        member=st.booleans(),
        session=st.none() | st.integers(1, 9000),
    )
    @precondition(lambda self: len(self.keys) < 4)
    def make_key(
        self,
        budget: int | None,
        concurrency: int | None,
        models: list[str] | None,
        every: str | None,
        member: bool,
        session: int | None,
    ) -> None:
        every = every if budget is not None else None
        limits = {"budget": budget, "concurrency": concurrency, "models": models, "every": every}
        limits["max_session_cost"] = session
        key = self.run(self.world.caller("acme", user=USER if member else "", **limits))
        self.keys.append(Key(key, Budget(budget, every), concurrency, models, member, session))

    @rule(budget=st.none() | st.integers(1, 9000), every=EVERY)
    def limit_member(self, budget: int | None, every: str | None) -> None:
        every = every if budget is not None else None
        pairs = ["cap", "" if budget is None else budget, "every", every or ""]
        code, *_ = self.run(self.world.store.link(A).eval(load_script("edit_member"), [A], [USER, *pairs]))
        assert code == 0
        if every is None:
            self.member.base = 0
        elif every != self.member.every:
            self.member.base = self.member.spent  # count_budget.lua is not called
        self.member.most, self.member.every = budget, every
        self.compare()

    @rule(pick=PICK, model=st.sampled_from(sorted(MODELS)), amount=AMOUNTS, in_session=st.booleans())
    @precondition(lambda self: self.keys)
    def admit(self, pick: int, model: str, amount: int, in_session: bool) -> None:
        owner = self.keys[pick % len(self.keys)]
        session = self.session_of(owner, amount, in_session)
        expected = self.refusal(owner, model, amount, session)
        try:
            hold = self.run(self.world.admit(owner.key, amount, model=model, groups=MODELS[model], session=session))
        except errors.GatewayError as error:
            assert type(error) is expected
        else:
            assert expected is None
            self.calls.append(Call(hold, owner, self.group, session))
        self.compare()

    @staticmethod
    def session_of(owner: Key, amount: int, in_session: bool) -> str:
        """The session to use: only calls that hold money of a key with a budget of sessions count in it."""
        return SESSION if in_session and amount and owner.session is not None else ""

    @rule(pick=PICK, amounts=st.lists(st.integers(0, 3000), min_size=2, max_size=8), in_session=st.booleans())
    @precondition(lambda self: self.keys)
    def admit_at_once(self, pick: int, amounts: list[int], in_session: bool) -> None:
        owner = self.keys[pick % len(self.keys)]
        sessions = [self.session_of(owner, amount, in_session) for amount in amounts]

        async def gather_all() -> list[Any]:
            asks = [
                self.world.admit(owner.key, amount, model="o", groups=MODELS["o"], session=session)
                for amount, session in zip(amounts, sessions, strict=True)
            ]
            return await asyncio.gather(*asks, return_exceptions=True)

        for amount, session, answer in zip(amounts, sessions, self.run(gather_all()), strict=True):
            expected = self.refusal(owner, "o", amount, session)
            if expected is None:
                assert isinstance(answer, Hold)
                self.calls.append(Call(answer, owner, self.group, session))
            else:
                assert type(answer) is expected
        self.compare()

    @rule(pick=PICK, amount=AMOUNTS, times=st.integers(1, 3))
    @precondition(lambda self: self.calls)
    def settle(self, pick: int, amount: int, times: int) -> None:
        call = self.calls[pick % len(self.calls)]

        async def gather_all() -> list[Any]:
            settle_ = partial(settle, self.world.ledger, call.hold, amount, session=call.session)
            return await asyncio.gather(*(settle_() for _ in range(times)))

        self.run(gather_all())
        if call.state in ("running", "reclaimed"):
            self.charge(call, amount)
            call.state = "settled"
        assert self.run(self.booked(call)) == (call.charged, call.uncollected)
        self.compare()

    @rule(pick=PICK)
    @precondition(lambda self: self.calls)
    def void(self, pick: int) -> None:
        call = self.calls[pick % len(self.calls)]

        self.run(void(self.world.ledger, call.hold))
        if call.state == "running":
            call.state = "voided"
        self.compare()

    @rule(pick=PICK, more=st.integers(1, 3000))
    @precondition(lambda self: self.running())
    def extend(self, pick: int, more: int) -> None:
        call = self.running()[pick % len(self.running())]
        owner = call.owner
        expected: type[errors.GatewayError] | None = None
        if not self.live(call):
            expected = errors.InvalidApiKey
        expected = expected or self.lacking(owner, more, call.session)
        try:
            self.run(self.world.ledger.extend(call.hold, more))
        except errors.GatewayError as error:
            assert type(error) is expected
        else:
            assert expected is None
            call.amount += more
        self.compare()

    @rule(used=st.integers(0, 3000))
    @precondition(lambda self: self.calls)
    def renew_leases(self, used: int) -> None:
        for call in self.calls:
            call.hold.used = used
        answers = self.run(self.world.ledger.renew_leases([call.hold for call in self.calls]))
        for call in self.calls:
            if call.state != "running":
                assert answers[call.hold.request_id] == "gone"
            else:
                assert answers[call.hold.request_id] == ("ok" if self.live(call) else "revoked")
                call.used = max(call.used, used)

    @rule(pick=PICK)
    @precondition(lambda self: self.running())
    def reclaim(self, pick: int) -> None:
        call = self.running()[pick % len(self.running())]
        self.run(self.world.expire(call.hold))
        assert self.run(self.world.ledger.reclaim("acme")) == 1
        self.charge(call, call.used)
        call.state = "reclaimed"
        self.compare()

    @rule(
        amount=st.integers(-2000, 5000).filter(bool),
        operation=st.none() | st.sampled_from(["a", "b", "c"]),
        force=st.sampled_from([False, False, False, True]),
    )
    def credit(self, amount: int, operation: str | None, force: bool) -> None:
        before = self.operations.get(operation or "")
        after = self.balance + amount
        short = amount < 0 and after - self.floor < self.held()
        change = {"operation": operation, "allow_negative": True, "force": force}
        try:
            answer = self.run(self.world.accounts.credit("acme", amount, **change))
        except InvalidValue:
            beyond = after > MAX_AMOUNT or (short and not force)
            assert beyond if before is None else before != amount
        else:
            self.forced |= short and before is None
            assert answer.status == ("repeated" if before == amount else "done")
            if before is None:
                self.balance += amount
                if operation:
                    self.operations[operation] = amount
            assert answer.balance == self.balance
        self.compare()

    @rule(pick=PICK, amount=st.none() | st.integers(1, 3000))
    @precondition(lambda self: self.calls)
    def refund(self, pick: int, amount: int | None) -> None:
        call = self.calls[pick % len(self.calls)]
        left = call.charged - call.refunded
        wanted = left if amount is None else amount
        try:
            answer = self.run(Refunds(self.world.ledger).refund("acme", call.hold.request_id, amount))
        except errors.NotFound:
            assert call.state == "running"
        except errors.InvalidValue:
            assert not 0 < wanted <= left or self.balance + wanted > MAX_AMOUNT
        else:
            assert 0 < wanted == answer.amount <= left
            self.balance += wanted
            self.spend(call, -wanted)
            call.refunded += wanted
            if call.state == "reclaimed":
                call.state = "settled"  # the charge is final
        self.compare()

    @rule(floor=st.integers(-3000, 3000), cap=st.none() | st.integers(0, 12_000))
    def limit(self, floor: int, cap: int | None) -> None:
        limits = AccountLimits(self.world.store, self.world.accounts)
        try:
            self.run(limits.change("acme", floor=floor, monthly=cap, clear=["monthly"] if cap is None else []))
        except errors.InvalidValue:
            assert floor > max(self.floor, self.balance - self.held())
        else:
            assert floor <= max(self.floor, self.balance - self.held())
            if self.cap is None:  # the lines of the calls are all of this month
                self.month = self.charged
            self.floor, self.cap = floor, cap
        self.compare()

    @rule(pick=PICK)
    @precondition(lambda self: self.keys)
    def next_period(self, pick: int) -> None:
        owner = self.keys[pick % len(self.keys)]
        for name, budget in ((f"{A}:k:{owner.key.id}", owner.budget), (f"{A}:u:{USER}", self.member)):
            if budget.every is not None:
                self.run(self.world.store.client.hset(name, "period", "an earlier one"))
                budget.base = budget.spent
        self.compare()

    @rule()
    @precondition(lambda self: self.cap is not None)
    def next_month(self) -> None:
        self.run(self.world.store.client.hset("{a:acme}", "month", "an earlier one"))
        self.month = 0
        self.compare()

    @rule(pick=PICK)
    @precondition(lambda self: len(self.keys) > 1)
    def revoke(self, pick: int) -> None:
        owner = self.keys[pick % len(self.keys)]
        assert self.run(self.world.keys.revoke(owner.key.id)).state == "revoked"
        owner.active = False

    @rule()
    def disable_or_enable(self) -> None:
        change = self.world.accounts.disable if self.state == "active" else self.world.accounts.enable
        self.state = self.run(change("acme")).state

    @rule(group=st.sampled_from(GROUPS))
    def move(self, group: str) -> None:
        self.group = self.run(self.world.accounts.move("acme", group)).group

    @rule(model=st.sampled_from(sorted(MODELS)), allow=st.booleans())
    def allow_or_deny(self, model: str, allow: bool) -> None:
        change = self.world.accounts.allow if allow else self.world.accounts.deny
        self.run(change("acme", [model]))
        self.rules[model] = "+" if allow else "-"


def walk(world: Any, *, steps: int) -> int:
    """Take at least so many steps, each compared; how many it were."""
    taken = [0]
    machine = type("Machine", (Agreement,), {"opening": staticmethod(world), "taken": taken})
    while taken[0] < steps:  # a run may be shorter than PER_RUN
        left = steps - taken[0]
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=max(1, left // PER_RUN),
                stateful_step_count=PER_RUN,
                deadline=None,
                database=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
    return taken[0]


@pytest.mark.holds("prices.md#what-is-collected-1")
def test_ledger_agrees_with_the_model(world):
    assert walk(world, steps=STEPS) >= STEPS

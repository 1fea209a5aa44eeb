"""A reseller's month over the admin API: every sum, wherever it is shown, is the same to the nano-unit.

200 accounts pay by the webhook of docs/admin-api.md, some payments come twice, and 100,000 calls run over `/v1` on two
workers. In between are refunds, prices that change by date, by a reload and by account, budgets of members, and the
month's end in the middle of the calls: the gateway and its store run under another clock. `tox -e chaos`, or
`python -m pytest -s -o python_files='chaos_*.py' tests/chaos/chaos_month.py`; it prints the sums.
"""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gateway.admin.directory import StoreDirectory
from gateway.admin.statement import Statement
from gateway.admin.statements import Statements
from gateway.admin.transactions import Transactions
from gateway.amounts import NANO, format_amount, parse_amount
from gateway.database.address import DatabaseAddress
from gateway.database.engine import Database
from gateway.history.sql_thread import SqlThread
from gateway.testing.ports import free_ports
from tests.chaos.history_proof import Line, Sql
from tests.chaos.reseller import UPSTREAM, Account, Admin, Callers, Paid, Price, Wanted, Webhook, counted
from tests.fake_clock import FakeClock
from tests.polling import until
from tests.processes.conftest import Yard
from tests.processes.served import Served, install_plugin

ACCOUNTS = 200
CALLS = 100_000
REFUNDS = 400
WORKERS = 2
STARTED = datetime(2031, 3, 10, 12, tzinfo=UTC)
LATER = datetime(2031, 3, 20, 9, tzinfo=UTC)
MIDNIGHT = datetime(2031, 4, 1, tzinfo=UTC)
CLOSED = datetime(2031, 4, 1, 1, 30, tzinfo=UTC)  # statements are final an hour after the month's end
BY_DATE = (Price("0.25", "2"), Price("0.199999999", "1.6"))  # of the model "dated", the second from March 16 on
BY_RELOAD = (Price("3.333333333", "7.777777777"), Price("2.5", "9.000000001"))  # of the model "reloaded"
OWN = Price("0.1", "1.123456789")
GROUP_FACTOR = "0.85"
BUDGET = 2_000_000  # nano-units that a member may spend in a month
CONFIG = """
[providers.up]
plugin = "logged-fake"

[groups.resellers]
price_factor = {factor}

[models.dated]
provider = "up"
groups = ["default", "resellers"]
price = [
  {{ input = {dated[0].input}, output = {dated[0].output} }},
  {{ input = {dated[1].input}, output = {dated[1].output}, effective_from = 2031-03-16 }},
]

[models.reloaded]
provider = "up"
groups = ["default", "resellers"]
price = {{ input = {reloaded.input}, output = {reloaded.output} }}
"""


class Month:
    """The reseller's books."""

    def __init__(self, gateway: Served, clock: FakeClock, log: Path, rng: random.Random) -> None:
        self.gateway = gateway
        self.clock = clock
        self.log = log
        self.rng = rng
        self.accounts: dict[str, Account] = {}
        self.callers = Callers(gateway, clock)
        self.priced = 0  # answers whose cost was checked
        self.reload: tuple[datetime, datetime] | None = None  # asked, done
        self.refunds: list[tuple[str, int, datetime]] = []  # account, amount, time
        self.refunded: set[str] = set()

    def configure(self, reloaded: Price) -> None:
        """Write the configuration with this price of the model "reloaded"."""
        self.gateway.configure(CONFIG.format(factor=GROUP_FACTOR, dated=BY_DATE, reloaded=reloaded))

    async def restart(self, at: datetime) -> None:
        """The gateway stops, and starts at another time."""
        if self.gateway.process is not None:
            await self.stop()
        self.clock.set(at)
        self.gateway.environment |= self.clock.environment
        await self.gateway.started(workers=WORKERS)

    async def stop(self) -> None:
        """End the gateway. The settlements of the last minute are days old for the store, which looks for each."""
        assert self.gateway.process is not None
        self.gateway.process.send_signal(signal.SIGTERM)
        assert await self.gateway.ended(within=180.0) == 0

    # Accounts and money ----------------------------------------------------------------------------------------------

    async def open_accounts(self, admin: Admin, count: int) -> None:
        """Every fifth in the group with the factor, every tenth with a member who has a budget."""
        opened = [
            await asyncio.gather(*(self._open(admin, n) for n in range(at, min(at + 8, count))))
            for at in range(0, count, 8)
        ]
        self.accounts = {account.name: account for part in opened for account in part}

    async def _open(self, admin: Admin, number: int) -> Account:
        group = "resellers" if number % 5 == 0 else "default"
        name = f"account-{number:03}"
        await admin.ask("POST", "/accounts", {"name": name, "group": group}, status=201)
        account = Account(name, "", factor=GROUP_FACTOR if number % 5 == 0 else "1")
        path, body = f"/accounts/{name}/keys", {"name": "service", "response_headers": ["cost"]}
        if number % 10 == 1:
            user = await admin.ask("POST", "/users", {"email": f"member{number}@example.com"}, status=201)
            path = f"/accounts/{name}/members/{user['id']}"
            await admin.ask("PUT", path, {"role": "member"})
            await admin.ask("PATCH", f"{path}/budget", {"budget": format_amount(BUDGET), "every": "month"})
            path, account.user, account.budget = f"{path}/keys", user["id"], BUDGET
        account.key = (await admin.ask("POST", path, body, status=201))["key"]
        return account

    async def own_price(self, account: Account, model: str, *options: str) -> None:
        """Give the account a price of its own."""
        done = await asyncio.to_thread(self.gateway.run, "accounts", "price", account.name, model, *options)
        assert done.returncode == 0, done.stderr

    async def pay(self, webhook: Webhook, accounts: list[Account]) -> None:
        """A payment of each account; every fourth is delivered twice at once, and some again later."""
        events = []
        for number, account in enumerate(accounts):
            amount = self.rng.randrange(20 * NANO, 90 * NANO) if number % 40 else 30_001  # some are poor
            events.append((account.name, amount, 2 if number % 4 == 0 else 1))
        sent = await asyncio.gather(*(webhook.pay(name, amount, times=times) for name, amount, times in events))
        again = self.rng.sample(list(zip(sent, events, strict=True)), len(events) // 10)
        await asyncio.gather(*(webhook.pay(name, amount, event=event) for event, (name, amount, _) in again))

    async def refund(self, admin: Admin, count: int) -> None:
        """Give back calls whole or in part; some requests are sent twice."""
        answers = [one for one in self.callers.answers if one.cost > 1 and one.request_id not in self.refunded]
        for answer in self.rng.sample(answers, count):
            self.refunded.add(answer.request_id)
            amount = answer.cost if self.rng.random() < 0.5 else self.rng.randrange(1, answer.cost)
            body: dict[str, Any] = {"request_id": answer.request_id, "note": "not satisfied"}
            if amount < answer.cost:
                body["amount"] = format_amount(amount)
            path, key = f"/accounts/{answer.account}/refunds", f"refund-{answer.name}"
            first = await admin.ask("POST", path, body, key=key)
            assert parse_amount(first["amount"]) == amount
            if self.rng.random() < 0.25:
                assert await admin.ask("POST", path, body, key=key) == first
            self.refunds.append((answer.account, amount, self.clock.now()))

    # Calls -----------------------------------------------------------------------------------------------------------

    def calls(self, count: int) -> Iterator[Wanted]:
        """Calls of random accounts."""
        accounts = list(self.accounts.values())
        for _ in range(count):
            model = "dated" if self.rng.random() < 0.6 else "reloaded"
            yield Wanted(self.rng.choice(accounts), model, self.rng.randrange(1, 12), self.rng.randrange(1, 14))

    async def reload_prices(self) -> None:
        """Another price of a model while calls run."""
        self.configure(BY_RELOAD[1])
        asked, times = self.clock.now(), self.gateway.text.count("configuration reloaded")
        done = await asyncio.to_thread(self.gateway.run, "reload")
        assert done.returncode == 0, done.stderr
        await until(lambda: self.gateway.text.count("configuration reloaded") > times, within=30.0)
        self.reload = asked, self.clock.now()

    def check_costs(self) -> None:
        """Every answer since the last check has the cost that the upstream's count and the prices of now make."""
        counts = counted(self.log)
        for answer in self.callers.answers[self.priced :]:
            if answer.status != 200:
                assert answer.status == 429, answer
                assert answer.name not in counts, answer
                continue
            assert answer.cost in self._possible(answer, *counts[answer.name]), answer
        self.priced = len(self.callers.answers)

    def _possible(self, answer: Paid, tokens_in: int, tokens_out: int) -> set[int]:
        account = self.accounts[answer.account]
        own = account.own.get(answer.model)
        if own is not None:
            return {own.cost(tokens_in, tokens_out, "1")}
        if answer.model == "dated":
            prices = [BY_DATE[answer.began >= datetime(2031, 3, 16, tzinfo=UTC)]]
        else:
            asked, done = self.reload or (answer.ended + timedelta(1), answer.ended + timedelta(1))
            prices = [BY_RELOAD[0]] * (answer.began < done) + [BY_RELOAD[1]] * (answer.ended > asked)
        factor = account.own_factors.get(answer.model, account.factor)
        return {price.cost(tokens_in, tokens_out, factor) for price in prices}


class Books:
    """What the gateway shows in the end."""

    def __init__(self, gateway: Served) -> None:
        self._gateway = gateway
        self._file = gateway.data_dir / "gateway.db"
        self.sql = Sql(file=self._file)

    async def imported(self, accounts: list[str]) -> None:
        """Wait for the database."""
        async with self._gateway.session() as session:
            client: Any = session.store.client

            async def behind() -> bool:
                ends = await asyncio.to_thread(self.sql.ends)
                return all(
                    [ends.get(name, (0, 0))[0] == int(await client.hget(f"{{a:{name}}}", "seq")) for name in accounts]
                )

            await until(behind, within=60.0)

    async def statements(self, accounts: list[str], month: str) -> dict[str, Statement]:
        """The statement of a month of each account."""
        sql, database = SqlThread(), Database.open(DatabaseAddress(file=self._file))
        try:
            async with self._gateway.session() as session:
                service = Statements(Transactions(database, sql), session.store, StoreDirectory(session.store))
                return {name: await service.statement(session.actor, name, month) for name in accounts}
        finally:
            database.close()
            sql.close()

    async def report(self) -> dict[tuple[str, str], dict[str, Any]]:
        """The usage report by account and month."""
        times = ("--from", "2031-03-01T00:00:00Z", "--to", "0s")
        document = await self._gateway.command("report", *times, "--group-by", "account,month")
        return {(row["account"], row["month"]): row for row in document["rows"]}


def month_of(line: Line) -> str:
    """The month in which the store booked a line."""
    return datetime.fromtimestamp(int(line.stream_id.partition("-")[0]) / 1000, UTC).strftime("%Y-%m")


def sums(lines: list[Line], kinds: set[str]) -> dict[tuple[str, str], int]:
    """The amounts of lines of these kinds, by account and month."""
    found: dict[tuple[str, str], int] = defaultdict(int)
    for line in lines:
        if line.kind in kinds:
            found[line.account, month_of(line)] += line.amount
    return found


@pytest.mark.gen_test(timeout=1800)
async def test_every_sum_of_a_resellers_month_is_the_same(yard: Yard, share: float) -> None:
    began, rng = time.monotonic(), random.Random(18)
    [console_port] = free_ports(1)
    gateway = yard.make(name="month", workers=WORKERS, console_port=console_port)
    clock = FakeClock(gateway.folder, STARTED)
    month = Month(gateway, clock, gateway.folder / "upstream.log", rng)
    install_plugin(gateway, "logged", UPSTREAM.format(log=month.log))
    month.configure(BY_RELOAD[0])
    await month.restart(STARTED)
    count, calls = max(40, int(ACCOUNTS * share)), int(CALLS * share)
    async with aiohttp.ClientSession() as session:
        admin = await administrator(session, gateway, f"http://127.0.0.1:{console_port}")
        webhook = Webhook(gateway.folder, admin.url, admin.token, clock)
        await month.open_accounts(admin, count)
        accounts = list(month.accounts.values())
        for account in accounts[2:60:10]:
            await month.own_price(account, "dated", "--factor", "0.7")
            account.own_factors["dated"] = "0.7"
        for account in accounts[3:60:10]:
            await month.own_price(account, "reloaded", "--set", f"input={OWN.input},output={OWN.output}")
            account.own["reloaded"] = OWN
        async with webhook.running(session):
            await month.pay(webhook, accounts)
            await asyncio.gather(month.callers.make(month.calls(calls * 45 // 100)), reload_soon(month, calls))
        month.check_costs()
        await month.refund(admin, int(REFUNDS * share / 2))
        await month.restart(LATER)
        for account in accounts[2:40:10]:
            await month.own_price(account, "dated", "--clear")
            del account.own_factors["dated"]
        async with webhook.running(session):
            await asyncio.gather(month.pay(webhook, accounts[::2]), month.callers.make(month.calls(calls * 25 // 100)))
        month.check_costs()
        await month.refund(admin, int(REFUNDS * share / 4))
        await month.restart(MIDNIGHT - timedelta(seconds=15))
        while len(month.callers.answers) < calls * 9 // 10 or clock.now() < MIDNIGHT + timedelta(seconds=3):
            await month.callers.make(month.calls(1000))
        month.check_costs()
        await month.refund(admin, int(REFUNDS * share / 4))
        await month.restart(CLOSED)
        async with webhook.running(session):
            await month.pay(webhook, accounts[1::4])
        await month.callers.make(month.calls(max(500, calls - len(month.callers.answers))))
        month.check_costs()
        figures = await compare(month, admin, webhook)
    audit = await asyncio.to_thread(gateway.run, "audit")
    assert audit.returncode == 0, audit.stdout + audit.stderr
    await month.stop()
    print(f"\n{figures}\nin {time.monotonic() - began:.0f} s")


async def administrator(session: aiohttp.ClientSession, gateway: Served, url: str) -> Admin:
    """The admin API with a new token, once it serves."""
    scopes = "read,accounts,keys,credits,users,config"

    async def made() -> str:
        done = await asyncio.to_thread(gateway.run, "tokens", "create", "reseller", "--scopes", scopes)
        return done.stdout.strip()

    return Admin(session, url, await until(made, within=30.0))


async def reload_soon(month: Month, calls: int) -> None:
    """A reload after a fifth of all calls."""
    await until(lambda: len(month.callers.answers) >= calls // 5, within=900.0)
    await month.reload_prices()


async def compare(month: Month, admin: Admin, webhook: Webhook) -> str:
    """Hold everything that shows a sum against everything else; the sums as a text."""
    names = sorted(month.accounts)
    books = Books(month.gateway)
    await books.imported(names)
    lines = books.sql.lines()
    paid = {answer.request_id: answer for answer in month.callers.answers if answer.status == 200}
    used = {line.request_id: line for line in lines if line.kind == "use"}
    assert used.keys() == paid.keys()
    for request_id, answer in paid.items():
        line = used[request_id]
        assert (line.account, -line.amount) == (answer.account, answer.cost), (line, answer)
        at = datetime.fromtimestamp(int(line.stream_id.partition("-")[0]) / 1000, UTC)
        assert answer.began - timedelta(seconds=2) <= at <= answer.ended + timedelta(seconds=10), (at, answer)
    counts = counted(month.log)
    assert counts.keys() == {answer.name for answer in paid.values()}
    credits, charges = sums(lines, {"open", "topup"}), sums(lines, {"use"})
    refunds = sums(lines, {"refund"})
    events = {event: found[0] for event, found in webhook.receipts.items()}
    assert sum(amount for _, amount, _ in events.values()) == sum(credits.values())
    assert sum(amount for _, amount, _ in month.refunds) == sum(refunds.values())
    report = await books.report()
    statements = {name: await books.statements(names, name) for name in ("2031-03", "2031-04")}
    for name in names:
        shown = await admin.ask("GET", f"/accounts/{name}")
        before, after = statements["2031-03"][name], statements["2031-04"][name]
        assert (before.is_final, after.is_final, before.opening_balance) == (True, False, 0)
        assert before.closing_balance == after.opening_balance
        assert after.closing_balance == parse_amount(shown["balance"])
        assert parse_amount(shown["balance"]) == sum(line.amount for line in lines if line.account == name)
        assert (before.correction, after.correction, before.uncollected, after.uncollected) == (0, 0, 0, 0)
        received = sum(amount for account, amount, _ in events.values() if account == name)
        assert before.credits + after.credits == received
        for key, statement in (((name, "2031-03"), before), ((name, "2031-04"), after)):
            found = (statement.credits, -statement.charges, statement.refunds)
            assert found == (credits[key], charges[key], refunds[key]), key
            row = report.get(key)
            amount = 0 if row is None else parse_amount(row["amount"])
            assert amount == statement.charges - statement.refunds, (key, row)
            assert sum(one.calls for one in statement.charged) == (0 if row is None else row["calls"])
        await check_budget(month.accounts[name], admin, statements, refunds)
    tokens = [sum(row[name] for row in report.values()) for name in ("tokens_in", "tokens_out")]
    assert tokens == [sum(column) for column in zip(*counts.values(), strict=True)]
    late = [one for one in paid.values() if one.began < MIDNIGHT < one.ended]
    refused = len(month.callers.answers) - len(paid)
    twice = sum(len(found) > 1 for found in webhook.receipts.values())
    return (
        f"{len(names)} accounts, {len(events)} payments ({twice} delivered more than once) of "
        f"{format_amount(sum(credits.values()))}, {len(paid)} calls of {format_amount(-sum(charges.values()))} "
        f"({refused} refused, {len(late)} over midnight), {len(month.refunds)} refunds of "
        f"{format_amount(sum(refunds.values()))}; statements of March: opening 0, closing "
        f"{format_amount(sum(one.closing_balance for one in statements['2031-03'].values()))}, of April: closing "
        f"{format_amount(sum(one.closing_balance for one in statements['2031-04'].values()))}; tokens {tokens}: "
        "difference 0 nano-units between webhook, upstream, callers, ledger, statements, report and balances"
    )


async def check_budget(
    account: Account,
    admin: Admin,
    statements: dict[str, dict[str, Statement]],
    refunds: dict[tuple[str, str], int],
) -> None:
    """A member has spent what the statements say, and in no month more than the budget."""
    if account.budget is None:
        return
    shown = await admin.ask("GET", f"/accounts/{account.name}/members/{account.user}/budget")
    charges = {month: one[account.name].charges for month, one in statements.items()}
    assert max(charges.values()) <= account.budget + max(refunds[account.name, month] for month in charges)
    back = sum(refunds[account.name, month] for month in charges)
    assert parse_amount(shown["spent"]) == sum(charges.values()) - back, (account.name, shown, charges, back)

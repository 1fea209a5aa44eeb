"""A reseller's month over the admin API: every sum, wherever it is shown, is the same to the nano-unit.

200 accounts pay by the webhook of docs/admin-api.md, some payments come twice, and 100,000 calls run over `/v1` on two
workers. In between are refunds, prices that change by date, by a reload and by account, budgets of members, and the
month's end in the middle of the calls: the gateway and its store run under another clock. The reseller does and reads
everything over HTTP; only the first token is made by a command. `tox -e chaos`, or
`python -m pytest -s -o python_files='chaos_*.py' tests/chaos/chaos_month.py`; it prints the sums.
"""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gateway.amounts import NANO, format_amount, parse_amount
from gateway.testing.ports import free_ports
from tests.chaos.history_proof import Sql
from tests.chaos.reseller import UPSTREAM, Account, Admin, Callers, Paid, Price, Wanted, Webhook, counted
from tests.chaos.reseller_books import Books, Line, Statement, sums
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
MONTHS = ("2031-03", "2031-04")
MIDNIGHT = datetime(2031, 4, 1, tzinfo=UTC)
CLOSED = datetime(2031, 4, 1, 1, 30, tzinfo=UTC)  # statements are final an hour after the month's end
BY_DATE = (Price("0.25", "2"), Price("0.199999999", "1.6"))  # of the model "dated", the second from March 16 on
BY_RELOAD = (Price("3.333333333", "7.777777777"), Price("2.5", "9.000000001"))  # of the model "reloaded"
OWN = Price("0.1", "1.123456789")
OWN_FACTOR = "0.7"
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

    async def own_prices(self, admin: Admin) -> None:
        """Give some accounts a price of their own: a factor for one model, amounts for the other."""
        accounts = list(self.accounts.values())
        for account in accounts[2:60:10]:
            await admin.ask("PUT", f"/accounts/{account.name}/prices/dated", {"factor": OWN_FACTOR})
            account.own_factors["dated"] = OWN_FACTOR
        for account in accounts[3:60:10]:
            await admin.ask("PUT", f"/accounts/{account.name}/prices/reloaded", {"amounts": OWN._asdict()})
            account.own["reloaded"] = OWN

    async def clear_prices(self, admin: Admin) -> None:
        """Let some of these accounts pay the list price again."""
        for account in list(self.accounts.values())[2:40:10]:
            await admin.ask("DELETE", f"/accounts/{account.name}/prices/dated")
            del account.own_factors["dated"]

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

    async def reload_prices(self, admin: Admin) -> None:
        """Another price of a model while calls run."""
        self.configure(BY_RELOAD[1])
        asked, times = self.clock.now(), self.gateway.text.count("configuration reloaded")
        await admin.ask("POST", "/configuration/reload", {})
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
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60.0)) as session:
        admin = await administrator(session, gateway, f"http://127.0.0.1:{console_port}")
        webhook = Webhook(gateway.folder, admin.url, admin.token, clock)
        await month.open_accounts(admin, count)
        accounts = list(month.accounts.values())
        await month.own_prices(admin)
        async with webhook.running(session):
            await month.pay(webhook, accounts)
            await asyncio.gather(month.callers.make(month.calls(calls * 45 // 100)), reload_soon(month, admin, calls))
        month.check_costs()
        await month.refund(admin, int(REFUNDS * share / 2))
        await month.restart(LATER)
        await admin.serving()
        await month.clear_prices(admin)
        async with webhook.running(session):
            await asyncio.gather(month.pay(webhook, accounts[::2]), month.callers.make(month.calls(calls * 25 // 100)))
        month.check_costs()
        await month.refund(admin, int(REFUNDS * share / 4))
        await month.restart(MIDNIGHT - timedelta(seconds=15))
        await admin.serving()
        while len(month.callers.answers) < calls * 9 // 10 or clock.now() < MIDNIGHT + timedelta(seconds=3):
            await month.callers.make(month.calls(1000))
        month.check_costs()
        await month.refund(admin, int(REFUNDS * share / 4))
        await month.restart(CLOSED)
        await admin.serving()
        async with webhook.running(session):
            await month.pay(webhook, accounts[1::4])
        await month.callers.make(month.calls(max(500, calls - len(month.callers.answers))))
        month.check_costs()
        figures = await compare(month, admin, webhook)
    await month.stop()
    print(f"\n{figures}\nin {time.monotonic() - began:.0f} s")


async def administrator(session: aiohttp.ClientSession, gateway: Served, url: str) -> Admin:
    """The admin API with a new token, once it serves."""
    scopes = "read,accounts,keys,credits,users,config"

    async def made() -> str:
        done = await asyncio.to_thread(gateway.run, "tokens", "create", "reseller", "--scopes", scopes)
        return done.stdout.strip()

    return Admin(session, url, await until(made, within=30.0))


async def reload_soon(month: Month, admin: Admin, calls: int) -> None:
    """A reload after a fifth of all calls."""
    await until(lambda: len(month.callers.answers) >= calls // 5, within=900.0)
    await month.reload_prices(admin)


async def compare(month: Month, admin: Admin, webhook: Webhook) -> str:
    """Hold everything that shows a sum against everything else; the sums as a text."""
    names, books = sorted(month.accounts), Books(admin, month.clock.now)
    await books.imported()
    lines = await books.lines(names)
    compare_database(month, lines)
    paid = compare_calls(month, lines)
    counts = counted(month.log)
    assert counts.keys() == {answer.name for answer in paid.values()}
    credits, charges, refunds = sums(lines, {"open", "topup"}), sums(lines, {"use"}), sums(lines, {"refund"})
    events = {event: found[0] for event, found in webhook.receipts.items()}
    assert sum(amount for _, amount, _ in events.values()) == sum(credits.values())
    assert sum(amount for _, amount, _ in month.refunds) == sum(refunds.values())
    report, balances = await books.report(STARTED), await books.balances(names)
    statements = {name: await books.statements(names, name) for name in MONTHS}
    final = await books.final(names)
    for name in names:
        before, after = (statements[one][name] for one in MONTHS)
        assert (before.is_final, after.is_final, before.opening_balance) == (True, False, 0)
        assert before.closing_balance == after.opening_balance == final[name].pop("2031-03")
        assert not final[name]
        assert after.closing_balance == balances[name]
        assert balances[name] == sum(line.amount for line in lines if line.account == name)
        assert (before.correction, after.correction, before.uncollected, after.uncollected) == (0, 0, 0, 0)
        received = sum(amount for account, amount, _ in events.values() if account == name)
        assert before.credits + after.credits == received
        for key, statement in (((name, MONTHS[0]), before), ((name, MONTHS[1]), after)):
            found = (statement.credits, -statement.charges, statement.refunds, statement.adjustments)
            assert found == (credits[key], charges[key], refunds[key], 0), key
            assert statement.csv_sum == statement.csv_closing == statement.closing_balance, key
            row = report.get(key)
            amount = 0 if row is None else parse_amount(row["amount"])
            assert amount == statement.charges - statement.refunds, (key, row)
            assert statement.calls == (0 if row is None else row["calls"])
        await check_budget(month.accounts[name], admin, statements, refunds)
    await compare_key_usage(month, books, report)
    tokens = [sum(row[name] for row in report.values()) for name in ("tokens_in", "tokens_out")]
    assert tokens == [sum(column) for column in zip(*counts.values(), strict=True)]
    audit = await books.audit()
    assert audit["clean"], audit
    assert (audit["accounts"], audit["mismatches"]) == (len(names), [])
    late = [one for one in paid.values() if one.began < MIDNIGHT < one.ended]
    refused = len(month.callers.answers) - len(paid)
    twice = sum(len(found) > 1 for found in webhook.receipts.values())
    closing = [format_amount(sum(one.closing_balance for one in statements[name].values())) for name in MONTHS]
    return (
        f"{len(names)} accounts, {len(events)} payments ({twice} delivered more than once) of "
        f"{format_amount(sum(credits.values()))}, {len(paid)} calls of {format_amount(-sum(charges.values()))} "
        f"({refused} refused, {len(late)} over midnight), {len(month.refunds)} refunds of "
        f"{format_amount(sum(refunds.values()))}; statements of March: opening 0, closing {closing[0]}, of April: "
        f"closing {closing[1]}; tokens {tokens}: difference 0 nano-units between webhook, upstream, callers, ledger, "
        "statements and their files, report, key holders' usage and balances"
    )


def compare_calls(month: Month, lines: list[Line]) -> dict[str, Paid]:
    """Each successful answer has one line, with its cost and of its time. The answers by request id."""
    paid = {answer.request_id: answer for answer in month.callers.answers if answer.status == 200}
    used = {line.request_id: line for line in lines if line.kind == "use"}
    assert used.keys() == paid.keys()
    assert len(used) == sum(line.kind == "use" for line in lines), "a call has two lines"
    for request_id, answer in paid.items():
        line = used[request_id]
        assert (line.account, -line.amount) == (answer.account, answer.cost), (line, answer)
        earliest, latest = answer.began - timedelta(seconds=2), answer.ended + timedelta(seconds=10)
        assert earliest <= line.at <= latest, (line, answer)
    return paid


def compare_database(month: Month, lines: list[Line]) -> None:
    """The admin API shows the lines that the database's file has."""
    stored = Sql(file=month.gateway.data_dir / "gateway.db").lines()
    rows = [(one.account, one.request_id, one.kind, one.amount, one.balance) for one in stored]
    assert rows == [line[:5] for line in lines]


async def compare_key_usage(month: Month, books: Books, report: dict[tuple[str, str], dict[str, Any]]) -> None:
    """Key holders are shown the sums of the operator's report."""
    asked = list(month.accounts.values())[::10]
    shown = await books.key_usage(month.gateway.base_url, asked, STARTED)
    names = {account.name for account in asked}
    rows = {key: (row["calls"], parse_amount(row["amount"])) for key, row in report.items() if key[0] in names}
    assert shown == rows


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

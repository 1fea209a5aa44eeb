"""What a gateway shows of a reseller's month, all over HTTP: lines, statements, reports, balances and audits."""

from __future__ import annotations

import asyncio
import csv
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlencode

from msgspec import Struct

from gateway.amounts import parse_amount
from tests.chaos.reseller import Account, Admin
from tests.polling import until

PAGE = 1000  # lines
TOGETHER = 4  # questions
AMOUNTS = (
    "opening_balance", "correction", "credits", "adjustments", "refunds", "charges", "closing_balance", "uncollected",
)  # fmt: skip
T = TypeVar("T")


class Line(NamedTuple):
    """A ledger line as the admin API shows it."""

    account: str
    request_id: str
    kind: str
    amount: int
    balance: int
    at: datetime

    @property
    def month(self) -> str:
        """The month in which the store booked it."""
        return self.at.strftime("%Y-%m")


class Statement(Struct, frozen=True, kw_only=True):
    """The sums of a statement, in nano-units, and what its CSV file adds up to."""

    is_final: bool
    opening_balance: int
    correction: int
    credits: int
    adjustments: int
    refunds: int
    charges: int
    closing_balance: int
    uncollected: int
    calls: int
    csv_sum: int  # of all rows but the last
    csv_closing: int  # the last row


class Books:
    """Reads them with an operator's token; `key_usage` with the accounts' own keys."""

    def __init__(self, admin: Admin, now: Callable[[], datetime]) -> None:
        self._admin = admin
        self._now = now
        self._lanes = asyncio.Semaphore(TOGETHER)

    async def imported(self) -> None:
        """Wait until the database has every line of the store."""

        async def complete() -> bool:
            state = await self._admin.ask("GET", "/history")
            assert (state["blocked"], state["unreadable"]) == ([], 0), state
            return bool(state["attached"]) and state["missing_lines"] == 0

        await until(complete, within=120.0)

    async def lines(self, accounts: Iterable[str]) -> list[Line]:
        """All lines of the accounts, each account's in order."""
        found = await self._of_each(accounts, self._lines)
        return [line for account in found.values() for line in account]

    async def _lines(self, account: str) -> list[Line]:
        lines: list[Line] = []
        query: dict[str, Any] = {"limit": PAGE}
        while True:
            page = await self._admin.ask("GET", f"/accounts/{account}/lines?{urlencode(query)}")
            for row in page["data"]:
                amounts = parse_amount(row["amount"]), parse_amount(row["balance"])
                at = datetime.fromisoformat(row["at"])
                lines.append(Line(account, row["request_id"], row["kind"], *amounts, at))
            if page["next_cursor"] is None:
                return lines[::-1]
            query["cursor"] = page["next_cursor"]

    async def statements(self, accounts: Iterable[str], month: str) -> dict[str, Statement]:
        """The statement of a month of each account, as a document and as a CSV file."""

        async def one(account: str) -> Statement:
            path = f"/accounts/{account}/statements/{month}"
            form = await self._admin.ask("GET", path)
            rows = list(csv.DictReader((await self._admin.text(f"{path}/csv")).splitlines()))
            amounts = [parse_amount(row["amount"]) for row in rows]
            return Statement(
                is_final=form["status"] == "final",
                calls=sum(row["calls"] for row in form["charged"]),
                csv_sum=sum(amounts[:-1]),
                csv_closing=amounts[-1],
                **{name: parse_amount(form[name]) for name in AMOUNTS},
            )

        return {account: await one(account) for account in accounts}  # a token has few reports under way

    async def final(self, accounts: Iterable[str]) -> dict[str, dict[str, int]]:
        """The listed final statements: by account, the closing balance of each month."""

        async def one(account: str) -> dict[str, int]:
            page = await self._admin.ask("GET", f"/accounts/{account}/statements")
            return {row["month"]: parse_amount(row["closing_balance"]) for row in page["data"]}

        return await self._of_each(accounts, one)

    async def report(self, since: datetime) -> dict[tuple[str, str], dict[str, Any]]:
        """The usage report by account and month."""
        times = {"from": since.isoformat(), "to": self._now().isoformat()}
        document = await self._admin.ask("GET", f"/usage?{urlencode(times | {'group_by': 'account,month'})}")
        return {(row["account"], row["month"]): row for row in document["rows"]}

    async def balances(self, accounts: Iterable[str]) -> dict[str, int]:
        """The balance of each account."""

        async def one(account: str) -> int:
            return parse_amount((await self._admin.ask("GET", f"/accounts/{account}"))["balance"])

        return await self._of_each(accounts, one)

    async def key_usage(
        self, base_url: str, accounts: Iterable[Account], since: datetime
    ) -> dict[tuple[str, str], tuple[int, int]]:
        """Calls and cost by account and month, as each account's key is shown them by `/v1/usage`."""
        found = {}
        times = {"from": since.isoformat(), "to": self._now().isoformat(), "group_by": "month"}
        for account in accounts:  # a worker passes on few such questions at once
            document = await self._admin.get(f"{base_url}/usage?{urlencode(times)}", account.key)
            for row in document["data"]:
                found[account.name, row["month"]] = row["calls"], parse_amount(row["amount"])
        return found

    async def audit(self) -> dict[str, Any]:
        """What the audit of all accounts found."""
        document: dict[str, Any] = await self._admin.ask("POST", "/audits", {})
        return document

    async def _of_each(self, accounts: Iterable[str], ask: Callable[[str], Awaitable[T]]) -> dict[str, T]:
        names = list(accounts)

        async def one(account: str) -> T:
            async with self._lanes:
                return await ask(account)

        return dict(zip(names, await asyncio.gather(*map(one, names)), strict=True))


def sums(lines: Iterable[Line], kinds: set[str]) -> dict[tuple[str, str], int]:
    """The amounts of lines of these kinds, by account and month."""
    found: dict[tuple[str, str], int] = defaultdict(int)
    for line in lines:
        if line.kind in kinds:
            found[line.account, line.month] += line.amount
    return found

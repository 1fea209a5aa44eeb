"""Every page is small beside many calls, for members, owners and operators, on both databases.

The times are printed. On a quiet machine they are checked, too, beside a million calls instead of 12,000::

    PAGE_SECONDS=0.1 python -m pytest -s tests/console/test_page_costs.py
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from msgspec import structs

from benchmarks.micro_reports import Site, fill
from gateway.admin.audit_event import new_event
from gateway.console.route import PageRoute
from gateway.console.table import ROUTES
from gateway.database.address import DatabaseAddress
from gateway.database.engine import Database
from gateway.database.people_tables import audit_events, users
from gateway.database.tables import ledger_lines
from gateway.web.recent_answers import RecentAnswers
from tests.admin_api.both_databases import database_address, database_url
from tests.batches.made import made_batch
from tests.console.client import ROOT, Browser, Console
from tests.console.samples import Samples

__all__ = ["database_address", "database_url"]
pytestmark = pytest.mark.slow

ROWS = 1_000_000 if "PAGE_SECONDS" in os.environ else 12_000
CALLS = Site(rows=ROWS, accounts=4, models=8, days=30, keys=25)
ACCOUNT, LAST = "big-1", ROWS // 4  # one of the four, and the number of its last line
MOST_BYTES = 100_000  # of a page with its files
MOST_SECONDS = float(os.environ.get("PAGE_SECONDS", "inf"))
TRIES = 5 if "PAGE_SECONDS" in os.environ else 1  # the quickest counts
STATIC = re.compile(r'"(/static/[^"]+)"')
OWN = f"/accounts/{ACCOUNT}"
CALL, MEMBER = LAST - 99, "of-key-1-12"  # the number of a call, and whose it is

#: What a reader who is signed in gets instead of these pages.
NOT_SHOWN = {
    "/": 303,
    "/sign-in": 303,
    "/sign-in/code": 303,
    "/sign-in/oidc/{provider}/callback": 404,
    "/sign-in/oidc/password": 303,
}
#: Files to keep, and what waits for the end of a call: they are no pages.
NO_PAGES = {
    "/accounts/{account}/usage.csv",
    "/accounts/{account}/reports.csv",
    "/accounts/{account}/reports.json",
    "/site/reports.csv",
    "/site/reports.json",
    "/accounts/{account}/statements/{month}/lines.csv",
    "/accounts/{account}/batches/{batch}/files/{part}",
    "/accounts/{account}/playground/calls/{request_id}",
}
#: The requests for each page. A page that is not here is an error.
PAGES: dict[str, list[str]] = {
    "/": ["/"],
    "/accounts": ["/accounts"],
    "/sign-in": ["/sign-in"],
    "/sign-in/code": ["/sign-in/code"],
    "/sign-in/link": [],  # with a token that the test makes
    "/password/forgotten": ["/password/forgotten"],
    "/sign-in/oidc/{provider}/callback": ["/sign-in/oidc/corp/callback"],
    "/sign-in/oidc/password": ["/sign-in/oidc/password"],
    "/sign-up": ["/sign-up"],
    "/sign-up/confirm": [],
    "/invitation": [],
    "/accounts/{account}": [OWN, f"{OWN}?range=24h", f"{OWN}?range=90d"],
    "/accounts/{account}/keys": [f"{OWN}/keys", f"{OWN}/keys?ended=1", f"{OWN}/keys?unused=30"],
    "/accounts/{account}/keys/new": [f"{OWN}/keys/new"],
    "/accounts/{account}/keys/{key}": [f"{OWN}/keys/{{key}}"],
    "/accounts/{account}/keys/{key}/rotate": [f"{OWN}/keys/{{key}}/rotate"],
    "/accounts/{account}/keys/{key}/revoke": [f"{OWN}/keys/{{key}}/revoke"],
    "/accounts/{account}/usage": [
        f"{OWN}/usage",
        f"{OWN}/usage?range=24h",
        f"{OWN}/usage?range=90d",
        f"{OWN}/usage?range=90d&key=rare-1",
        f"{OWN}/usage?range=90d&model=model-3&outcome=ok",
        f"{OWN}/usage?range=90d&outcome=client_closed",
        f"{OWN}/usage?range=90d&before={LAST // 2}",
        f"{OWN}/usage?from={{day}}&to={{day}}",
    ],
    "/accounts/{account}/usage/{request_id}": [f"{OWN}/usage/{{call}}"],
    "/accounts/{account}/sessions": [f"{OWN}/sessions"],
    "/accounts/{account}/batches": [f"{OWN}/batches"],
    "/accounts/{account}/batches/{batch}": [f"{OWN}/batches/{{batch}}"],
    "/accounts/{account}/reports": [
        f"{OWN}/reports",
        f"{OWN}/reports?range=90d&group_by=key&group_by=model&group_by=day",
        f"{OWN}/reports?range=90d&group_by=outcome&model=model-3",
        f"{OWN}/reports?group_by=hour&group_by=key",
    ],
    "/accounts/{account}/prices": [f"{OWN}/prices"],
    "/prices": ["/prices"],
    "/docs": ["/docs"],
    "/docs/search": ["/docs/search", "/docs/search?q=first+token", "/docs/search?q=the"],
    "/docs/{page}": ["/docs/console", "/docs/runbook"],
    "/docs/{folder}/{topic}": ["/docs/operations/tls", "/docs/cli/users"],
    "/accounts/{account}/playground": [f"{OWN}/playground"],
    "/accounts/{account}/connect": [f"{OWN}/connect"],
    "/accounts/{account}/members": [f"{OWN}/members"],
    "/accounts/{account}/statements/{month}": [f"{OWN}/statements/{{month}}", f"{OWN}/statements/{{month_before}}"],
    "/accounts/{account}/running": [f"{OWN}/running"],
    "/site": ["/site", "/site?range=1h", "/site?range=7d"],
    "/site/alerts": ["/site/alerts"],
    "/site/providers": ["/site/providers", "/site/providers?range=7d"],
    "/site/providers/{provider}": ["/site/providers/fake", "/site/providers/fake?range=7d"],
    "/site/accounts": ["/site/accounts", "/site/accounts?q=site-1"],
    "/site/new-account": ["/site/new-account"],
    "/site/accounts/{account}": [f"/site/accounts/{ACCOUNT}"],
    "/site/accounts/{account}/price": [
        f"/site/accounts/{ACCOUNT}/price",
        f"/site/accounts/{ACCOUNT}/price?model=fake-chat",
    ],
    "/site/users": ["/site/users", "/site/users?q=person1"],
    "/site/new-user": ["/site/new-user"],
    "/site/users/{user}": ["/site/users/{user}"],
    "/site/import": ["/site/import", "/site/import?kind=keys", "/site/import?kind=users"],
    "/site/models": ["/site/models"],
    "/site/models/discovered": ["/site/models/discovered"],
    "/site/configuration": ["/site/configuration"],
    "/site/connect": ["/site/connect"],
    "/site/plugins": ["/site/plugins"],
    "/site/calls": [
        "/site/calls",
        "/site/calls?range=90d",
        "/site/calls?range=90d&request_id={call}",
        "/site/calls?range=90d&key=rare-1",
        "/site/calls?range=90d&user=of-key-1-0",
        "/site/calls?range=90d&model=model-3",
        "/site/calls?range=90d&model=nobody",
        f"/site/calls?range=90d&account={ACCOUNT}&outcome=ok",
        f"/site/calls?range=90d&before={{middle}}.5.{ACCOUNT}",
    ],
    "/site/batches": ["/site/batches"],
    "/site/reports": [
        "/site/reports",
        "/site/reports?range=90d&group_by=account&group_by=key&group_by=model",
        "/site/reports?range=90d&group_by=user&group_by=model&group_by=day",
        "/site/reports?range=90d&group_by=provider&group_by=outcome&group_by=month",
        f"/site/reports?range=90d&group_by=key&account={ACCOUNT}&model=model-3",
    ],
    "/site/running": ["/site/running"],
    "/site/ledger/{account}": [
        f"/site/ledger/{ACCOUNT}",
        f"/site/ledger/{ACCOUNT}?before={LAST + 1}.9999999999999-1.9691500000",
    ],
    "/site/audit": ["/site/audit"],
    "/site/superseded": ["/site/superseded", "/site/superseded?after=5"],
    "/site/audit-trail": [
        "/site/audit-trail",
        f"/site/audit-trail?account={ACCOUNT}",
        "/site/audit-trail?actor=cli:root",
        "/site/audit-trail?object=account",
    ],
    "/profile": ["/profile"],
    "/profile/second-factor": ["/profile/second-factor"],
}


@pytest.fixture
def long_history(database_address: DatabaseAddress, tmp_path: Path) -> dict[str, str]:
    """Many calls, many users and many events; returns names in the paths above."""
    if database_address.file is not None:  # where the console has its own
        database_address = DatabaseAddress(file=tmp_path / "var" / "gateway.db")
    database = Database.open(database_address)
    fill(database, CALLS)
    event = new_event(ROOT, "accounts.credit", f"account:{ACCOUNT}", account=ACCOUNT, after={"amount": "1"})
    events = [structs.replace(event, id=f"evt_{n:031x}", at=CALLS.start + n).row() for n in range(5_000)]
    people = [
        {"id": f"usr_{n}", "email": f"person{n}@example.com", "name": "", "role": "none", "created_at": n}
        for n in range(500)
    ]
    people.append({"id": MEMBER, "email": "member@example.com", "name": "", "role": "none", "created_at": 1})
    with database.writing() as connection:
        connection.execute(audit_events.insert(), events)
        connection.execute(users.insert(), people)
        column = ledger_lines.c
        call = connection.scalar(sa.select(column.request_id).where(column.account == ACCOUNT, column.seq == CALL))
    database.close()
    last, first = time.gmtime(CALLS.end // 10**6 - 1), time.gmtime(CALLS.start // 10**6)
    return {
        "call": str(call),
        "day": time.strftime("%Y-%m-%d", last),
        "month": time.strftime("%Y-%m", last),
        "month_before": time.strftime("%Y-%m", first),
        "middle": str((CALLS.start + CALLS.end) // 2),
    }


class Reader:
    """Someone who opens pages; the files of pages are transferred once."""

    def __init__(self, browser: Browser, account_role: str) -> None:
        self._browser = browser
        self._role = account_role
        self._files: dict[str, int] = {}

    async def faults(self, path: str, status: int) -> AsyncIterator[str]:
        """What is wrong with the size and the time of a page; times are printed."""
        spent = []
        for _ in range(TRIES):
            began = time.perf_counter()
            shown = await self._browser.ask("GET", path)
            spent.append(time.perf_counter() - began)
        size = len(shown.body) + sum([await self._size(file) for file in set(STATIC.findall(shown.html))])
        print(f"{self._role:8} {1000 * min(spent):6.1f} ms {size / 1000:5.1f} KB {shown.status} {path}")
        if shown.status != status:
            yield f"{self._role}: {path}: status {shown.status}"
        if min(spent) > MOST_SECONDS * (10 if path.count("group_by") > 1 else 1):  # thousands of rows, read in a thread
            yield f"{self._role}: {path}: {1000 * min(spent):.0f} ms"
        if size > MOST_BYTES:
            yield f"{self._role}: {path}: {size} bytes"

    async def _size(self, file: str) -> int:
        if file not in self._files:
            shown = await self._browser.ask("GET", file, headers={"Accept-Encoding": "gzip"})
            self._files[file] = int(shown.headers["Content-Length"])
        return self._files[file]


async def furnished(c: Console) -> dict[str, str]:
    """The accounts of the history with keys and members, and others; returns names in the paths."""
    for number in range(CALLS.accounts):
        await c.services.store.accounts.create(f"big-{number}", balance=10_000_000_000)
    for number in range(150):
        await c.services.store.accounts.create(f"site-{number}", balance=1)
    ids = [(await c.services.store.keys.create(ACCOUNT, name=f"key {n}")).id for n in range(CALLS.keys)]
    member: dict[str, Any] = {ACCOUNT: "member"}
    members = [await c.user(f"member{n}@example.com", **member) for n in range(10)]
    return {"key": ids[3], "user": members[0].id}


def of_reader(role: str, route: PageRoute) -> bool:
    """Whether a page is measured for readers of this kind: members open theirs, owners theirs, operators all."""
    if role == "operator":
        return True
    if role == "member" and route.path.endswith("/usage/{request_id}"):
        return False  # the meta of the lines names no member
    return route.audience in {"member": ("signed_in", "member"), "owner": ("member", "owner")}[role]


def test_each_page_of_the_router_is_measured() -> None:
    pages = {route.path for route in ROUTES if route.method == "GET"}
    assert pages == PAGES.keys() | NO_PAGES


async def test_every_page_is_small_beside_many_calls(long_history: dict[str, str], console: Any) -> None:
    async with console() as c:
        names, samples = long_history | await furnished(c), Samples(c)
        c.services.recent = RecentAnswers(0.0)  # a page is quick by itself
        readers = {
            "member": await (await c.services.people()).memberships.set(ROOT, MEMBER, ACCOUNT, "member"),
            "owner": await c.user("owner@example.com", **{ACCOUNT: "owner"}),
            "operator": await c.user("operator@example.com", role="operator"),
        }
        faults = list[str]()
        for role, user in readers.items():
            own_key = (await c.services.store.keys.create(ACCOUNT, user=user.id)).id
            reader = Reader(await c.signed_in(user), role)
            key = {"key": own_key if role == "member" else names["key"]}
            for route in ROUTES:
                if route.method != "GET" or route.path in NO_PAGES or not of_reader(role, route):
                    continue
                if "batch" in route.parameters:
                    key["batch"] = (await made_batch(c.services.store.store, ACCOUNT, user=user.id)).id
                paths = PAGES[route.path] or [(await samples.of(route, None)).path]
                for path in paths:
                    status = NOT_SHOWN.get(route.path, 200)
                    faults += [fault async for fault in reader.faults(path.format(**(names | key)), status)]
        assert faults == []

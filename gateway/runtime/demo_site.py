"""The two accounts of `gateway serve --demo`, their people, their prices, and their invented past.

An account that exists is left as it is, so the past is written once per data directory.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from msgspec import Struct

from gateway.accounts.keys import Keys
from gateway.admin.actor import AccountRole, SiteRole, command_line
from gateway.admin.store_services import StoreServices
from gateway.admin.user_rows import User
from gateway.amounts import NANO
from gateway.billing.price_terms import OwnPrice
from gateway.config.settings import Settings
from gateway.errors import NotFound
from gateway.ledger.backdated import open_backdated
from gateway.ledger.price_tables import store_prices
from gateway.ledger.refusal_counts import append_batch
from gateway.people.people import People
from gateway.people.sign_in_links import NewLink
from gateway.runtime.demo_calls import DAYS, Caller
from gateway.runtime.demo_past import Terms, past_of, prices_of
from gateway.services.services import AdminServices
from gateway.store import Store

OPERATOR = "operator@demo.example"


class Person(Struct, frozen=True):
    """A user, with the roles by account."""

    email: str
    name: str
    accounts: dict[str, AccountRole]
    role: SiteRole = "none"


class DemoKey(Struct, frozen=True):
    """A key with invented requests; `email` is that of the user who has it, "" for a service key.

    `rpm`: its limit of requests per minute, or 0.
    """

    name: str
    email: str
    team: str
    a_day: int
    models: dict[str, int]
    rpm: int = 0
    makes_mistakes: bool = False


class DemoAccount(Struct, frozen=True):
    """An account; `balance` in currency units. One that runs dry had no money for some time."""

    name: str
    group: str
    balance: int
    keys: tuple[DemoKey, ...]
    runs_dry: bool = False
    own_prices: dict[str, OwnPrice] = {}  # by model


PEOPLE = (
    Person(OPERATOR, "Olivia (demo)", {"demo": "owner", "demo-partner": "owner"}, "operator"),
    Person("mira@demo.example", "Mira (demo)", {"demo": "member"}),
    Person("jon@demo.example", "Jon (demo)", {"demo-partner": "owner"}),
    Person("kim@demo.example", "Kim (demo)", {"demo-partner": "member"}),
)
ACCOUNTS = (
    DemoAccount(
        "demo",
        "default",
        10,
        (
            DemoKey(
                "Mira's laptop",
                "mira@demo.example",
                "search",
                14,
                {"fake-chat": 8, "fake-writer": 3, "fake-embedding": 1},
            ),
            DemoKey("help desk", "", "support", 40, {"fake-chat": 8, "fake-speech": 1, "fake-transcription": 1}),
            DemoKey("nightly index", "", "search", 12, {"fake-embedding": 1}),
        ),
        runs_dry=True,
    ),
    DemoAccount(
        "demo-partner",
        "partner",
        50,
        (
            DemoKey(
                "Kim's notebook",
                "kim@demo.example",
                "design",
                10,
                {"fake-chat": 4, "fake-writer": 2, "fake-image": 3},
                makes_mistakes=True,
            ),
            DemoKey("web shop", "", "shop", 25, {"fake-chat": 9, "fake-image": 1}, rpm=6),
        ),
        own_prices={"fake-writer": OwnPrice(amounts=(("input", 3 * NANO // 2), ("output", 5 * NANO)))},
    ),
)


async def fill_demo(settings: Settings, store: Store) -> NewLink:
    """Create what is missing of the demo's accounts and people; returns a link that signs in its operator.

    DatabaseUnavailable, DatabaseRefused; InvalidValue if the operator is disabled.
    """
    services, actor = AdminServices(settings, store), command_line("demo")
    try:
        people = await services.people()
        users = {person.email: await _user(people, person) for person in PEOPLE}
        existing = await services.store.ledger.accounts()
        for account in ACCOUNTS:
            if account.name not in existing:
                await _open(settings, services.store, account, users)
        for person in PEOPLE:
            for name, role in person.accounts.items():
                await people.memberships.set(actor, users[person.email].id, name, role)
        return await people.sign_in_links.create(actor, users[OPERATOR].id)
    finally:
        await services.close()


async def _user(people: People, person: Person) -> User:
    actor = command_line("demo")
    try:
        return await people.users.find(actor, person.email)
    except NotFound:
        user = await people.users.create(actor, person.email, name=person.name, role=person.role)
        return await people.users.prove(actor, user.id)  # its link signs in at each start


async def _open(settings: Settings, services: StoreServices, account: DemoAccount, users: Mapping[str, User]) -> None:
    now = datetime.now(UTC)
    store, name, own = services.store, account.name, account.own_prices
    callers = await _callers(services.keys, account, users, now)  # before the account, which comes with its lines
    terms, balance = Terms(account.group, own), account.balance * NANO
    past = past_of(settings, name, terms, callers, balance=balance, runs_dry=account.runs_dry, now=now)
    await store_prices(store, prices_of(settings, own))
    if not await open_backdated(store, name, account.group, past.lines):
        return
    for batch in past.refusals:
        await append_batch(store, batch)
    for model, price in own.items():
        await services.account_prices.set(command_line("demo"), name, model, price)


async def _callers(keys: Keys, account: DemoAccount, users: Mapping[str, User], now: datetime) -> list[Caller]:
    """Store the keys of an account."""
    created, callers = int((now - timedelta(days=DAYS, hours=1)).timestamp()), []
    for key in account.keys:
        user = users[key.email].id if key.email else ""
        fields: dict[str, str | int] = {"state": "active", "name": key.name, "created": created}
        fields |= {"user": user, "own": 1} if user else {}
        fields |= {"rpm": key.rpm} if key.rpm else {}
        made = await keys.store(account.name, fields, show_cost=False)
        callers.append(Caller(made.id, user, key.team, key.a_day, key.models, key.rpm, key.makes_mistakes))
    return callers

"""The nearest existing name of one that does not exist, for the messages that operators get."""

from __future__ import annotations

import asyncio
from itertools import chain, islice

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from gateway.admin.store_services import StoreServices
from gateway.admin.transactions import Transactions
from gateway.config.toml_reader import suggestion
from gateway.database.people_tables import users
from gateway.ledger.paging import scan_set
from gateway.ledger.scripts import slot

MOST_ACCOUNTS = 1000  # accounts whose keys are compared
MOST = 10_000  # names that are compared


async def nearest_account(store: StoreServices, name: str) -> str:
    """`; nearest: "x"`, or "" if the account exists."""
    names = await store.ledger.accounts()
    return "" if name in names else await asyncio.to_thread(suggestion, name, names[:MOST])


async def nearest_key(store: StoreServices, key_id: str) -> str:
    """`; nearest: "key_x"`, or "" if the key exists."""
    if await store.keys.find(key_id) is not None:
        return ""
    links, accounts = store.store, (await store.ledger.accounts())[:MOST_ACCOUNTS]
    found = await asyncio.gather(*(scan_set(links.link(slot(name)), f"{slot(name)}:ks") for name in accounts))
    ids = list(islice(chain.from_iterable(found), MOST))
    return await asyncio.to_thread(suggestion, key_id, ids)


async def nearest_user(transactions: Transactions, email: str) -> str:
    """`; nearest: "x@example.com"`, or "" if there are no users."""
    return await asyncio.to_thread(suggestion, email, await transactions.read(_emails))


def _emails(connection: Connection) -> list[str]:
    return list(connection.scalars(sa.select(users.c.email).order_by(users.c.email).limit(MOST)))

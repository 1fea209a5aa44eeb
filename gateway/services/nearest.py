"""The nearest existing name of one that does not exist, for the messages that operators get."""

from __future__ import annotations

from itertools import chain

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from gateway.admin.store_services import StoreServices
from gateway.admin.transactions import Transactions
from gateway.config.toml_reader import suggestion
from gateway.database.people_tables import users
from gateway.ledger.gather_all import gather_bounded
from gateway.ledger.listing.names import account_names, key_ids
from gateway.web.work_threads import NAMES

MOST_ACCOUNTS = 20  # accounts whose keys are compared
MOST = 500  # names that are compared: 10 ms


async def nearest_account(store: StoreServices, name: str) -> str:
    """`; nearest: "x"`, or "" if the account exists. Of many accounts, those beside it by alphabet are compared."""
    names = await account_names(store.store).near(name, MOST)
    return "" if name in names else await NAMES.run(suggestion, name, names)


async def nearest_key(store: StoreServices, key_id: str) -> str:
    """`; nearest: "key_x"`, or "" if the key exists. Keys of the first accounts are compared."""
    if await store.keys.find(key_id) is not None:
        return ""
    accounts = await account_names(store.store).page(limit=MOST_ACCOUNTS)
    each = MOST // MOST_ACCOUNTS
    found = await gather_bounded(key_ids(store.store, account).near(key_id, each) for account in accounts)
    return await NAMES.run(suggestion, key_id, list(chain.from_iterable(found)))


async def nearest_user(transactions: Transactions, email: str) -> str:
    """`; nearest: "x@example.com"`, or "" if there are no users. Of many, those beside it by alphabet are compared."""
    return await NAMES.run(suggestion, email, await transactions.read(_emails, email))


def _emails(connection: Connection, email: str) -> list[str]:
    address, some = users.c.email, sa.select(users.c.email).limit(MOST // 2)
    queries = (
        some.where(address >= email).order_by(address),
        some.where(address < email).order_by(address.desc()),
    )
    return [one for query in queries for one in connection.scalars(query)]

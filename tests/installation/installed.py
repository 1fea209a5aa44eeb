"""A console and an admin API over an installation of some size."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
from argon2 import PasswordHasher
from msgspec import Struct

from benchmarks.installation.filling_database import fill_people, import_history
from benchmarks.installation.filling_store import StoreFilling
from benchmarks.installation.size import LARGE, Size
from gateway.accounts.pepper import Peppers, load_pepper
from gateway.accounts.store_claim import claim
from gateway.ledger.listing.names import account_names, key_ids
from gateway.people.password_hashes import PasswordHashes
from gateway.web.recent_answers import RecentAnswers
from tests.admin_api.client import Api
from tests.console.client import Console
from tests.console.opening import MODELS, opened_console
from tests.installation.counts import Counter

MODEL = """
[models.{name}]
provider = "fake"
price = {{ input = 1, output = 2.5, currency = "USD" }}
"""


class Installed(Struct, frozen=True):
    """What a walk works with."""

    console: Console
    api: Api
    counter: Counter


@asynccontextmanager
async def installed(size: Size, valkey: Path, folder: Path) -> AsyncIterator[Installed]:
    """The two surfaces over a store that is emptied and filled, and a database in an empty folder."""
    models = MODELS + "".join(MODEL.format(name=name) for name in size.model_names())
    hashes = PasswordHashes(PasswordHasher(time_cost=1, memory_cost=8, parallelism=1))
    async with opened_console(valkey, folder, hashes, models=models) as c, aiohttp.ClientSession() as session:
        store, database = c.services.store.store, await c.services.database()
        data_dir = c.services.settings.data_dir
        await claim(store, Peppers(load_pepper(data_dir)).fingerprints)  # as the first start does
        await StoreFilling(store, load_pepper(data_dir)).fill(size)
        for names in (account_names(store), key_ids(store, LARGE)):
            await names.page(limit=1)  # the first page of more than 500 makes their order, once
        fill_people(database, size)
        await import_history(store, database, size)
        c.services.recent = RecentAnswers(0.0)  # each question is answered anew
        counter = Counter(store.client)
        reloads: list[bool] = []
        with counter.attached(database.engine):
            yield Installed(c, Api(c.services, session, c.url, c.workers, reloads), counter)

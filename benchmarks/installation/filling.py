"""Fills an installation: the store, then the database."""

from __future__ import annotations

import asyncio
from time import monotonic

import msgspec
from msgspec import Struct

from benchmarks.installation.filling_database import fill_people, import_history
from benchmarks.installation.filling_store import StoreFilling
from benchmarks.installation.place import InstallationPlace
from benchmarks.installation.size import Size
from benchmarks.populated import FILL_TIMEOUT
from gateway.accounts.key_record import CreatedKey
from gateway.accounts.pepper import load_pepper
from gateway.config.loader import load
from gateway.database.address import address_of
from gateway.database.engine import Database
from gateway.store import Store


class Filling(Struct, frozen=True):
    """A filled installation: a key of the account LARGE, and how long filling took."""

    key_id: str
    key: str
    seconds: float


def filled(place: InstallationPlace, size: Size) -> Filling:
    """Fill an installation, unless its folder says that it was filled."""
    file = place.folder / "filling.json"
    if not file.exists():
        began = monotonic()
        key = fill(place, size)
        file.write_bytes(msgspec.json.encode(Filling(key.id, key.text, monotonic() - began)))
    return msgspec.json.decode(file.read_bytes(), type=Filling)


def fill(place: InstallationPlace, size: Size) -> CreatedKey:
    """Fill an empty installation; returns a key of the account LARGE."""
    pepper = load_pepper(place.data_dir)
    database = Database.open(address_of(load(place.config)))
    try:
        key = asyncio.run(_fill(place, size, pepper, database))
        fill_people(database, size)
        with database.writing() as connection:
            connection.exec_driver_sql("ANALYZE")
        return key
    finally:
        database.close()


async def _fill(place: InstallationPlace, size: Size, pepper: bytes, database: Database) -> CreatedKey:
    store = await Store.open(place.socket, timeout=FILL_TIMEOUT)
    try:
        key = await StoreFilling(store, pepper).fill(size)
        await import_history(store, database, size)
        return key
    finally:
        await store.close()

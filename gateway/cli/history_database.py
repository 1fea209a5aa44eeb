"""A command's way to the database with the history; only commands that need it load SQLAlchemy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gateway.cli.root import Failure
from gateway.database.existing import history_database
from gateway.ledger.archive_checkpoint import read_archive_checkpoint
from gateway.ledger.refund import ArchivedCharge
from gateway.store.links import Links

if TYPE_CHECKING:
    from gateway.config.settings import Settings
    from gateway.database.engine import Database

NO_DATABASE = "there is no database yet: `gateway serve` makes it"


@contextmanager
def existing_database(settings: Settings) -> Iterator[Database]:
    """`history_database`; Failure if there is none."""
    with history_database(settings) as database:
        if database is None:
            raise Failure(NO_DATABASE)
        yield database


async def find_archived_charge(
    settings: Settings, links: Links, account: str, request_id: str
) -> ArchivedCharge | None:
    """The lines of a call that have left the store; None if none has, or if there is no database."""
    checkpoint = await read_archive_checkpoint(links, account)
    if not checkpoint.n:
        return None
    with history_database(settings) as database:
        if database is None:
            return None
        from gateway.history.reader import archived_charge

        return archived_charge(database, account, request_id, checkpoint)

"""Removes what has expired of people: links, sign-ups and sessions, and invitations of a month ago.

The importer calls it at the end of each sweep. Nothing of it is valid any more: it is removed because it names people.
"""

from __future__ import annotations

from gateway.admin.times import now
from gateway.database.engine import Database
from gateway.database.people_tables import invitations, sessions, sign_in_links, sign_ups
from gateway.people.invitations import FORGOTTEN_AFTER


def remove_expired(database: Database) -> None:
    """Remove all of it, in one transaction."""
    at = now()
    with database.writing() as connection:
        for table in (sign_ups, sign_in_links, sessions):
            connection.execute(table.delete().where(table.c.expires_at < at))
        connection.execute(invitations.delete().where(invitations.c.expires_at < at - FORGOTTEN_AFTER))

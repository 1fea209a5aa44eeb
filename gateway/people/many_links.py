"""Links to sign in for many users, such as those of an import: for all of them or for none."""

from __future__ import annotations

import csv
import io
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from gateway.errors import GatewayError, InvalidValue

if TYPE_CHECKING:
    from gateway.people.sign_in_links import NewLink

COLUMNS = ("email", "name", "link")


class FoundUser(NamedTuple):
    """What is asked about a user."""

    id: str
    state: str


Find = Callable[[str], Awaitable[FoundUser]]  # by the e-mail; NotFound, InvalidValue


async def active_users(find: Find, emails: Sequence[str]) -> dict[str, str]:
    """The e-mails of the users by their ids; InvalidValue names all e-mails that are of no active user."""
    found, faults = dict[str, str](), list[str]()
    for email in emails:
        try:
            user = await find(email)
        except GatewayError as error:
            if error.status not in (400, 404):
                raise
            faults.append(error.message)
            continue
        if user.state != "active":
            faults.append(f"The user {email} is {user.state}")
        found.setdefault(user.id, email)
    if faults:
        raise InvalidValue("; ".join(faults))
    return found


def emails_in(name: str, text: str) -> list[str]:
    """The e-mails in the column `email` of a CSV file, each once; InvalidValue for another file."""
    try:
        rows = csv.DictReader(io.StringIO(text, newline=""), strict=True)
        names = [column.strip() for column in rows.fieldnames or ()]
        if "email" not in names:
            raise InvalidValue(f"{name}: there is no column `email`")
        rows.fieldnames = names
        found = [(row["email"] or "").strip() for row in rows]
    except csv.Error as error:
        raise InvalidValue(f"{name} is no CSV: {error}") from None
    return list(dict.fromkeys(email for email in found if email))


def link_row(new: NewLink) -> dict[str, str]:
    """The cells of `COLUMNS`."""
    return {"email": new.user.email, "name": new.user.name, "link": new.url}

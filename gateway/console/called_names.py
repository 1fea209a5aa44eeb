"""Users and keys as a reader of the site names them: by id, or by what people call them.

Keys are in the store, account by account. So a key is found by its name among those of an account, or of a user's
accounts; by its id everywhere.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from msgspec import Struct, structs

from gateway.accounts.key_record import KeyRecord
from gateway.admin.keys import READ_AT_MOST, KeyPage
from gateway.admin.user_rows import User
from gateway.console.visit import Visit
from gateway.errors import InvalidValue, NotFound

MOST = 10  # of several that fit
MOST_ACCOUNTS = 20  # of a user
MOST_USERS = 200  # among whom one with exactly this name is looked for
NOBODY = "-"  # an id that no call has


class Choice(Struct, frozen=True):
    """One that fits."""

    id: str
    label: str


class Named(Struct, frozen=True):
    """What a text names: `id` is empty for no text, and `NOBODY` unless exactly one fits; `problem` says why."""

    text: str = ""
    id: str = ""
    label: str = ""
    choices: Sequence[Choice] = ()
    problem: str = ""


async def named_user(visit: Visit, text: str) -> tuple[Named, User | None]:
    """The user with this id, e-mail or name, or the one with such a part of them."""
    if not text:
        return Named(), None
    found = await _users(visit, text)
    if len(found) == 1:
        return Named(found[0].email, found[0].id, _user_label(found[0])), found[0]
    if text.startswith("usr_"):  # of a person who was erased
        return Named(text, text, text), None
    return _several(text, [Choice(user.id, _user_label(user)) for user in found], "user", "e-mail or name"), None


async def _users(visit: Visit, text: str) -> Sequence[User]:
    """The one user with this id or e-mail, or else with exactly this name, or else all with such a part of them."""
    users = (await visit.people()).users
    if by_id := await users.by_ids(visit.actor, {text}):
        return by_id
    with contextlib.suppress(NotFound, InvalidValue):
        return [await users.find(visit.actor, text)]
    found = await users.list(visit.actor, containing=text, limit=MOST_USERS)
    exact = [user for user in found if text.casefold() == user.name.casefold()]
    return exact if len(exact) == 1 else found


async def named_key(visit: Visit, text: str, accounts: Sequence[str], user: str) -> Named:
    """The key with this id, or the one of the accounts with such a name or these last four characters.

    With a user only their keys are looked at.
    """
    if not text:
        return Named()
    key = await visit.store.keys.find(text)
    if key is not None:
        return Named(text, text, _key_label(key))
    pages = [await _keys(visit, account, text, user) for account in accounts[:MOST_ACCOUNTS]]
    found = [key for page in pages for key in page.keys]
    exact = [key for key in found if text.casefold() == key.name.casefold() or text == key.last4]
    found = exact if len(exact) == 1 else found
    if len(found) == 1:
        return Named(text, found[0].id, _key_label(found[0]))
    if not found and text.startswith("key_"):  # of a key that is not in the store any more
        return Named(text, text, text)
    if not accounts:
        problem = "A key is found by its name with its account or its user: fill in one of them."
        return Named(text, NOBODY, problem=problem)
    named = _several(text, [Choice(key.id, _key_label(key)) for key in found], "key", "name")
    if not found and any(page.next for page in pages):
        problem = (
            f"None of the newest {READ_AT_MOST:,} keys of the account has “{text}” in the name. Give the key's id."
        )
        named = structs.replace(named, problem=problem)
    return named


async def _keys(visit: Visit, account: str, text: str, user: str) -> KeyPage:
    def fits(key: KeyRecord) -> bool:
        return user in ("", key.user) and (text.casefold() in key.name.casefold() or text == key.last4)

    return await visit.store.key_service.page(visit.actor, account, fits, size=MOST + 1)


def _several(text: str, choices: list[Choice], what: str, where: str) -> Named:
    if not choices:
        return Named(text, NOBODY, problem=f"No {what} has “{text}” in the {where}.")
    more = " The first are:" if len(choices) > MOST else ""
    return Named(text, NOBODY, "", choices[:MOST], f"Several {what}s have “{text}” in the {where}.{more}")


def _user_label(user: User) -> str:
    return f"{user.name} ({user.email})" if user.name else user.email


def _key_label(key: KeyRecord) -> str:
    return f"{key.name or 'without a name'} …{key.last4} of {key.account}"

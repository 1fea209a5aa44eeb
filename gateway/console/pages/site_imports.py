"""`/site/import`: accounts, keys and users from CSV. A dry run shows what would be done, then the import is confirmed.

The text travels in the form from page to page; nothing is stored in between, and the dry run is made anew each time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any
from urllib.parse import quote_plus

from gateway.accounts.key_record import CreatedKey
from gateway.console.replies import Reply, View
from gateway.console.route import PageRoute
from gateway.console.visit import Visit
from gateway.errors import GatewayError, InternalError, InvalidValue
from gateway.imports import users
from gateway.imports.accounts import AccountImport
from gateway.imports.keys import KeyImport
from gateway.imports.plan import Imported
from gateway.imports.users import UserImport
from gateway.log import gateway_log
from gateway.reports.csv_file import csv_text

PATH = "/site/import"
LARGEST = 250_000  # bytes of the text as a form sends it: a comma and the end of a line are three each
MOST_NEW_KEYS = 500  # of a form: until its page is shown, their texts are in the memory of this process only
MOST_SHOWN = 500  # faults, or steps, on a page
KINDS: Mapping[str, str] = {
    "accounts": "Accounts and credits",
    "keys": "API keys",
    "users": "Users and memberships",
}
EXAMPLES: Mapping[str, str] = {
    "accounts": "name,group,credit,operation,note\nacme,default,25.00,invoice-17,first payment",
    "keys": "account,name,budget,every\nacme,nightly reports,50,month",
    "users": "email,name,account,account_role\nann@example.com,Ann,acme,owner",
}
REQUIRED: Mapping[str, tuple[str, ...]] = {"accounts": ("name",), "keys": ("account", "name"), "users": ("email",)}
KEY_COLUMNS = ("account", "name", "id", "key")


async def start(visit: Visit) -> Reply:
    kind = visit.carried("kind")
    return _form(visit, kind if kind in KINDS else "accounts")


async def check(visit: Visit) -> Reply:
    """The dry run. With `visit.error` an import was refused or has stopped, perhaps after some of its steps."""
    kind, content = sent(visit)
    try:
        planned = await _run(visit, await _import_of(visit, kind), kind, content, dry_run=True)
    except InvalidValue as refused:
        faults = refused.message.split("\n")
        if visit.error is not None and visit.error.message == refused.message:
            visit.error = None  # the import found the same faults before it began: their list says it
        return _form(visit, kind, faults)
    return _page("site_import_check.html", "Check an import", kind, planned, content=content)


async def confirm(visit: Visit) -> Reply:
    await visit.confirm_password()
    kind, content = sent(visit)
    return await visit.imports.run((visit.person.id, kind, content), partial(_confirmed, visit, kind, content))


async def _confirmed(visit: Visit, kind: str, content: str) -> Reply:
    made: list[CreatedKey] = []
    importing = await _import_of(visit, kind)
    try:
        done = await _run(visit, importing, kind, content, dry_run=False, on_new=made.append)
    except Exception as error:
        # Nobody can show the keys again: those before the fault must be on the page, whatever the fault is.
        if not made or (isinstance(importing, KeyImport) and importing.has_revoked):
            raise
        problem, status = problem_of(error, "keys")
        return _page("site_import_done.html", "Import", kind, None, made, problem=problem, status=status)
    return _page("site_import_done.html", "Import", kind, done, made, content=content)


def problem_of(error: Exception, what: str) -> tuple[str, int]:
    """What stopped the making of `what`, in words for the page, and its status; a fault of the program is logged."""
    if not isinstance(error, GatewayError):
        gateway_log.error("an import of %s failed in the console", what, exc_info=error)
        error = InternalError()
    return error.message, error.status


async def _import_of(visit: Visit, kind: str) -> AccountImport | KeyImport | UserImport:
    people = await visit.people()
    check = partial(people.transactions.require_current, visit.actor)
    if kind == "accounts":
        return AccountImport.of(visit.store, check=check)
    if kind == "users":
        return UserImport.of(people, visit.store, check=check)
    return KeyImport.of(visit.store, people, most_new=MOST_NEW_KEYS, check=check)


async def _run(
    visit: Visit,
    importing: AccountImport | KeyImport | UserImport,
    kind: str,
    content: str,
    *,
    dry_run: bool,
    on_new: Callable[[CreatedKey], None] | None = None,
) -> Imported:
    """InvalidValue names all faults, a line each."""
    name, raw = f"{kind}.csv", content.encode()
    if isinstance(importing, KeyImport):
        return await importing.run(visit.actor, name, raw, dry_run=dry_run, on_new=on_new)
    return await importing.run(visit.actor, name, raw, dry_run=dry_run)


def sent(visit: Visit) -> tuple[str, str]:
    """The kind, and the text; InvalidValue for none or too much of it."""
    kind, content = visit.text("kind"), visit.raw("content")
    if kind not in KINDS:
        raise InvalidValue("Choose what to import", param="kind")
    if not content.strip():
        raise InvalidValue("Paste the text of a CSV file", param="content")
    if len(quote_plus(content)) > LARGEST:
        raise InvalidValue(
            f"The text is too long for a form. Import the file with `gateway import {kind}`", param="content"
        )
    return kind, content


def _form(visit: Visit, kind: str, faults: list[str] | None = None) -> View:
    found = faults or []
    values = {
        "kind": kind,
        "kinds": KINDS,
        "columns": _columns(visit, kind),
        "required": REQUIRED[kind],
        "example": EXAMPLES[kind],
        "largest": LARGEST,
        "most_new_keys": MOST_NEW_KEYS,
        "content": visit.raw("content"),
        "faults": found[:MOST_SHOWN],
        "known_faults": len(found),
    }
    return View("site_import.html", "Import", values, status=400 if found else 200)


def _columns(visit: Visit, kind: str) -> list[str]:
    if kind == "users":
        return list(users.COLUMNS)
    return list((AccountImport if kind == "accounts" else KeyImport).of(visit.store).columns)


def _page(
    template: str,
    title: str,
    kind: str,
    done: Imported | None,
    made: list[CreatedKey] | None = None,
    *,
    content: str = "",
    problem: str = "",
    status: int = 200,
) -> View:
    rows = [{"account": key.account, "name": key.name, "id": key.id, "key": key.text} for key in made or ()]
    values: dict[str, Any] = {
        "kind": kind,
        "kinds": KINDS,
        "done": done,
        "steps": done.steps[:MOST_SHOWN] if done is not None else [],
        "made": len(rows),
        "keys": csv_text(KEY_COLUMNS, rows) if rows else "",
        "content": content,
        "largest": LARGEST,
        "problem": problem,
        "value_text": _value_text,
    }
    return View(template, title, values, status=status)


def _value_text(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


ROUTES = (
    PageRoute(method="GET", path=PATH, audience="operator", function=start, help="console#what-operators-do"),
    PageRoute(method="POST", path=PATH, audience="operator", function=check, form=start),
    PageRoute(method="POST", path=f"{PATH}/confirm", audience="operator", function=confirm, form=check),
)

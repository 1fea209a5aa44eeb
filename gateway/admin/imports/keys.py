"""Imports API keys: creates those that an account does not have by name, and sets the settings of the others.

A key that exists elsewhere already may be given with its text, so that its owner keeps it; only its HMAC is stored. The
texts of the other new keys go to `on_new` one by one, before the next key is made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from gateway.accounts.accounts import Refused, time_text
from gateway.accounts.authenticator import CREDENTIAL
from gateway.accounts.key_scopes import networks
from gateway.accounts.key_settings import ENDPOINTS
from gateway.accounts.keys import KeyRecord, Keys, NewKey
from gateway.admin.actor import Actor
from gateway.admin.imports import cells
from gateway.admin.imports.plan import Imported, Plan
from gateway.admin.imports.run import run_import
from gateway.admin.imports.table import Row, Table
from gateway.admin.key_changes import KeyChanges
from gateway.admin.keys import KeyAdmin
from gateway.admin.model_names import models_by_name
from gateway.amounts import format_amount

if TYPE_CHECKING:
    from gateway.admin.store_services import StoreServices

SHORTEST = 20  # characters of a key's text; a shorter one can be guessed
PERIODS = ("month", "week", "day")
MONEY = ("budget", "max_cost")
SETTINGS = (
    "rpm", "tpm", "concurrency", "models", "budget", "every", "expires", "max_cost", "endpoints", "addresses",
)  # fmt: skip


Named = dict[str, list[KeyRecord]]  # the keys of an account by name


class KeyImport:
    """The import of one file into one store.

    `models` are the names and aliases of the configuration. `turn` is held while keys are planned and made: names are
    not unique in the store. More than `most_new` keys to be made are a fault.
    """

    def __init__(
        self,
        keys: Keys,
        admin: KeyAdmin,
        changes: KeyChanges,
        *,
        models: Mapping[str, str],
        turn: asyncio.Lock,
        most_new: int | None = None,
    ) -> None:
        self._keys = keys
        self._admin = admin
        self._changes = changes
        self._turn = turn
        self._most_new = most_new
        self._new = 0
        self._of_account: dict[str, Named | None] = {}
        self.columns = {
            "account": cells.account_name,
            "name": cells.key_name,
            "key": key_text,
            "rpm": cells.count,
            "tpm": cells.count,
            "concurrency": cells.count,
            "models": cells.several(cells.model(models)),
            "budget": cells.positive,
            "every": cells.one_of(PERIODS, "period"),
            "expires": cells.time,
            "max_cost": cells.positive,
            "endpoints": cells.several(cells.one_of(ENDPOINTS, "endpoint")),
            "addresses": addresses,
        }

    @classmethod
    def of(cls, services: StoreServices, *, most_new: int | None = None) -> KeyImport:
        """The import into the store of these services, with their settings."""
        return cls(
            services.keys,
            services.key_admin,
            services.key_changes,
            models=models_by_name(services.settings),
            turn=services.turn_to_import,
            most_new=most_new,
        )

    async def run(
        self, actor: Actor, name: str, content: bytes, *, dry_run: bool, on_new: Callable[[NewKey], None] | None
    ) -> Imported:
        """Import a file. InvalidValue names all faults; then nothing is changed.

        Without `on_new`, a new key without a text is a fault, unless it is a dry run.
        """
        actor.require("keys")
        seen, texts = dict[tuple[str, str], int](), dict[str, int]()

        async def plan_row(table: Table, row: Row, plan: Plan) -> None:
            first = seen.setdefault((row.values["account"], row.values["name"]), row.line)
            same = texts.setdefault(row.values["key"], row.line) if "key" in row.values else row.line
            if first != row.line:
                table.add_fault(row.line, "name", f"the account has a key of this name in line {first} already")
            elif same != row.line:
                table.add_fault(row.line, "key", f"stands in line {same} already")
            else:
                await self._plan_row(actor, table, row, plan, on_new, dry_run=dry_run)

        required = ("account", "name")
        async with nullcontext() if dry_run else self._turn:
            return await run_import(name, content, self.columns, plan_row, required=required, dry_run=dry_run)

    async def _plan_row(
        self,
        actor: Actor,
        table: Table,
        row: Row,
        plan: Plan,
        on_new: Callable[[NewKey], None] | None,
        *,
        dry_run: bool,
    ) -> None:
        account = row.values["account"]
        there = await self._keys_of(account)
        if there is None:
            table.add_fault(row.line, "account", f"there is no account {account!r}")
            return
        found = await self._find(table, row, there)
        if found is None:
            return
        if isinstance(found, KeyRecord):
            self._plan_change(actor, table, row, found, plan)
            return
        if "every" in row.values and "budget" not in row.values:
            table.add_fault(row.line, "every", "a period needs a budget")
        if row.values.get("expires") and row.values["expires"] <= datetime.now(UTC):
            table.add_fault(row.line, "expires", "has passed already")
        if "key" not in row.values and on_new is None and not dry_run:
            table.add_fault(row.line, "key", "is empty, and there is no file for new keys")
        if "key" not in row.values:
            self._count_new(table, row)
        plan.add(
            row.line,
            "create",
            f"key:{account}/{row.values['name']}",
            _shown(row),
            partial(self._create, actor, row, on_new),
        )

    def _count_new(self, table: Table, row: Row) -> None:
        self._new += 1
        if self._most_new is not None and self._new == self._most_new + 1:
            instead = "divide the file, or use `gateway import keys` on the gateway's machine"
            table.add_fault(row.line, "", f"from here on more than {self._most_new} keys are to be made; {instead}")

    async def _keys_of(self, account: str) -> Named | None:
        if account not in self._of_account:
            try:
                self._of_account[account] = _by_name(await self._keys.list(account))
            except Refused:
                self._of_account[account] = None
        return self._of_account[account]

    async def _find(self, table: Table, row: Row, there: Named) -> KeyRecord | bool | None:
        """The active key of the row, True if it is to be made, None after a fault."""
        name = row.values["name"]
        named = there.get(name, [])
        active = [key for key in named if key.state == "active"]
        if "key" in row.values and (owner := await self._keys.owner_of(row.values["key"])) is not None:
            same = [key for key in active if key.id == owner[1]]
            if not same:
                table.add_fault(row.line, "key", "there is a key with this text, of another name or account, or closed")
            return same[0] if same else None
        if active and "key" in row.values:
            table.add_fault(row.line, "key", f"the account has a key {name!r} with another text")
            return None
        if active:
            return active[-1]  # after a rotation there are two for a while
        if named:
            table.add_fault(
                row.line, "name", f"the key {name!r} of the account is {named[-1].state}; give another name"
            )
            return None
        return True

    def _plan_change(self, actor: Actor, table: Table, row: Row, key: KeyRecord, plan: Plan) -> None:
        object_ = f"key:{key.id}"
        limits: dict[str, Any] = {
            name: value for name, value in row.pick(*SETTINGS).items() if _plain(value) != _plain(getattr(key, name))
        }
        if "every" in limits and key.budget is None and "budget" not in row.values:
            table.add_fault(row.line, "every", "a period needs a budget")
        if "expires" in limits and limits["expires"] <= datetime.now(UTC):
            table.add_fault(row.line, "expires", "has passed already")
        if not limits:
            plan.add(row.line, "nothing", object_)
            return
        shown = _shown(Row(row.line, limits))
        plan.add(row.line, "change", object_, shown, partial(self._changes.edit, actor, key.id, **limits))

    async def _create(self, actor: Actor, row: Row, on_new: Callable[[NewKey], None] | None) -> None:
        limits: dict[str, Any] = row.pick(*SETTINGS)
        text = row.get("key", "")
        key = await self._admin.create(actor, row.values["account"], name=row.values["name"], text=text, **limits)
        if not text and on_new is not None:
            on_new(key)


def _by_name(keys: list[KeyRecord]) -> Named:
    named: Named = {}
    for key in keys:
        named.setdefault(key.name, []).append(key)
    return named


def key_text(text: str) -> str:
    """The text of a key that exists elsewhere; errors do not repeat it."""
    if not CREDENTIAL.fullmatch(text):
        raise ValueError("a key begins with sk- and has at most 512 printable characters without spaces")
    if len(text) < SHORTEST:
        raise ValueError(f"a key of less than {SHORTEST} characters can be guessed")
    return text


def addresses(text: str) -> list[str]:
    """Address ranges."""
    try:
        return [str(network) for network in networks(cells.several(str)(text))]
    except ValueError as error:
        raise ValueError(f"not an address range: {error}") from None


def _plain(value: Any) -> Any:
    return sorted(value) if isinstance(value, list) else value


def _shown(row: Row) -> dict[str, Any]:
    shown = row.pick(*SETTINGS)
    for name in MONEY:
        if name in shown:
            shown[name] = format_amount(shown[name])
    if "expires" in shown:
        shown["expires"] = time_text(shown["expires"])
    return shown

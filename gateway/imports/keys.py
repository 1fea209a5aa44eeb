"""Imports API keys: creates those that an account does not have by name, and sets the settings of the others.

A key that exists elsewhere already may be given with its text, so that its owner keeps it; only its HMAC is stored. The
texts of the other new keys go to `on_new` one by one, before the next key is made. A key may be one of a user.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from gateway.accounts.accounts import time_text
from gateway.accounts.authenticator import CREDENTIAL
from gateway.accounts.key_record import CreatedKey, KeyRecord
from gateway.accounts.key_scopes import networks
from gateway.accounts.key_settings import AMOUNTS, ENDPOINTS, KEY_SETTINGS, PERIODS, Kind
from gateway.accounts.keys import Keys
from gateway.admin.actor import Actor
from gateway.admin.keys import KeyService
from gateway.admin.model_names import models_by_name
from gateway.admin.values import normal_email
from gateway.amounts import format_amount
from gateway.errors import GatewayError, NotFound
from gateway.imports import cells, key_owners
from gateway.imports.key_owners import KeyOwners
from gateway.imports.plan import Check, Imported, Plan, run_import
from gateway.imports.table import Row, Table
from gateway.log import gateway_log

if TYPE_CHECKING:
    from gateway.admin.store_services import StoreServices
    from gateway.people.people import People

SHORTEST = 20  # characters of a key's text; a shorter one can be guessed
SETTINGS = tuple(setting.name for setting in KEY_SETTINGS)


Named = dict[str, list[KeyRecord]]  # the keys of an account by name


class KeyImport:
    """The import of one file into one store.

    `models` are the names and aliases of the configuration. `owners` are needed for keys of users. `turn` is held while
    keys are planned and made: names are not unique in the store. More than `most_new` keys to be made are a fault.
    `check` raises if the rights of who imports have ended. It is called before each key, and after the last one. If it
    raises, the keys whose texts nobody has seen are revoked, and `has_revoked` is true.
    """

    def __init__(
        self,
        keys: Keys,
        service: KeyService,
        *,
        models: Mapping[str, str],
        turn: asyncio.Lock,
        owners: KeyOwners | None = None,
        most_new: int | None = None,
        check: Check | None = None,
    ) -> None:
        self.has_revoked = False  # the keys that it made, because the rights had ended: their texts are not to be shown
        self._check_rights = check
        self._made: list[CreatedKey] = []
        self._keys = keys
        self._service = service
        self._turn = turn
        self._owners = owners
        self._most_new = most_new
        self._new = 0
        self._of_account: dict[str, Named | None] = {}
        self.columns = {
            "account": cells.account_name,
            "name": cells.key_name,
            key_owners.COLUMN: normal_email,
            "key": key_text,
            **{setting.name: _parser(setting.kind, models) for setting in KEY_SETTINGS},
        }

    @classmethod
    def of(
        cls,
        services: StoreServices,
        people: People | None = None,
        *,
        most_new: int | None = None,
        check: Check | None = None,
    ) -> KeyImport:
        """The import into the store of these services, with their settings; keys of users need `people`."""
        return cls(
            services.keys,
            services.key_service,
            models=models_by_name(services.settings),
            turn=services.turn_to_import,
            owners=KeyOwners.of(people) if people is not None else None,
            most_new=most_new,
            check=check,
        )

    async def run(
        self, actor: Actor, name: str, content: bytes, *, dry_run: bool, on_new: Callable[[CreatedKey], None] | None
    ) -> Imported:
        """Import a file. InvalidValue names all faults; then nothing is changed.

        Without `on_new`, a new key without a text is a fault, unless it is a dry run.
        """
        actor.require("keys")
        await self._service.check_pepper()
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
            done = await run_import(
                name, content, self.columns, plan_row, required=required, dry_run=dry_run, check=self._check_rights
            )
            if self._made:
                await self._require_rights(actor)
            return done

    async def _plan_row(
        self,
        actor: Actor,
        table: Table,
        row: Row,
        plan: Plan,
        on_new: Callable[[CreatedKey], None] | None,
        *,
        dry_run: bool,
    ) -> None:
        account = row.values["account"]
        there = await self._keys_of(account)
        if there is None:
            table.add_fault(row.line, "account", f"there is no account {account!r}")
            return
        owner = await self._owner(actor, table, row)
        found = await self._find(table, row, there)
        if found is None or owner is None:
            return
        if isinstance(found, KeyRecord):
            if owner and found.user != owner:
                table.add_fault(row.line, "user", "the key is not of this user; give another name")
                return
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
            partial(self._create, actor, row, owner, on_new),
        )

    async def _owner(self, actor: Actor, table: Table, row: Row) -> str | None:
        """The id of the user of the row; "" without one, None after a fault."""
        email = row.get(key_owners.COLUMN)
        if email is None:
            return ""
        if self._owners is None:
            table.add_fault(row.line, "user", "keys of users need the database of the gateway")
            return None
        found = await self._owners.find(actor, email, row.values["account"])
        if isinstance(found, str):
            table.add_fault(row.line, "user", found)
            return None
        return found.id

    def _count_new(self, table: Table, row: Row) -> None:
        self._new += 1
        if self._most_new is not None and self._new == self._most_new + 1:
            instead = "divide the file, or use `gateway import keys` on the gateway's machine"
            table.add_fault(row.line, "", f"from here on more than {self._most_new} keys are to be made; {instead}")

    async def _keys_of(self, account: str) -> Named | None:
        if account not in self._of_account:
            try:
                self._of_account[account] = _by_name(await self._keys.list(account))
            except NotFound:
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
        plan.add(row.line, "change", object_, shown, partial(self._change, actor, key.id, limits))

    async def _change(self, actor: Actor, key_id: str, limits: dict[str, Any]) -> None:
        await self._service.edit(actor, await self._service.show(actor, key_id), **limits)

    async def _create(self, actor: Actor, row: Row, owner: str, on_new: Callable[[CreatedKey], None] | None) -> None:
        options: dict[str, Any] = row.pick(*SETTINGS)
        text = row.get("key", "")
        await self._require_rights(actor)
        options |= {"name": row.values["name"], "text": text}
        if owner and self._owners is not None:
            key = await self._owners.create(actor, row.values["account"], owner, **options)
        else:
            key = await self._service.create(actor, row.values["account"], **options)
        if not text and on_new is not None:
            self._made.append(key)
            on_new(key)

    async def _require_rights(self, actor: Actor) -> None:
        if self._check_rights is None:
            return
        try:
            await self._check_rights()
        except Exception:
            # Whatever it is, nobody may see the keys: they end before the error goes on.
            self.has_revoked = bool(self._made)
            for key in self._made:
                await self._revoke(actor, key.id)
            raise

    async def _revoke(self, actor: Actor, key_id: str) -> None:
        try:
            await self._service.revoke(actor, await self._keys.show(key_id))
        except GatewayError as error:
            gateway_log.error("key %s, whose text nobody has, could not be revoked: %s", key_id, error.log_text())


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


def _parser(kind: Kind, models: Mapping[str, str]) -> Callable[[str], Any]:
    """What reads the cells of a column of this kind."""
    parsers: dict[Kind, Callable[[str], Any]] = {
        "count": cells.count,
        "amount": cells.positive,
        "period": cells.one_of(PERIODS, "period"),
        "models": cells.several(cells.model(models)),
        "endpoints": cells.several(cells.one_of(ENDPOINTS, "endpoint")),
        "networks": addresses,
        "moment": cells.time,
    }
    return parsers[kind]


def addresses(text: str) -> list[str]:
    """Address ranges."""
    try:
        return [str(network) for network in networks(cells.several(str)(text))]
    except ValueError as error:
        raise ValueError(f"not an address range: {error}") from None


def _plain(value: Any) -> Any:
    return sorted(value) if isinstance(value, list) else value


def _shown(row: Row) -> dict[str, Any]:
    shown = row.pick(key_owners.COLUMN, *SETTINGS)
    for name in AMOUNTS:
        if name in shown:
            shown[name] = format_amount(shown[name])
    if "expires" in shown:
        shown["expires"] = time_text(shown["expires"])
    return shown

"""`/keys` and `/accounts/{account}/keys`: create, list, show, edit, rotate, revoke."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, structs

from gateway.accounts.key_settings import KeyLimits
from gateway.accounts.keys import KeyRecord
from gateway.admin.key_editor import LONGEST_OVERLAP
from gateway.admin.model_names import known_models
from gateway.admin.pages import page_of
from gateway.admin_api import documents
from gateway.admin_api.access import Access
from gateway.admin_api.call import Call
from gateway.admin_api.inputs import amount_of
from gateway.admin_api.pagination import Cursor, Limit, Page, page, read_cursor
from gateway.admin_api.resources.accounts import AmountText, Count
from gateway.admin_api.route import Route

Name = Annotated[str, Meta(max_length=100)]
Models = Annotated[list[str], Meta(min_length=1, max_length=1000)]
Names = Annotated[list[str], Meta(min_length=1, max_length=64)]
Moment = Annotated[datetime, Meta(tz=True)]
Every = Literal["month", "week", "day", "never"]

ACCOUNTS_AT_ONCE = 20  # whose keys are read at the same time

READ = Access(scope="keys", target="key", reads=True, owners=True)
CHANGE = Access(scope="keys", target="key", owners=True)


class NewKey(Struct, frozen=True, kw_only=True):
    """A key to create; an absent limit does not exist."""

    name: Name = ""
    rpm: Count | None = None
    tpm: Count | None = None
    concurrency: Count | None = None
    models: Models | None = None
    budget: AmountText | None = None
    every: Every | None = None
    expires: Moment | None = None
    max_cost: AmountText | None = None
    endpoints: Names | None = None
    addresses: Names | None = None
    response_headers: list[Literal["cost"]] = []


class KeyChanges(Struct, frozen=True, kw_only=True):
    """Settings to change; null removes one, an absent one stays."""

    name: Name | UnsetType = UNSET
    rpm: Count | UnsetType | None = UNSET
    tpm: Count | UnsetType | None = UNSET
    concurrency: Count | UnsetType | None = UNSET
    models: Models | UnsetType | None = UNSET
    budget: AmountText | UnsetType | None = UNSET
    every: Every | UnsetType | None = UNSET
    expires: Moment | UnsetType | None = UNSET
    max_cost: AmountText | UnsetType | None = UNSET
    endpoints: Names | UnsetType | None = UNSET
    addresses: Names | UnsetType | None = UNSET


class Rotation(Struct, frozen=True):
    """How long both keys work, in seconds."""

    overlap: Annotated[int, Meta(ge=0, le=int(LONGEST_OVERLAP.total_seconds()))] = 86_400


class KeysQuery(Struct, frozen=True, kw_only=True):
    """The query of a list of keys."""

    unused_since: Annotated[
        Moment | None, Meta(description="Only active keys that are older and were not used since then.")
    ] = None
    limit: Limit = 100
    cursor: Cursor = ""


async def list_(call: Call, query: KeysQuery) -> dict[str, Any]:
    accounts = [call.actor.account] if call.actor.account else await call.store.ledger.accounts()
    return await _page(call, accounts, query)


async def list_of_account(call: Call, account: str, query: KeysQuery) -> dict[str, Any]:
    return await _page(call, [account], query)


async def create(call: Call, account: str, body: NewKey) -> dict[str, Any]:
    return (await call.store.create_key(call.actor, account, **options_of(call, body))).json_form()


async def show(call: Call, key: str) -> dict[str, Any]:
    return (await call.store.key_editor.show(key)).json_form()


async def edit(call: Call, key: str, body: KeyChanges) -> dict[str, Any]:
    given = {name: value for name, value in structs.asdict(body).items() if value is not UNSET}
    name = given.pop("name", None)
    clear = [name for name, value in given.items() if value is None]
    limits = _limits(call, {name: value for name, value in given.items() if value is not None})
    return (await call.store.key_changes.edit(call.actor, key, name=name, clear=clear, **limits)).json_form()


async def rotate(call: Call, key: str, body: Rotation) -> dict[str, Any]:
    rotated = await call.store.rotate_key(call.actor, key, overlap=timedelta(seconds=body.overlap))
    return {**rotated.new.json_form(), "replaces": key, "old_expires": rotated.old.json_form()["expires"]}


async def revoke(call: Call, key: str) -> dict[str, Any]:
    return (await call.store.key_admin.revoke(call.actor, key)).json_form()


async def _page(call: Call, accounts: list[str], query: KeysQuery) -> dict[str, Any]:
    """Keys by account, then by their creation."""
    after = read_cursor("keys", query.cursor, tuple[str, int, str])
    found: list[KeyRecord] = []
    left = [account for account in accounts if after is None or account >= after[0]]
    while left and len(found) <= query.limit:
        read = await asyncio.gather(*(_keys_of(call, account, query) for account in left[:ACCOUNTS_AT_ONCE]))
        found += [key for keys in read for key in keys if after is None or _position(key) > after]
        del left[:ACCOUNTS_AT_ONCE]
    shown, last = page_of(found, query.limit)
    return page("keys", [key.json_form() for key in shown], _position(last) if last else None)


async def _keys_of(call: Call, account: str, query: KeysQuery) -> list[KeyRecord]:
    if query.unused_since is not None:
        return await call.store.key_editor.unused(account, query.unused_since)
    return await call.store.key_editor.list(account)


def options_of(call: Call, body: NewKey) -> dict[str, Any]:
    """The options of `KeyAdmin.create`."""
    values = {name: value for name, value in structs.asdict(body).items() if value is not None}
    show_cost, name = bool(values.pop("response_headers")), values.pop("name")
    return {"name": name, "show_cost": show_cost, **_limits(call, values)}


def _position(key: KeyRecord) -> tuple[str, int, str]:
    return key.account, int(key.created.timestamp()), key.id


def _limits(call: Call, values: dict[str, Any]) -> KeyLimits:
    for name in ("budget", "max_cost"):
        if name in values:
            values[name] = amount_of(values[name], name)
    if "models" in values:
        values["models"] = known_models(call.services.settings, values["models"])
    limits: KeyLimits = {}
    limits.update(values)  # type: ignore[typeddict-item]  # the schema has the same names
    return limits


ROUTES = (
    Route(
        method="GET",
        path="/keys",
        access=Access(scope="keys", target="visible", reads=True),
        summary="List the keys of all accounts, by account and age",
        function=list_,
        query=KeysQuery,
        answer=Page[documents.Key],
    ),
    Route(
        method="GET",
        path="/accounts/{account}/keys",
        access=Access(scope="keys", target="account", reads=True, owners=True),
        summary="List the keys of an account, oldest first",
        function=list_of_account,
        query=KeysQuery,
        answer=Page[documents.Key],
    ),
    Route(
        method="POST",
        path="/accounts/{account}/keys",
        access=Access(scope="keys", target="account", owners=True),
        summary="Create a key; its text is shown only in this answer",
        function=create,
        body=NewKey,
        answer=documents.NewKey,
        status=201,
        writes_store=True,
    ),
    Route(
        method="GET",
        path="/keys/{key}",
        access=READ,
        summary="Show a key without its text",
        function=show,
        answer=documents.Key,
    ),
    Route(
        method="PATCH",
        path="/keys/{key}",
        access=CHANGE,
        summary="Change settings of a key, for its next call",
        function=edit,
        body=KeyChanges,
        answer=documents.Key,
        writes_store=True,
    ),
    Route(
        method="POST",
        path="/keys/{key}/rotate",
        access=CHANGE,
        summary="Replace a key by a new one with the same settings; the old one expires after the overlap",
        function=rotate,
        body=Rotation,
        answer=documents.RotatedKey,
        status=201,
        writes_store=True,
    ),
    Route(
        method="POST",
        path="/keys/{key}/revoke",
        access=CHANGE,
        summary="End a key permanently and at once",
        function=revoke,
        answer=documents.Key,
        writes_store=True,
    ),
)

"""`/keys` and `/accounts/{account}/keys`: create, list, show, edit, rotate, revoke."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, defstruct, structs

from gateway.accounts.key_edits import LONGEST_OVERLAP
from gateway.accounts.key_record import KeyRecord, is_unused
from gateway.accounts.key_settings import AMOUNTS, KEY_SETTINGS, KeyLimits, Kind
from gateway.accounts.key_walk import KeyWalk, Position
from gateway.admin.key_lookups import used_from_form
from gateway.admin.model_names import known_models
from gateway.admin.pages import page_of
from gateway.admin.rights import require_reads_keys
from gateway.admin_api import documents
from gateway.admin_api.access import Access
from gateway.admin_api.call import AdminCall
from gateway.admin_api.inputs import amount_of
from gateway.admin_api.pagination import Cursor, Limit, Page, page, read_cursor
from gateway.admin_api.resources.accounts import AmountText, Count
from gateway.admin_api.route import AdminRoute

Name = Annotated[str, Meta(max_length=100)]
Models = Annotated[list[str], Meta(min_length=1, max_length=1000)]
Names = Annotated[list[str], Meta(min_length=1, max_length=64)]
Moment = Annotated[datetime, Meta(tz=True)]
Every = Literal["month", "week", "day", "never"]

READ = Access(scope="keys", target="key", reads=True, owners=True)
CHANGE = Access(scope="keys", target="key", owners=True)


#: The type of a setting in a request, by its kind.
KINDS: dict[Kind, Any] = {
    "count": Count,
    "amount": AmountText,
    "period": Every,
    "models": Models,
    "endpoints": Names,
    "networks": Names,
    "moment": Moment,
}


class KeyToCreate(Struct, frozen=True, kw_only=True):
    """What a new key has beside its settings."""

    name: Name = ""
    response_headers: list[Literal["cost"]] = []


class KeyToChange(Struct, frozen=True, kw_only=True):
    """What can be changed of a key beside its settings."""

    name: Name | UnsetType = UNSET


NewKey = defstruct(
    "NewKey",
    [(setting.name, KINDS[setting.kind] | None, None) for setting in KEY_SETTINGS],
    bases=(KeyToCreate,),
    frozen=True,
    kw_only=True,
    namespace={"__doc__": "A key to create; an absent limit does not exist."},
)
KeyChanges = defstruct(
    "KeyChanges",
    [(setting.name, KINDS[setting.kind] | UnsetType | None, UNSET) for setting in KEY_SETTINGS],
    bases=(KeyToChange,),
    frozen=True,
    kw_only=True,
    namespace={"__doc__": "Settings to change; null removes one, an absent one stays."},
)


class Rotation(Struct, frozen=True):
    """How long both keys work, in seconds."""

    overlap: Annotated[int, Meta(ge=0, le=int(LONGEST_OVERLAP.total_seconds()))] = 86_400


class KeysQuery(Struct, frozen=True, kw_only=True):
    """The query of a list of keys."""

    unused_since: Annotated[
        Moment | None, Meta(description="Only active keys that are older and were not used since then.")
    ] = None
    last4: Annotated[
        str, Meta(pattern=r"^[\x21-\x7e]{4}$(?!\n)", description="Only keys that end in these characters.")
    ] = ""
    fingerprint: Annotated[
        str,
        Meta(
            pattern=r"^[0-9a-f]{64}$(?!\n)",
            description="Only the key with this HMAC; `gateway keys find` computes it.",
        ),
    ] = ""
    limit: Limit = 100
    cursor: Cursor = ""


async def list_(call: AdminCall, query: KeysQuery) -> dict[str, Any]:
    if query.fingerprint:
        return await _page_of_fingerprint(call, call.actor.account, query)
    return await _page(call, call.actor.account, query)


async def list_of_account(call: AdminCall, account: str, query: KeysQuery) -> dict[str, Any]:
    if query.fingerprint:
        return await _page_of_fingerprint(call, account, query)
    return await _page(call, account, query)


async def _page_of_fingerprint(call: AdminCall, account: str, query: KeysQuery) -> dict[str, Any]:
    """The key with the fingerprint, if it is one of the account, or with "" of any."""
    owner = await call.store.keys.owner_of_fingerprint(query.fingerprint)
    if owner is None or account not in ("", owner[0]) or read_cursor("keys", query.cursor, Position) is not None:
        return page("keys", [], None)
    require_reads_keys(call.actor, owner[0])
    found = await call.store.keys.find(owner[1], owner[0])
    return page("keys", [found.json_form()] if found is not None and _fits(found, query) else [], None)


async def create(call: AdminCall, account: str, body: KeyToCreate) -> dict[str, Any]:
    return (await call.store.key_service.create(call.actor, account, **options_of(call, body))).json_form()


async def show(call: AdminCall, key: str) -> dict[str, Any]:
    return (await _key(call, key)).json_form()


async def addresses(call: AdminCall, key: str) -> dict[str, Any]:
    from gateway.history.caller_addresses import addresses_of_keys  # SQLAlchemy takes 0.2 s

    found = await (await call.services.history()).read(addresses_of_keys, [key])
    return {"data": [used_from_form(one) for one in found]}


async def edit(call: AdminCall, key: str, body: KeyToChange) -> dict[str, Any]:
    given = {name: value for name, value in structs.asdict(body).items() if value is not UNSET}
    name = given.pop("name", None)
    clear = [name for name, value in given.items() if value is None]
    limits = _limits(call, {name: value for name, value in given.items() if value is not None})
    return (
        await call.store.key_service.edit(call.actor, await _key(call, key), name=name, clear=clear, **limits)
    ).json_form()


async def rotate(call: AdminCall, key: str, body: Rotation) -> dict[str, Any]:
    rotated = await call.store.key_service.rotate(
        call.actor, await _key(call, key), overlap=timedelta(seconds=body.overlap)
    )
    return {**rotated.new.json_form(), "replaces": key, "old_expires": rotated.old.json_form()["expires"]}


async def revoke(call: AdminCall, key: str) -> dict[str, Any]:
    return (await call.store.key_service.revoke(call.actor, await _key(call, key))).json_form()


async def _key(call: AdminCall, key: str) -> KeyRecord:
    """The key in the path, whose account is known already."""
    return await call.store.key_service.show(call.actor, key, call.account)


async def _page(call: AdminCall, account: str, query: KeysQuery) -> dict[str, Any]:
    """Keys of an account, or with "" of all. A filter may read all of them, a portion at a time."""
    require_reads_keys(call.actor, account)
    if account:
        await call.store.keys.require_account(account)
    found: list[KeyRecord] = []
    after = read_cursor("keys", query.cursor, Position)
    async for keys in KeyWalk(call.store.store, call.store.keys).behind(after, account):
        found += (key for key in keys if _fits(key, query))
        if len(found) > query.limit:
            break
    shown, last = page_of(found, query.limit)
    return page("keys", [key.json_form() for key in shown], _position(last) if last else None)


def _fits(key: KeyRecord, query: KeysQuery) -> bool:
    if query.unused_since is not None and not is_unused(key, query.unused_since.astimezone(UTC)):
        return False
    return query.last4 in ("", key.last4)


def options_of(call: AdminCall, body: KeyToCreate) -> dict[str, Any]:
    """The options of `KeyService.create`."""
    values = {name: value for name, value in structs.asdict(body).items() if value is not None}
    show_cost, name = bool(values.pop("response_headers")), values.pop("name")
    return {"name": name, "show_cost": show_cost, **_limits(call, values)}


def _position(key: KeyRecord) -> tuple[str, int, str]:
    return key.account, int(key.created.timestamp()), key.id


def _limits(call: AdminCall, values: dict[str, Any]) -> KeyLimits:
    for name in AMOUNTS:
        if name in values:
            values[name] = amount_of(values[name], name)
    if "models" in values:
        values["models"] = known_models(call.services.settings, values["models"])
    limits: KeyLimits = {}
    limits.update(values)  # type: ignore[typeddict-item]  # the schema has the same names
    return limits


ROUTES = (
    AdminRoute(
        method="GET",
        path="/keys",
        access=Access(scope="keys", target="visible", reads=True),
        summary="List the keys of all accounts, by account and age",
        function=list_,
        query=KeysQuery,
        answer=Page[documents.Key],
    ),
    AdminRoute(
        method="GET",
        path="/accounts/{account}/keys",
        access=Access(scope="keys", target="account", reads=True, owners=True),
        summary="List the keys of an account, oldest first",
        function=list_of_account,
        query=KeysQuery,
        answer=Page[documents.Key],
    ),
    AdminRoute(
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
    AdminRoute(
        method="GET",
        path="/keys/{key}",
        access=READ,
        summary="Show a key without its text",
        function=show,
        answer=documents.Key,
    ),
    AdminRoute(
        method="GET",
        path="/keys/{key}/addresses",
        access=READ,
        summary="List the addresses that a key was used from, the last used first",
        function=addresses,
        answer=documents.KeyAddresses,
    ),
    AdminRoute(
        method="PATCH",
        path="/keys/{key}",
        access=CHANGE,
        summary="Change settings of a key, for its next call",
        function=edit,
        body=KeyChanges,
        answer=documents.Key,
        writes_store=True,
    ),
    AdminRoute(
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
    AdminRoute(
        method="POST",
        path="/keys/{key}/revoke",
        access=CHANGE,
        summary="End a key permanently and at once",
        function=revoke,
        answer=documents.Key,
        writes_store=True,
    ),
)

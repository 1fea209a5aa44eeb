"""`/accounts/{account}/keys`: the API keys: list, create, edit, rotate, revoke. The text of a key is shown once."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from gateway.accounts.key_record import CreatedKey, KeyRecord, is_unused
from gateway.accounts.key_settings import ENDPOINTS, KEY_SETTINGS
from gateway.admin.price_list import permitted_models
from gateway.admin.rights import creates_keys, manages_keys, reads_members
from gateway.admin.times import from_micros
from gateway.console.choices import chosen_models, models_to_choose
from gateway.console.key_form import key_limits, key_values, own_limits, short_limits
from gateway.console.replies import PAGE, Redirect, Reply, View
from gateway.console.route import PageRoute
from gateway.console.snippets import api_url, snippet_model, snippets
from gateway.console.visit import Visit
from gateway.errors import Forbidden, InvalidValue
from gateway.history.caller_addresses import addresses_of_keys

OVERLAPS = {"0": "None: the old key ends now", "1": "1 hour", "24": "24 hours", "168": "7 days", "720": "30 days"}
DEFAULT_OVERLAP = "24"  # hours
MOST_ADDRESSES = 50  # on the page of a key
UNUSED = ("30", "90", "180")  # days


async def list_(visit: Visit, account: str) -> Reply:
    shows_ended, unused, search = (
        visit.query("ended") == "1",
        visit.query("unused"),
        visit.query("q").strip().lstrip("…"),
    )
    unused = unused if unused in UNUSED else ""
    after = visit.query("after")
    found = await visit.store.key_service.page(
        visit.actor, account, _filter(search, unused, shows_ended=shows_ended), size=PAGE, after=after
    )
    values = {
        "account": account,
        "keys": found.keys,
        "next": found.next,
        "is_first": not after,
        "has_keys": bool(found.keys) or bool(await visit.store.key_service.newest_ids(visit.actor, account, 1)),
        "search": search,
        "shows_ended": shows_ended,
        "unused": unused,
        "periods": UNUSED,
        "short_limits": short_limits,
        "names": await _names(visit, account, found.keys),
        "may_create": creates_keys(visit.actor, account),
        "sees_all": manages_keys(visit.actor, account) or visit.actor.may("read"),
    }
    return View("keys.html", "API keys", values)


def _filter(search: str, unused: str, *, shows_ended: bool) -> Callable[[KeyRecord], bool]:
    """Whether a key is one to show; `unused` are days, or empty."""
    text, ended = search.casefold(), ("revoked", "expired")
    since = datetime.now(UTC) - timedelta(days=int(unused)) if unused else None

    def fits(key: KeyRecord) -> bool:
        if text not in key.name.casefold() and search not in (key.last4, key.id):
            return False
        return is_unused(key, since) if since is not None else shows_ended or key.state not in ended

    return fits


async def new(visit: Visit, account: str) -> Reply:
    return View("key_new.html", "Create a key", await _form_values(visit, account, None))


async def create(visit: Visit, account: str) -> Reply:
    if not creates_keys(visit.actor, account):
        raise Forbidden("This page is not for your role")
    limits, _ = key_limits(visit)
    shows_cost = bool(visit.text("show_cost"))
    if visit.text("owner") == "service" or account not in visit.actor.memberships:
        made = await visit.store.key_service.create(
            visit.actor, account, name=visit.text("name"), show_cost=shows_cost, **limits
        )
    else:
        member_keys = (await visit.people()).member_keys
        made = await member_keys.create(
            visit.actor, account, visit.actor.id, name=visit.text("name"), show_cost=shows_cost, **limits
        )
    return await _created(visit, account, made, replaced=None)


async def show(visit: Visit, account: str, key: str) -> Reply:
    record = await visit.store.key_service.show(visit.actor, key, account)
    values = await _form_values(visit, account, record)
    names = await _names(visit, account, [record])
    transactions = (await visit.people()).transactions
    used_from = await transactions.read(addresses_of_keys, [record.id], most=MOST_ADDRESSES)
    values |= {
        "key": record,
        "names": names,
        "used_from": used_from,
        "moment": from_micros,
        "own_limits": own_limits(record),
    }
    return View("key.html", record.name or f"Key …{record.last4}", values)


async def edit(visit: Visit, account: str, key: str) -> Reply:
    record = await visit.store.key_service.show(visit.actor, key, account)
    if not manages_keys(visit.actor, account):
        await visit.store.key_service.edit(visit.actor, record, name=visit.text("name"))
    else:
        limits, clear = key_limits(visit, record)
        await visit.store.key_service.edit(visit.actor, record, name=visit.text("name"), clear=clear, **limits)
    visit.note("The key is changed, from its next call on.")
    return Redirect(f"/accounts/{account}/keys/{key}")


async def rotate_form(visit: Visit, account: str, key: str) -> Reply:
    record = await visit.store.key_service.show(visit.actor, key, account)
    values = {"account": account, "key": record, "overlaps": OVERLAPS, "overlap": DEFAULT_OVERLAP}
    return View("key_rotate.html", "Rotate a key", values)


async def rotate(visit: Visit, account: str, key: str) -> Reply:
    record = await visit.store.key_service.show(visit.actor, key, account)
    hours = visit.text("overlap") or DEFAULT_OVERLAP
    if hours not in OVERLAPS:
        raise InvalidValue("Choose one of the overlaps", param="overlap")
    rotated = await visit.store.key_service.rotate(visit.actor, record, overlap=timedelta(hours=int(hours)))
    return await _created(visit, account, rotated.new, replaced=rotated.old)


async def revoke_form(visit: Visit, account: str, key: str) -> Reply:
    record = await visit.store.key_service.show(visit.actor, key, account)
    return View("key_revoke.html", "Revoke a key", {"account": account, "key": record})


async def revoke(visit: Visit, account: str, key: str) -> Reply:
    record = await visit.store.key_service.show(visit.actor, key, account)
    revoked = await visit.store.key_service.revoke(visit.actor, record)
    visit.note(f"The key {revoked.name or '…' + revoked.last4} is revoked: it works no more.")
    return Redirect(f"/accounts/{account}/keys")


async def _created(visit: Visit, account: str, made: CreatedKey, *, replaced: KeyRecord | None) -> Reply:
    """The page with the key's text. It replaces the list: a reload shows the list, without the text."""
    record = await visit.store.key_service.show(visit.actor, made.id, account)
    models = permitted_models(visit.settings, await visit.store.accounts.show(account))
    model = snippet_model(models, record.models)
    address = api_url(visit.settings, visit.asked.host)
    values = {
        "account": account,
        "made": made,
        "key": record,
        "replaced": replaced,
        "api_url": address,
        "snippets": snippets(address, made.text, model),
    }
    return View("key_created.html", "The new key", values)


async def _form_values(visit: Visit, account: str, key: KeyRecord | None) -> dict[str, Any]:
    models = permitted_models(visit.settings, await visit.store.accounts.show(account))
    fields = key_values(key)
    if visit.error is not None and visit.form:
        fields |= {name: visit.texts(name) if isinstance(fields[name], list) else visit.raw(name) for name in fields}
        fields["models"] = chosen_models(visit)
    return {
        "account": account,
        "fields": fields,
        "models": models_to_choose(models, fields["models"]),
        "endpoints": ENDPOINTS,
        "settings": KEY_SETTINGS,
        "is_member": account in visit.actor.memberships,
        "manages": manages_keys(visit.actor, account),
        "may_write": creates_keys(visit.actor, account),
    }


async def _names(visit: Visit, account: str, keys: list[KeyRecord]) -> dict[str, str]:
    """The names of the users who have keys, by id; those that the reader may not see are left out."""
    ids = {key.user for key in keys if key.user}
    if not ids:
        return {}
    if reads_members(visit.actor, account):
        members = await (await visit.people()).memberships.list(visit.actor, account, ids=ids)
    else:
        members = [visit.person]
    return {user.id: user.name or user.email for user in members}


PATH = "/accounts/{account}/keys"
ROUTES = (
    PageRoute(method="GET", path=PATH, audience="member", function=list_, help="console#api-keys", menu="API keys"),
    PageRoute(method="GET", path=f"{PATH}/new", audience="member", function=new, help="console#api-keys"),
    PageRoute(method="POST", path=f"{PATH}/new", audience="member", function=create, form=new),
    PageRoute(method="GET", path=f"{PATH}/{{key}}", audience="member", function=show, help="console#api-keys"),
    PageRoute(method="POST", path=f"{PATH}/{{key}}", audience="member", function=edit, form=show),
    PageRoute(method="GET", path=f"{PATH}/{{key}}/rotate", audience="member", function=rotate_form),
    PageRoute(method="POST", path=f"{PATH}/{{key}}/rotate", audience="member", function=rotate, form=rotate_form),
    PageRoute(method="GET", path=f"{PATH}/{{key}}/revoke", audience="member", function=revoke_form),
    PageRoute(
        method="POST", path=f"{PATH}/{{key}}/revoke", audience="member", function=revoke, form=revoke_form, always=True
    ),
)

"""`/accounts/{account}/keys`: the API keys: list, create, edit, rotate, revoke. The text of a key is shown once."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from gateway.accounts.key_settings import ENDPOINTS
from gateway.accounts.keys import KeyRecord, NewKey
from gateway.admin.key_editor import is_unused
from gateway.admin.price_list import permitted_models
from gateway.admin.refusals import existing_account
from gateway.console.key_form import key_limits, key_values
from gateway.console.key_rights import manages_keys, may_create
from gateway.console.replies import PAGE, Redirect, Reply, View
from gateway.console.route import Route
from gateway.console.snippets import api_url, snippet_model, snippets
from gateway.console.visit import Visit
from gateway.errors import Forbidden, InvalidValue

OVERLAPS = {"0": "None: the old key ends now", "1": "1 hour", "24": "24 hours", "168": "7 days", "720": "30 days"}
DEFAULT_OVERLAP = "24"  # hours
UNUSED = ("30", "90", "180")  # days


async def list_(visit: Visit, account: str) -> Reply:
    shows_ended, unused, search = (
        visit.query("ended") == "1",
        visit.query("unused"),
        visit.query("q").strip().lstrip("…"),
    )
    unused = unused if unused in UNUSED else ""
    after = visit.query("after")
    found = await visit.store.visible_keys.page(
        visit.actor, account, _filter(search, unused, shows_ended=shows_ended), size=PAGE, after=after
    )
    values = {
        "account": account,
        "keys": found.keys,
        "next": found.next,
        "is_first": not after,
        "has_keys": bool(found.keys) or bool(await visit.store.visible_keys.ids(visit.actor, account)),
        "search": search,
        "shows_ended": shows_ended,
        "unused": unused,
        "periods": UNUSED,
        "names": await _names(visit, account, found.keys),
        "may_create": may_create(visit, account),
        "sees_all": manages_keys(visit, account) or visit.actor.may("read"),
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
    if not may_create(visit, account):
        raise Forbidden("This page is not for your role")
    limits, _ = key_limits(visit)
    shows_cost = bool(visit.text("show_cost"))
    if visit.text("owner") == "service" or account not in visit.actor.memberships:
        made = await visit.store.create_key(
            visit.actor, account, name=visit.text("name"), show_cost=shows_cost, **limits
        )
    else:
        await visit.store.check_pepper()
        member_keys = (await visit.people()).member_keys
        made = await member_keys.create(
            visit.actor, account, visit.actor.id, name=visit.text("name"), show_cost=shows_cost, **limits
        )
    return await _created(visit, account, made, replaced=None)


async def show(visit: Visit, account: str, key: str) -> Reply:
    record = await visit.store.visible_keys.show(visit.actor, account, key)
    values = await _form_values(visit, account, record)
    names = await _names(visit, account, [record])
    return View("key.html", record.name or f"Key …{record.last4}", {**values, "key": record, "names": names})


async def edit(visit: Visit, account: str, key: str) -> Reply:
    record = await visit.store.visible_keys.show(visit.actor, account, key)
    if not manages_keys(visit, account):
        await visit.store.key_changes.edit(visit.actor, key, name=visit.text("name"))
    else:
        limits, clear = key_limits(visit, record)
        await visit.store.key_changes.edit(visit.actor, key, name=visit.text("name"), clear=clear, **limits)
    visit.note("The key is changed, from its next call on.")
    return Redirect(f"/accounts/{account}/keys/{key}")


async def rotate_form(visit: Visit, account: str, key: str) -> Reply:
    record = await visit.store.visible_keys.show(visit.actor, account, key)
    values = {"account": account, "key": record, "overlaps": OVERLAPS, "overlap": DEFAULT_OVERLAP}
    return View("key_rotate.html", "Rotate a key", values)


async def rotate(visit: Visit, account: str, key: str) -> Reply:
    await visit.store.visible_keys.show(visit.actor, account, key)
    hours = visit.text("overlap") or DEFAULT_OVERLAP
    if hours not in OVERLAPS:
        raise InvalidValue("Choose one of the overlaps", param="overlap")
    rotated = await visit.store.rotate_key(visit.actor, key, overlap=timedelta(hours=int(hours)))
    return await _created(visit, account, rotated.new, replaced=rotated.old)


async def revoke_form(visit: Visit, account: str, key: str) -> Reply:
    record = await visit.store.visible_keys.show(visit.actor, account, key)
    return View("key_revoke.html", "Revoke a key", {"account": account, "key": record})


async def revoke(visit: Visit, account: str, key: str) -> Reply:
    await visit.store.visible_keys.show(visit.actor, account, key)
    revoked = await visit.store.key_admin.revoke(visit.actor, key)
    visit.note(f"The key {revoked.name or '…' + revoked.last4} is revoked: it works no more.")
    return Redirect(f"/accounts/{account}/keys")


async def _created(visit: Visit, account: str, made: NewKey, *, replaced: KeyRecord | None) -> Reply:
    """The page with the key's text. It replaces the list: a reload shows the list, without the text."""
    record = await visit.store.visible_keys.show(visit.actor, account, made.id)
    models = permitted_models(visit.settings, await existing_account(visit.store.accounts, account))
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
    models = permitted_models(visit.settings, await existing_account(visit.store.accounts, account))
    fields = key_values(key)
    if visit.error is not None and visit.form:
        fields |= {name: visit.texts(name) if isinstance(fields[name], list) else visit.raw(name) for name in fields}
    return {
        "account": account,
        "fields": fields,
        "models": sorted({*models, *fields["models"]}),
        "endpoints": ENDPOINTS,
        "is_member": account in visit.actor.memberships,
        "manages": manages_keys(visit, account),
        "may_write": may_create(visit, account),
    }


async def _names(visit: Visit, account: str, keys: list[KeyRecord]) -> dict[str, str]:
    """The names of the users who have keys, by id; those that the reader may not see are left out."""
    ids = {key.user for key in keys if key.user}
    if not ids:
        return {}
    if visit.actor.may_read("users", account) or visit.actor.owns(account):
        members = await (await visit.people()).memberships.list(visit.actor, account, ids=ids)
    else:
        members = [visit.person]
    return {user.id: user.name or user.email for user in members}


PATH = "/accounts/{account}/keys"
ROUTES = (
    Route(method="GET", path=PATH, audience="member", function=list_, menu="API keys"),
    Route(method="GET", path=f"{PATH}/new", audience="member", function=new),
    Route(method="POST", path=f"{PATH}/new", audience="member", function=create, form=new),
    Route(method="GET", path=f"{PATH}/{{key}}", audience="member", function=show),
    Route(method="POST", path=f"{PATH}/{{key}}", audience="member", function=edit, form=show),
    Route(method="GET", path=f"{PATH}/{{key}}/rotate", audience="member", function=rotate_form),
    Route(method="POST", path=f"{PATH}/{{key}}/rotate", audience="member", function=rotate, form=rotate_form),
    Route(method="GET", path=f"{PATH}/{{key}}/revoke", audience="member", function=revoke_form),
    Route(
        method="POST", path=f"{PATH}/{{key}}/revoke", audience="member", function=revoke, form=revoke_form, always=True
    ),
)

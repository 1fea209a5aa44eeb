"""`/site/accounts/{account}/price`: the price of an account for a model: what is in force, an own price, its end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gateway.accounts.accounts import Account
from gateway.admin.audit_event import AuditEvent
from gateway.admin.audit_trail import AuditFilter, newest_events
from gateway.admin.model_names import model_of_price
from gateway.amounts import parse_factor
from gateway.billing.price_terms import OwnPrice
from gateway.config.settings import AmountSettings
from gateway.console.choices import models_to_choose
from gateway.console.fields import amount_field
from gateway.console.own_prices import PriceInForce, amount_fields, price_in_force, unit_of
from gateway.console.replies import Redirect, Reply, View
from gateway.console.route import PageRoute
from gateway.console.visit import Visit
from gateway.errors import InvalidValue
from gateway.ledger.account_terms import FACTOR

PATH = "/site/accounts/{account}/price"
EVENTS = 100  # the newest of the account, in which its prices are looked for


async def show(visit: Visit, account: str) -> Reply:
    record = await visit.store.accounts.show(account)
    values: dict[str, Any] = {
        "account": record,
        "models": models_to_choose({*visit.settings.models, *record.prices}),
        "chosen": visit.carried("model"),
        "price": None,
    }
    if not visit.carried("model"):
        return View("site_price.html", f"Prices of {account}", values)
    model = _known(visit, record)
    own = record.prices.get(model, {})
    typed = {name: visit.raw(name) for name in visit.form}  # only what the form that was refused has
    fields, others = amount_fields(visit.settings.models.get(model), own, typed)
    values |= {
        "price": price_in_force(visit.settings, record, model, await price_events(visit, record)),
        "fields": fields,
        "others": others,
        "factor": typed.get("factor", own.get(FACTOR, "")),
    }
    return View("site_price.html", f"Price of {model}", values)


async def set_amounts(visit: Visit, account: str) -> Reply:
    model = _known(visit)
    await visit.confirm_password()
    typed = {name: amount_field(visit, name, _label(name)) for name in AmountSettings.__struct_fields__}
    amounts = tuple(sorted((name, amount) for name, amount in typed.items() if amount is not None))
    if not amounts:
        raise InvalidValue("Type at least one amount, or let the account pay the list price again", param="amounts")
    return await _set(visit, account, model, OwnPrice(amounts=amounts))


async def set_factor(visit: Visit, account: str) -> Reply:
    model = _known(visit)
    await visit.confirm_password()
    try:
        factor = parse_factor(visit.text("factor"))
    except ValueError:
        raise InvalidValue("Factor: expected a number from 0 to 1000, such as 0.8", param="factor") from None
    return await _set(visit, account, model, OwnPrice(factor))


async def clear(visit: Visit, account: str) -> Reply:
    # The price of a model that is gone from the configuration can still be removed.
    model = _known(visit, await visit.store.accounts.show(account))
    await visit.confirm_password()
    return await _set(visit, account, model, None)


async def own_prices(visit: Visit, account: Account) -> list[PriceInForce]:
    """The own prices of an account, by model."""
    events = await price_events(visit, account)
    return [price_in_force(visit.settings, account, model, events) for model in sorted(account.prices)]


async def price_events(visit: Visit, account: Account) -> Sequence[AuditEvent]:
    """The newest audit events of an account with own prices, newest first."""
    if not account.prices:
        return ()
    trail, outbox = (await visit.people()).audit_trail, visit.store.outbox
    wanted = AuditFilter(account=account.name, object=f"account:{account.name}")
    return await newest_events(visit.actor, trail, outbox, wanted, limit=EVENTS)


async def _set(visit: Visit, account: str, model: str, own: OwnPrice | None) -> Reply:
    record = await visit.store.account_prices.set(visit.actor, account, model, own)
    terms = price_in_force(visit.settings, record, model).terms
    visit.note(f"The price of {model}, from the next call on: {terms}.")
    return Redirect(f"/site/accounts/{account}")


def _known(visit: Visit, account: Account | None = None) -> str:
    """The chosen model; InvalidValue for none, or one that neither the configuration nor the account knows."""
    name = visit.carried("model")
    if not name:
        raise InvalidValue("Choose a model", param="model")
    return model_of_price(visit.settings, account.prices if account is not None else (), name)


def _label(name: str) -> str:
    return unit_of(name)[0].capitalize()


def _post(path: str, function: Any) -> PageRoute:
    return PageRoute(method="POST", path=f"{PATH}/{path}", audience="operator", function=function, form=show)


ROUTES = (
    PageRoute(method="GET", path=PATH, audience="operator", function=show, help="prices#prices-of-accounts"),
    _post("amounts", set_amounts),
    _post("factor", set_factor),
    _post("clear", clear),
)

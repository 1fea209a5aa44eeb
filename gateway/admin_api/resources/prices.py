"""`/accounts/{account}/prices` and `…/models`: prices of an account's own, and what it pays for each model."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from gateway.admin.model_names import known_models, model_of_price
from gateway.admin.models import model_form
from gateway.admin.pages import page_of
from gateway.admin.price_list import price_terms
from gateway.admin_api import documents
from gateway.admin_api.access import Access
from gateway.admin_api.call import AdminCall
from gateway.admin_api.inputs import amount_of
from gateway.admin_api.pagination import Page, PageQuery, page, read_cursor
from gateway.admin_api.resources.accounts import AmountText
from gateway.admin_api.route import AdminRoute
from gateway.amounts import NANO, parse_factor
from gateway.billing.price_terms import OwnPrice
from gateway.errors import InvalidValue

CHANGE = Access(scope="accounts", also="credits", target="account", of_site=True)


class OwnPriceOf(Struct, frozen=True, kw_only=True):
    """An own price: either amounts in place of those of the list price, or a factor of it."""

    amounts: Annotated[dict[str, AmountText] | None, Meta(examples=[{"input": "0.2"}])] = None
    factor: Annotated[str, Meta(max_length=20, examples=["0.8"])] | None = None


async def models(call: AdminCall, account: str, query: PageQuery) -> dict[str, Any]:
    after = read_cursor("account models", query.cursor, tuple[str])
    settings = call.services.settings
    terms = price_terms(settings, await call.store.accounts.show(account))
    names = [name for name in sorted(settings.models) if after is None or name > after[0]]
    shown, last = page_of(names, query.limit)
    forms = [model_form(name, settings.models[name], terms.of(name)) for name in shown]
    return page("account models", forms, [last] if last else None)


async def set_(call: AdminCall, account: str, model: str, body: OwnPriceOf) -> dict[str, Any]:
    await call.store.accounts.show(account)
    (known,) = known_models(call.services.settings, [model])
    return (await call.store.account_prices.set(call.actor, account, known, _own_price(body))).json_form()


async def clear(call: AdminCall, account: str, model: str) -> dict[str, Any]:
    found = await call.store.accounts.show(account)
    known = model_of_price(call.services.settings, found.prices, model)
    return (await call.store.account_prices.set(call.actor, account, known, None)).json_form()


def _own_price(body: OwnPriceOf) -> OwnPrice:
    if bool(body.amounts) == (body.factor is not None):
        raise InvalidValue("Give either 'amounts' or 'factor'", param="amounts")
    amounts = {name: amount_of(text, f"amounts.{name}") for name, text in (body.amounts or {}).items()}
    if body.factor is None:
        return OwnPrice(NANO, tuple(sorted(amounts.items())))
    try:
        return OwnPrice(parse_factor(body.factor))
    except ValueError as error:
        raise InvalidValue(f"Invalid 'factor': {error}.", param="factor") from None


ROUTES = (
    AdminRoute(
        method="GET",
        path="/accounts/{account}/models",
        access=Access(scope="config", reads=True),
        summary="List the models with the prices that an account pays, by name",
        function=models,
        query=PageQuery,
        answer=Page[documents.Model],
    ),
    AdminRoute(
        method="PUT",
        path="/accounts/{account}/prices/{model}",
        access=CHANGE,
        summary="Give an account a price of its own for a model, from the next call on",
        function=set_,
        body=OwnPriceOf,
        answer=documents.Account,
        writes_store=True,
    ),
    AdminRoute(
        method="DELETE",
        path="/accounts/{account}/prices/{model}",
        access=CHANGE,
        summary="Let an account pay the list price for a model again",
        function=clear,
        answer=documents.Account,
        writes_store=True,
    ),
)

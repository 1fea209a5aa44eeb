"""The own prices of an account as an operator sees them: the terms, what they come to today, and since when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct

from gateway.accounts.accounts import Account
from gateway.admin.audit_event import AuditEvent
from gateway.admin.models import model_form
from gateway.admin.price_list import price_of
from gateway.admin.times import from_micros
from gateway.amounts import NANO, format_amount
from gateway.billing.price_terms import OwnPrice, UnreadablePrice
from gateway.config.settings import AmountSettings, ModelSettings, Settings
from gateway.console.elements import amount_text
from gateway.console.price_rows import MAIN, TOKENS, UNITS, other_prices
from gateway.ledger.account_terms import FACTOR

ACTION = "accounts.price"  # of the audit events

#: What is paid, the amount, and the unit.
Line = tuple[str, str, str]


class PriceInForce(Struct, frozen=True, kw_only=True):
    """What an account pays for a model, and why."""

    model: str
    terms: str  # such as "list price × 0.8"
    is_own: bool
    is_known: bool  # to the configuration
    now: Sequence[Line]  # none if the price is not known, or the model is free
    is_free: bool
    later: Sequence[tuple[str, Sequence[Line]]]  # by the date of the list price
    since: datetime | None  # when the own price was set, as far as the newest audit events say


class Field(Struct, frozen=True):
    """An amount that an own price may have."""

    name: str
    label: str
    unit: str
    value: str  # the account's own
    listed: str  # today's of the list price


def price_in_force(settings: Settings, account: Account, model: str, events: Sequence[AuditEvent] = ()) -> PriceInForce:
    """The price of the account for a model of the configuration, or one that is gone from it."""
    stored, known = account.prices.get(model), settings.models.get(model)
    applied = price_of(settings, account, model)
    form: dict[str, Any] = {"price": {}, "later_prices": []}
    if known is not None:
        form = model_form(model, known, applied)
    now = _lines(form["price"])
    return PriceInForce(
        model=model,
        terms=_terms(stored, applied),
        is_own=stored is not None,
        is_known=known is not None,
        now=now,
        is_free=known is not None and not isinstance(applied, UnreadablePrice) and not now,
        later=[(str(later["effective_from"]), _lines(later)) for later in form["later_prices"]],
        since=_since(model, events) if stored is not None else None,
    )


def amount_fields(
    model: ModelSettings | None, own: Mapping[str, str], typed: Mapping[str, str]
) -> tuple[list[Field], list[Field]]:
    """The amounts that the list price of the model or the own price has, and all others; `typed` goes before `own`."""
    listed = model_form("", model)["price"] if model is not None else {}
    chosen = _amounts_of(model) | (own.keys() - {FACTOR}) or set(MAIN)
    fields = [_field(name, {**own, **typed}, listed) for name in AmountSettings.__struct_fields__]
    return [field for field in fields if field.name in chosen], [field for field in fields if field.name not in chosen]


def unit_of(name: str) -> tuple[str, str]:
    """What an amount of a price is paid for, and its unit."""
    return (name.replace("_", " "), TOKENS) if name in MAIN else UNITS[name]


def _amounts_of(model: ModelSettings | None) -> set[str]:
    """The amounts of all list prices of a model, today's and later ones, in all tiers."""
    prices = (model.price if model is not None else None) or ()
    return {name for price in prices for part in (price, *price.tiers) for name in part.amounts()}


def _field(name: str, values: Mapping[str, str], listed: Mapping[str, str]) -> Field:
    what, unit = unit_of(name)
    return Field(name, what.capitalize(), unit, values.get(name, ""), listed.get(name, ""))


def _terms(stored: Mapping[str, str] | None, applied: OwnPrice | UnreadablePrice) -> str:
    if isinstance(applied, UnreadablePrice):
        return f"unreadable, so calls are refused: {applied.reason}"
    amounts = ", ".join(f"{unit_of(name)[0]} {amount_text(amount)}" for name, amount in applied.amounts)
    factor = f"list price × {format_amount(applied.factor)}"
    if stored is None:
        return "list price" if applied.factor == NANO else f"{factor}, the factor of the group"
    return " and ".join(part for part in (amounts, factor if FACTOR in stored else "") if part)


def _lines(price: Mapping[str, Any]) -> list[Line]:
    main = [(name.replace("_", " "), amount_text(price[name]), TOKENS) for name in MAIN if name in price]
    return [*main, *other_prices(price)]


def _since(model: str, events: Sequence[AuditEvent]) -> datetime | None:
    """The time of the newest event about the price of this model; events are newest first."""
    return next((from_micros(event.at) for event in events if event.action == ACTION and model in event.after), None)

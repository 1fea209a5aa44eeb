"""The prices and the models of an account, as the configuration and the account's own settings say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.accounts.accounts import Account
from gateway.admin.models import model_form
from gateway.amounts import NANO
from gateway.billing.price_terms import OwnPrice, PriceTerms, UnreadablePrice
from gateway.config.settings import ModelSettings, Settings
from gateway.ledger.account_terms import read_own_price
from gateway.ledger.limits import DEFAULT_GROUP


def price_terms(settings: Settings, account: Account) -> PriceTerms:
    """How the prices of an account follow from the price list."""
    own = {model: read_own_price(form) for model, form in account.prices.items()}
    return PriceTerms(listed=group_price(settings, account), own=own)


def price_of(settings: Settings, account: Account, model: str) -> OwnPrice | UnreadablePrice:
    """What the account pays for a model: its own price, or that of its group."""
    stored = account.prices.get(model)
    return read_own_price(stored) if stored is not None else group_price(settings, account)


def group_price(settings: Settings, account: Account) -> OwnPrice:
    """The price of the models without an own one: the list price with the factor of the group."""
    group = settings.groups.get(account.group)
    return OwnPrice(group.price_factor if group is not None else NANO)  # as `GroupTable` has it


def permitted_models(settings: Settings, account: Account | None) -> dict[str, ModelSettings]:
    """The models that an account may use, by name; None: those of the default group. The rule is that of admit.lua."""
    group = account.group if account is not None else DEFAULT_GROUP
    allowed, denied = (account.allowed, account.denied) if account is not None else ((), ())
    return {
        name: model
        for name, model in sorted(settings.models.items())
        if name in allowed or (name not in denied and group in model.groups)
    }


def unreadable_prices(account: Account | None) -> list[str]:
    """The models whose own price cannot be read, by name: `/v1` refuses the calls of them."""
    stored = account.prices if account is not None else {}
    return sorted(name for name, form in stored.items() if isinstance(read_own_price(form), UnreadablePrice))


def price_list(
    settings: Settings, account: Account | None, models: Mapping[str, ModelSettings]
) -> list[dict[str, Any]]:
    """These models in the form of `gateway models --json`, with what the account pays; None: with the list prices.

    A model is `unreadable` and has no price if its own price cannot be read: `/v1` refuses the calls of it then.
    """
    return [
        {
            **_paid_form(settings, account, name, model),
            "context_window": model.context_window,
            "max_output_tokens": model.max_output_tokens,
            "reasoning": model.reasoning is True,
            "unsupported_params": list(model.unsupported_params),
            "shutdown_date": str(model.shutdown_date or ""),
            "listed": model_form(name, model)["price"],
        }
        for name, model in models.items()
    ]


def _paid_form(settings: Settings, account: Account | None, name: str, model: ModelSettings) -> dict[str, Any]:
    if account is None:
        return {**model_form(name, model), "unreadable": False}
    return model_form(name, model, price_of(settings, account, name))

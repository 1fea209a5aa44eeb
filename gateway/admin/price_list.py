"""The prices and the models of an account, as the configuration and the account's own settings say."""

from __future__ import annotations

from gateway.accounts.accounts import Account
from gateway.amounts import NANO
from gateway.billing.price_terms import OwnPrice, PriceTerms
from gateway.config.settings import Settings
from gateway.ledger.account_terms import parse_own_price


def price_terms(settings: Settings, account: Account) -> PriceTerms:
    """How the prices of an account follow from the price list."""
    group = settings.groups.get(account.group)
    factor = group.price_factor if group is not None else NANO  # as `GroupTable` has it
    own = {model: parse_own_price(form) for model, form in account.prices.items()}
    return PriceTerms(listed=OwnPrice(factor), own=own)

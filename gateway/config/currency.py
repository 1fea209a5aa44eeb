"""The currency in which an installation computes."""

from __future__ import annotations

from typing import Final

from gateway.config.settings import Settings
from gateway.config.validation import all_prices

PUBLIC_CURRENCY: Final = "USD"  # of public prices, and of the lists of providers


def currency_of(settings: Settings) -> str:
    """The currency that prices, costs and the prices of patterns name, such as USD; empty if none names one.

    They name at most one: `check` refuses a file with two, and public prices and those of lists are used beside it only
    if it is `PUBLIC_CURRENCY`. So the first one counts. If none names one, public prices and those of lists are used.
    """
    return next((price.currency for _, _, prices in all_prices(settings) for price in prices if price.currency), "")

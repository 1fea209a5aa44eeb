"""Prices as documents: decimal texts for the admin API, the command line and `/v1/models`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gateway.amounts import NANO, format_product
from gateway.billing.price import Price
from gateway.config.settings import PriceSettings


def price_form(price: PriceSettings, factor: int = NANO) -> dict[str, Any]:
    """A price as decimal texts, times a factor in 1e-9."""
    form: dict[str, Any] = {name: format_product(amount, factor) for name, amount in price.amounts().items()}
    if price.per_image:
        form["per_image"] = {
            size: {quality: format_product(amount, factor) for quality, amount in amounts.items()}
            for size, amounts in price.per_image.items()
        }
    if price.tiers:
        form["tiers"] = [
            {
                "above_input_tokens": tier.above_input_tokens,
                **{name: format_product(amount, factor) for name, amount in tier.amounts().items()},
            }
            for tier in price.tiers
        ]
    if price.service_tier_multiplier:
        form["service_tier_multiplier"] = {name: str(value) for name, value in price.service_tier_multiplier.items()}
    if price.currency:
        form["currency"] = price.currency
    if price.effective_from:
        form["effective_from"] = price.effective_from
    return form


def later_price_forms(
    prices: Sequence[tuple[Price, PriceSettings]], holds: Price, factor: int = NANO
) -> list[dict[str, Any]]:
    """The announced prices, those that begin after the one that `holds` now, with their versions."""
    return [
        {**price_form(settings, factor), "version": price.version}
        for price, settings in prices
        if price.effective_from > holds.effective_from
    ]

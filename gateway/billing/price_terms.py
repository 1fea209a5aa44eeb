"""How the prices of one account follow from the price list: the factor of its group, and prices of its own.

An own price of a model takes the place of the list price and of the group's factor. It is a factor of the list price,
or the list price with some amounts replaced, in all tiers. Factors are in 1e-9, amounts in nano units.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

from msgspec import Struct, structs

from gateway.amounts import NANO
from gateway.billing.price import Price
from gateway.config.settings import PriceSettings
from gateway.errors import PriceUnreadable


class OwnPrice(Struct, frozen=True):
    """What an account pays for a model instead of the list price."""

    factor: int = NANO
    amounts: tuple[tuple[str, int], ...] = ()  # names of `AmountSettings`, sorted

    def of(self, listed: PriceSettings | None) -> Price:
        """The price that follows from a list price; None is a free model."""
        return Price.of(self.replaced(listed)).times(self.factor)

    def replaced(self, listed: PriceSettings | None) -> PriceSettings | None:
        """The list price with the own amounts, without the factor."""
        if not self.amounts:
            return listed
        amounts, listed = dict(self.amounts), listed or PriceSettings()
        tiers = tuple(structs.replace(tier, **amounts) for tier in listed.tiers)
        return structs.replace(listed, tiers=tiers, **amounts)


class UnreadablePrice(Struct, frozen=True):
    """Takes the place of an own price that cannot be read. Nothing has a price by it, so it refuses the calls.

    It has the methods of `OwnPrice`, so readable prices cost no check.
    """

    reason: str = ""  # for the operator
    mark: int = 0  # of the stored text; another text has another one

    def of(self, listed: PriceSettings | None) -> NoReturn:
        """PriceUnreadable."""
        raise PriceUnreadable(detail=self.reason)


class PriceTerms(Struct, frozen=True):
    """The prices of an account. `epoch` changes with the account's own prices; "" is an account that never had any."""

    epoch: str = ""
    listed: OwnPrice | None = None  # for the models without a price of its own; None: the list price
    own: Mapping[str, OwnPrice | UnreadablePrice] = {}  # by model

    def of(self, model: str) -> OwnPrice | UnreadablePrice | None:
        """How the price of a model differs from the list price; None if it does not."""
        return self.own.get(model, self.listed)


LIST_PRICES = PriceTerms()

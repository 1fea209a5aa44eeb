"""Counts the calls that an unreadable own price of their account refuses, and logs each such price once.

One worker logs a price again only if another unreadable text takes its place, however many calls it refuses.
"""

from __future__ import annotations

from gateway.billing.price_terms import UnreadablePrice
from gateway.log import gateway_log
from gateway.metrics import Metrics

LOGGED = 1000  # prices that a worker remembers; the oldest is forgotten, and may be logged again


class UnreadablePrices:
    """The unreadable prices that one worker has met."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._logged: dict[tuple[str, str, UnreadablePrice], None] = {}

    def refused(self, account: str, model: str, price: UnreadablePrice) -> None:
        """A call was refused for this price; `model` is a name of the configuration."""
        self._metrics.inc("gateway_unreadable_price_refusals", (model,))
        found = (account, model, price)
        if found in self._logged:
            return
        if len(self._logged) >= LOGGED:
            del self._logged[next(iter(self._logged))]
        self._logged[found] = None
        gateway_log.error(
            "account %s: its own price of %s cannot be read, so calls of this model are refused: %s",
            account,
            model,
            price.reason,
        )

"""Reads single values out of the totals of a machine."""

from __future__ import annotations

import time
from collections.abc import Mapping

from gateway.metrics import Labels, Totals

MOST_MODELS = 20  # that are named


class Readings:
    """The values of gauges at this moment."""

    def __init__(self, totals: Totals) -> None:
        self._totals = totals

    def total(self, name: str, *, missing: float = 0.0) -> float:
        """The sum over all series; `missing` if there is none."""
        values = self._totals.gauges(name)
        return sum(values.values()) if values else missing

    def by_label(self, name: str) -> dict[str, float]:
        """The values of a gauge that has one label."""
        return {labels[0]: value for labels, value in self._totals.gauges(name).items()}

    def unavailable_models(self) -> tuple[str, ...]:
        """The first models without a target in any worker."""
        found = self.by_label("gateway_models_unavailable")
        return tuple(sorted(model for model, workers in found.items() if workers)[:MOST_MODELS])


class Rates:
    """How fast counters grow, from one reading to the next."""

    def __init__(self) -> None:
        self._before: Mapping[Labels, float] = {}
        self._at = time.monotonic()

    def read(self, counters: Mapping[Labels, float]) -> dict[str, float]:
        """The growth per second since the last reading, by the first label."""
        now = time.monotonic()
        passed, before = max(now - self._at, 0.001), self._before
        self._before, self._at = dict(counters), now
        return {labels[0]: max(0.0, value - before.get(labels, value)) / passed for labels, value in counters.items()}

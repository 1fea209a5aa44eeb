"""Refusals for unreadable prices are counted by model and logged once for each price."""

from __future__ import annotations

import logging

import pytest

from gateway.billing.price_terms import UnreadablePrice
from gateway.inference.unreadable_prices import UnreadablePrices
from gateway.metrics import Metrics


def test_each_price_is_logged_once_and_another_text_in_its_place_again(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.ERROR, "gateway")
    monkeypatch.setattr("gateway.inference.unreadable_prices.LOGGED", 3)
    metrics = Metrics()
    prices = UnreadablePrices(metrics)
    for account, model, mark in [("a", "m", 1), ("a", "m", 1), ("a", "n", 1), ("b", "m", 1), ("a", "m", 1)]:
        prices.refused(account, model, UnreadablePrice("why", mark))
    assert len(caplog.records) == 3
    prices.refused("a", "m", UnreadablePrice("why", 2))
    assert len(caplog.records) == 4
    prices.refused("a", "m", UnreadablePrice("why", 1))  # it was forgotten for the one before
    assert len(caplog.records) == 5
    delta = metrics.drain()
    assert delta is not None
    assert {labels: count for _, labels, count in delta.counters} == {("m",): 6, ("n",): 1}

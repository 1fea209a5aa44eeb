"""The audit trail has the prices and limits that a reload changes, before and after, and no others."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.admin.configuration_changes import change_event, changes
from gateway.config.loader import parse
from gateway.config.settings import Settings

PROVIDERS = {"openai": {"plugin": "openai", "api_key": "env:OPENAI_API_KEY"}}


def settings(prices: dict[str, Any], groups: dict[str, Any]) -> Settings:
    models = {name: {"provider": "openai", "price": price} for name, price in prices.items()}
    return parse({"providers": PROVIDERS, "models": models, "groups": groups})


BEFORE = settings({"a": {"input": 1, "output": 2}, "b": {"input": 3, "output": 4}}, {"vip": {"rpm": 5}})


@pytest.mark.holds("operations/machines.md#several-machines-2")
def test_changed_new_and_removed_prices_and_limits_are_shown() -> None:
    after = settings(
        {"a": {"input": 1, "output": 9}, "c": {"input": 1, "output": 1}}, {"vip": {"rpm": 6, "price_factor": 2}}
    )
    old, new = changes(BEFORE, after)
    assert old["prices"]["a"] == [{"input": "1", "output": "2"}]
    assert new["prices"]["a"] == [{"input": "1", "output": "9"}]
    assert (new["prices"]["b"], old["prices"]["c"]) == (None, None)
    assert (old["limits"]["vip"]["rpm"], new["limits"]["vip"]["rpm"]) == (5, 6)
    assert (old["limits"]["vip"]["price_factor"], new["limits"]["vip"]["price_factor"]) == ("1", "2")


def test_what_is_equal_is_left_out() -> None:
    after = settings({"a": {"input": 1, "output": 2}, "b": {"input": 3, "output": 5}}, {"vip": {"rpm": 5}})
    old, new = changes(BEFORE, after)
    assert old == {"prices": {"b": [{"input": "3", "output": "4"}]}}
    assert new == {"prices": {"b": [{"input": "3", "output": "5"}]}}


def test_reload_without_such_a_change_has_no_event() -> None:
    assert change_event(BEFORE, BEFORE) is None
    event = change_event(BEFORE, settings({}, {}))
    assert event is not None
    assert (event.action, event.object, event.actor_kind) == ("configuration.change", "configuration:file", "system")

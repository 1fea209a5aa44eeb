"""`cost` of targets and `price_factor` of groups in a configuration."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from gateway.amounts import NANO
from gateway.catalog import Catalog
from gateway.config.loader import parse
from gateway.config.settings import Settings
from gateway.config.toml_reader import SettingsError

PRICE = {"input": 1, "output": 2}


def settings_of(model: dict[str, Any], **groups: Any) -> Settings:
    model = {"price": PRICE, **model}
    model = model if "targets" in model else {"provider": "p", **model}
    return parse({"providers": {"p": {"plugin": "fake"}}, "groups": groups, "models": {"m": model}})


def test_each_target_has_its_own_cost_price() -> None:
    targets = [
        {"provider": "p", "model": "a", "cost": {"input": Decimal("0.5"), "output": 0}},
        {"provider": "p", "model": "b", "cost": [PRICE, {"input": 3, "output": 4, "effective_from": "2099-01-01"}]},
        {"provider": "p", "model": "c", "cost": "openai/gpt-5-mini"},
        {"provider": "p", "model": "d"},
    ]
    model = Catalog.build(settings_of({"targets": targets})).models["m"]
    assert [len(target.costs) for target in model.targets] == [1, 2, 1, 0]
    assert (model.targets[0].costs[0].input, model.targets[0].costs[0].output) == (NANO // 2, 0)
    alone = Catalog.build(settings_of({"cost": PRICE})).models["m"]
    assert [price.output for price in alone.targets[0].costs] == [2 * NANO]


@pytest.mark.holds("prices.md#cost-prices-1")
@pytest.mark.parametrize(
    ("model", "problem"),
    [
        ({"cost": {"inptu": 1}}, 'models.m.cost.inptu: unknown key; nearest: "input"'),
        ({"cost": {"input": -1, "output": 1}}, "models.m.cost.input: -1 is negative"),
        ({"cost": {"input": 1}}, "models.m.cost.output: missing, while input has a price"),
        ({"cost": {**PRICE, "effective_from": "2099-01-01"}}, "models.m.cost: missing until 2099-01-01"),
        (
            {"price": {**PRICE, "currency": "EUR"}, "cost": {**PRICE, "currency": "USD"}},
            "models.m.cost.currency: USD, but m is priced in EUR",
        ),
        (
            {"targets": [{"provider": "p"}], "cost": PRICE},
            "models.m.cost: cost and targets exclude each other",
        ),
        (
            {"targets": [{"provider": "p", "cost": {"output": 1}}]},
            "models.m.targets[0].cost.input: missing, while output has a price",
        ),
    ],
)
def test_cost_price_is_checked_like_a_price(model: dict[str, Any], problem: str) -> None:
    with pytest.raises(SettingsError) as caught:
        settings_of(model)
    assert problem in str(caught.value)


@pytest.mark.parametrize(("text", "nano"), [("1.37", 1_370_000_000), ("0", 0), ("1000", 1000 * NANO), ("1e-9", 1)])
def test_factor_of_a_group_is_exact(text: str, nano: int) -> None:
    settings = settings_of({}, vip={"price_factor": Decimal(text)})
    assert (settings.groups["vip"].price_factor, settings.groups["default"].price_factor) == (nano, NANO)


@pytest.mark.parametrize("value", [-1, 1001, Decimal("1.0000000001"), Decimal("NaN"), True, "0.5"])
def test_impossible_factor_is_an_error(value: Any) -> None:
    with pytest.raises(SettingsError, match=r"groups\.vip\.price_factor"):
        settings_of({}, vip={"price_factor": value})


def test_factors_that_are_probably_not_meant_are_named() -> None:
    found = settings_of({}, gift={"price_factor": 0}, high={"price_factor": 85}, low={"price_factor": Decimal("0.85")})
    assert [text.split(":")[0] for text in found.warnings] == ["groups.gift.price_factor", "groups.high.price_factor"]

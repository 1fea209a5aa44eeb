"""What a list may say, and what of it is believed."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from gateway.amounts import NANO
from gateway.config.price_settings import free_half
from gateway.discovery.checked_lists import EARLIER, MOST_GONE, CheckedList, checked_amounts, checked_list
from gateway.discovery.stored_lists import NO_LIST, StoredList, StoredModel
from gateway.plugins.model_list import ListedModel, openrouter_price

NOW = 1_796_000_000.0  # 2026-11-30, 00:53 UTC
DAY = 86_400.0


def read(*listed: object, before: StoredList = NO_LIST, now: float = NOW, max_change: float = 10.0) -> CheckedList:
    return checked_list(listed, before, now=now, max_change=max_change, keep=DAY)


def one(price: Any, **more: Any) -> StoredModel:
    [model] = read(ListedModel(name="m", price=price, **more)).found.models
    return model


def priced(amount: str) -> ListedModel:
    return ListedModel(name="m", price={"input": amount, "output": amount})


@pytest.mark.holds("configuration.md#models-that-a-provider-lists-4")
@pytest.mark.parametrize(
    ("price", "reason"),
    [
        ({"input": "-1", "output": "1"}, "'-1' is negative"),
        ({"input": "NaN", "output": "1"}, "'NaN' is no finite number"),
        ({"input": float("inf"), "output": "1"}, "'inf' is no finite number"),
        ({"input": "cheap", "output": "1"}, "'cheap' is no number"),
        ({"input": None, "output": "1"}, "'None' is no number"),
        ({"input": True, "output": "1"}, "'True' is no number"),
        ({"input": [1], "output": "1"}, "'[1]' is no number"),
        ({"input": "1e30", "output": "1"}, "'1e30' is more than 100000"),
        ({"input": "9" * 70, "output": "1"}, "is no number"),
        ({"input": 1, "output": 1, "per_request": 1001}, "'1001' is more than 1000"),
        ({"input": 1, "output": 1, "per_video": 1}, "'per_video': the gateway cannot charge it"),
        ({"input": 0, "output": 1}, "input: 0, while output has a price"),
        ({"input": 1, "output": "1e-30"}, "output: 0.000000001 is less than 0.0005"),
        ({"input": "0.0000025", "output": "0.00001"}, "input: 0.0000025 is less than 0.0005"),  # USD per token
        ("free", "expected a table"),
        ([1], "expected a table"),
    ],
)
def test_a_price_that_is_none_is_named_and_never_used(price: Any, reason: str) -> None:
    model = one(price)
    assert model.problem == "price"
    assert reason in model.detail
    assert model.amounts is None


@pytest.mark.parametrize(
    ("price", "endpoints", "problem"),
    [
        ({"input": 1, "output": 0}, ("chat",), "price"),
        ({"input": 1}, ("chat",), "price"),
        ({"output": 1}, ("chat", "embeddings"), "price"),
        ({"input": 1, "output": 0}, (), ""),  # an embedding, perhaps: the pattern or the name decides
        ({"output": 1}, (), ""),
        ({"input": 1, "output": 0}, ("embeddings",), ""),
        ({"input": 0, "output": 1}, ("speech",), ""),
    ],
)
def test_a_price_that_is_free_by_half_is_none_where_it_may_be_one_of_a_chat(
    price: Any, endpoints: tuple[str, ...], problem: str
) -> None:
    assert one(price, endpoints=endpoints).problem == problem
    assert free_half(checked_amounts(price), ("chat",))  # both places have this one rule


@pytest.mark.parametrize("price", [{"input": 0, "output": "0"}, {"input": "0.0", "output": 0}, {}])
def test_a_model_that_its_list_calls_free_is_not_free(price: Any) -> None:
    model = one(price)
    assert (model.problem, model.amounts) == ("free", None)


def test_a_model_without_a_price_has_none() -> None:
    assert one(None).problem == "no_price"


def test_amounts_are_rounded_up() -> None:
    assert one({"input": "1.0000000001", "output": "1"}).amounts == {"input": NANO + 1, "output": NANO}


@pytest.mark.holds("configuration.md#models-that-a-provider-lists-3")
@pytest.mark.parametrize(
    "name",
    [
        "",
        " ",
        "a b",
        "a\nb",
        "a\x00",
        "é",
        "<script>",
        'a"b',
        "a*",
        "../x",
        "x" * 201,
        "-a",
        "a\u202eb",
        None,
        7,
        ["a"],
    ],
)
def test_names_are_letters_digits_and_a_few_signs(name: Any) -> None:
    found = read(ListedModel(name=name), ListedModel(name="good"))
    assert [model.name for model in found.found.models] == ["good"]
    assert found.left_out == {"name": 1}


@pytest.mark.parametrize(
    "name", ["llama3.2:3b", "@cf/meta/llama-3", "hf.co/x/y:Q4_K_M", "~a/b", "/models/x.gguf", "x" * 200]
)
def test_usual_names_are_taken(name: str) -> None:
    assert not read(ListedModel(name=name)).left_out


def test_a_name_counts_once_and_what_is_no_model_is_left_out() -> None:
    found = read(ListedModel(name="m"), ListedModel(name="m"), {"id": "m"}, None)
    assert found.left_out == {"repeated": 1, "name": 2}


@pytest.mark.parametrize("number", [0, -1, 2**40, "8", 1.5, True, [8], float("nan")])
def test_numbers_that_are_none_are_absent(number: Any) -> None:
    model = one(None, context_window=number, max_output_tokens=number)
    assert (model.context_window, model.max_output_tokens) == (None, None)


def test_unknown_endpoints_are_left_out() -> None:
    assert one(None, endpoints=("chat", "video", 7)).endpoints == ("chat",)


# Changes of a price --------------------------------------------------------------------------------------------------


@pytest.mark.holds(
    "configuration.md#models-that-a-provider-lists-5", "operations/models.md#prices-of-a-list-over-time-1"
)
def test_a_changed_price_has_the_day_of_its_change_and_the_price_before() -> None:
    first = read(priced("1")).found
    later = read(priced("2"), before=first, now=NOW + DAY).found
    assert (first.models[0].since, later.models[0].since) == ("2026-11-30", "2026-12-01")
    assert later.models[0].amounts == {"input": 2 * NANO, "output": 2 * NANO}
    assert [(past.since, past.amounts["input"]) for past in later.models[0].earlier] == [("2026-11-30", NANO)]
    assert read(priced("2"), before=later, now=NOW + 9 * DAY).found == later


@pytest.mark.holds("configuration.md#models-that-a-provider-lists-5")
@pytest.mark.parametrize("amount", ["10.1", "0.09"])
def test_a_price_that_changes_more_than_it_may_is_not_used_nor_is_the_old_one(amount: str) -> None:
    first = read(priced("1")).found
    [model] = read(priced(amount), before=first).found.models
    assert model.problem == "price_changed"
    assert "more than 10 times" in model.detail
    again = read(priced(amount), before=StoredList(models=(model,))).found.models[0]
    assert again.problem == "price_changed"  # another question does not make it right
    assert read(priced("2"), before=StoredList(models=(model,))).found.models[0].problem == ""
    allowed = read(priced(amount), before=StoredList(models=(model,)), max_change=100.0).found.models[0]
    assert allowed.problem == ""
    assert len(allowed.earlier) == 1


def test_a_price_cannot_jump_while_its_model_is_away_or_its_price_is_wrong() -> None:
    first = read(priced("1")).found
    away = read(ListedModel(name="other"), before=first).found
    assert [model.name for model in away.gone] == ["m"]
    assert read(priced("50"), before=away, now=NOW + 60).found.models[0].problem == "price_changed"
    wrong = read(ListedModel(name="m", price={"input": "x", "output": 1}), before=first).found
    assert wrong.models[0].problem == "price"
    assert read(priced("50"), before=wrong).found.models[0].problem == "price_changed"
    assert read(priced("1"), before=wrong).found == first
    forgotten = read(ListedModel(name="other"), before=away, now=NOW + 2 * DAY).found
    assert forgotten.gone == ()


@pytest.mark.holds("configuration.md#models-that-a-provider-lists-5")
@pytest.mark.parametrize("factor", [9, 3, Decimal("0.5")])
def test_a_price_cannot_climb_or_fall_in_many_steps_of_a_day(factor: Any) -> None:
    found, amount = read(priced("1"), now=NOW - DAY).found, Decimal(1)
    for step in range(20):
        amount *= factor
        found = read(priced(str(amount)), before=found, now=NOW + step).found
        used = found.models[0].amounts
        assert used is not None
        assert NANO // 10 <= used["input"] <= 10 * NANO
        assert len(found.models[0].earlier) <= EARLIER
    assert found.models[0].problem


def test_prices_that_flap_within_a_day_do_not_move_the_price_that_the_day_began_with() -> None:
    found = read(priced("1"), now=NOW - DAY).found
    for amount in ("8", "7", "8", "7", "8", "7", "8", "7"):
        found = read(priced(amount), before=found, now=NOW).found
        assert found.models[0].problem == ""
    assert read(priced("60"), before=found, now=NOW).found.models[0].problem == "price_changed"
    assert read(priced("60"), before=found, now=NOW + DAY).found.models[0].problem == ""


@pytest.mark.parametrize(
    ("before", "after"),
    [({"cached_input": 1}, {"cached_input": 0}), ({"per_request": 1}, {}), ({"per_web_search": 1}, {})],
)
def test_an_amount_that_is_charged_no_more_is_a_large_change(before: dict[str, Any], after: dict[str, Any]) -> None:
    first = read(ListedModel(name="m", price={"input": 1, "output": 1, **before})).found
    [model] = read(ListedModel(name="m", price={"input": 1, "output": 1, **after}), before=first).found.models
    assert model.problem == "price_changed"


def test_an_amount_in_whose_place_another_holds_may_go() -> None:
    first = read(ListedModel(name="m", price={"input": 1, "output": 1, "cached_input": "0.5"})).found
    [model] = read(priced("1"), before=first).found.models
    assert model.problem == ""


def test_half_a_price_that_becomes_free_is_a_large_change() -> None:
    first = read(priced("1")).found
    [model] = read(ListedModel(name="m", price={"input": 1, "output": 0}), before=first).found.models
    assert model.problem == "price_changed"


def test_models_that_have_left_are_bounded() -> None:
    many = [ListedModel(name=f"m{number}", price={"input": 1, "output": 1}) for number in range(MOST_GONE + 10)]
    first = read(*many).found
    assert len(read(ListedModel(name="other"), before=first).found.gone) == MOST_GONE


# OpenRouter's form ---------------------------------------------------------------------------------------------------


def test_openrouters_amounts_are_those_of_a_price() -> None:
    pricing = {
        "prompt": "0.00000125",
        "completion": "0.00001",
        "request": "0.01",
        "image": "0.00516",
        "web_search": "0.005",
        "internal_reasoning": "0",
        "input_cache_read": "0.000000125",
        "input_cache_write": "0",
        "audio": "0.000002",
    }
    amounts = one(openrouter_price(pricing)).amounts
    assert amounts == {
        "input": 1_250_000_000,
        "output": 10 * NANO,
        "per_request": NANO // 100,
        "per_web_search": NANO // 200,
        "cached_input": 125_000_000,
        "audio_input": 2 * NANO,
    }


@pytest.mark.parametrize("pricing", [None, "x", [], {}, {"prompt": "1"}, {"input": 1, "output": 2}])
def test_a_price_in_another_form_is_none(pricing: Any) -> None:
    assert openrouter_price(pricing) is None


@pytest.mark.parametrize(
    ("pricing", "problem"),
    [
        ({"prompt": "-1", "completion": "-1"}, "price"),
        ({"prompt": "0", "completion": "0"}, "free"),
        ({"prompt": "x", "completion": "1"}, "price"),
        ({"prompt": "0.000001", "completion": "0.000001", "video": "1"}, "price"),
        ({"prompt": 1e300, "completion": "0.000001"}, "price"),
    ],
)
def test_a_price_of_openrouter_that_cannot_be_charged_is_not_used(pricing: Any, problem: str) -> None:
    assert one(openrouter_price(pricing)).problem == problem

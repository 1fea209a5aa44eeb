"""`POST /v1/moderations`: what goes up, what comes down, what it costs, and every refusal before anything is held."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from msgspec import structs

from gateway import Moderation, Provider
from gateway.accounts.accounts import Accounts
from gateway.amounts import NANO
from gateway.config.loader import parse
from gateway.config.settings import Settings
from gateway.config.toml_reader import SettingsError
from gateway.ids import to_request_id
from gateway.ledger import Ledger
from gateway.runtime.gateway import Gateway
from gateway.schemas.scoring.moderation import CATEGORIES
from gateway.testing import FakeUpstream, Reply
from tests.api.conftest import Client, record_holds
from tests.ledger_lines import last_line
from tests.polling import until

PATH = "/v1/moderations"
IMAGE = {"type": "image_url", "image_url": {"url": "https://images.example/heron.png"}}
TEXT = {"type": "text", "text": "a heron"}


async def released(accounts: Accounts) -> Any:
    """The account once nothing is held; the answer of a failed call may arrive before its settlement is stored."""
    account = await accounts.show("acme")
    return account if account.held == 0 else None


@pytest.fixture
def settings(tmp_path: Path, upstream: FakeUpstream) -> Settings:
    """Models of moderation on the upstream, with and without a price, and one that only chats."""
    up = {"plugin": "openai", "base_url": upstream.base_url, "api_key": "sk-upstream-canary-0123456789"}
    model = {"provider": "up", "model": "upstream-m1", "endpoints": ["moderation"]}
    both = ["chat", "moderation"]
    places = [{"provider": "up", "model": "first"}, {"provider": "other", "model": "second"}]
    return parse(
        {
            "store": {"data_dir": str(tmp_path)},
            "server": {"response_headers": ["cost", "provider"]},
            "providers": {"up": up, "other": up, "fake": {"plugin": "fake"}},
            "groups": {"default": {}, "inner": {}},
            "models": {
                "m1": {**model, "aliases": ["omni-moderation-latest"]},
                "priced": {**model, "price": {"per_request": "0.01"}},
                "both": {**model, "price": {"input": 1000, "output": 1000}, "endpoints": both},
                "small": {**model, "context_window": 10},
                "secret": {**model, "groups": ["inner"]},
                "two": {"targets": places, "strategy": "in_order", "endpoints": ["moderation"]},
                "chat": {"provider": "up", "price": {"input": 1, "output": 1}},
                "made-up": {**model, "provider": "fake"},
            },
        },
        demo=True,
    )


async def moderate(client: Client, given: Any = "a heron", **fields: Any) -> tuple[aiohttp.ClientResponse, Any]:
    headers = fields.pop("headers", {})
    document = {"model": "m1", "input": given, **fields}
    async with client.request(
        "POST", PATH, data=msgspec.json.encode(document), headers={**client.headers, **headers}
    ) as response:
        return response, await response.json()


def result(*, flagged: Any = False, **fields: Any) -> dict[str, Any]:
    return {
        "flagged": flagged,
        "categories": dict.fromkeys(CATEGORIES, flagged),
        "category_scores": dict.fromkeys(CATEGORIES, 0.25),
        "category_applied_input_types": {name: ["text"] for name in CATEGORIES},
        **fields,
    }


def answer(*results: Any) -> Reply:
    return Reply.json({"id": "modr-upstream", "model": "upstream-m1", "results": list(results)})


# The answer ----------------------------------------------------------------------------------------------------------


async def test_text_has_one_result_with_every_category(client: Client, upstream: FakeUpstream) -> None:
    upstream.enqueue(answer(result(flagged=True)))
    response, document = await moderate(client)
    assert response.status == 200
    assert to_request_id(document.pop("id")) == response.headers["x-request-id"]
    assert document == {"model": "m1", "results": [result(flagged=True)]}
    assert response.headers["Content-Type"] == "application/json"
    assert response.headers["x-gateway-provider"] == "up"


@pytest.mark.parametrize(
    ("given", "count"), [("a", 1), ("", 1), (["a", "b", "c"], 3), ([TEXT, TEXT, IMAGE], 1), (["x"] * 2048, 2048)]
)
async def test_each_text_has_a_result_and_a_list_of_parts_has_one(
    client: Client, upstream: FakeUpstream, given: Any, count: int
) -> None:
    response, document = await moderate(client, given)
    assert response.status == 200
    assert len(document["results"]) == count
    assert upstream.seen[0].path == "/v1/moderations"
    assert upstream.seen[0].json == {"model": "upstream-m1", "input": given}


async def test_model_defaults_to_omni_moderation_latest(client: Client, upstream: FakeUpstream) -> None:
    async with client.request("POST", PATH, json={"input": "a heron"}) as response:
        document = await response.json()
    assert (response.status, document["model"]) == (200, "m1")  # of which the default is an alias
    assert upstream.seen[0].json["model"] == "upstream-m1"


@pytest.mark.no_standard  # models before omni-moderation know fewer categories
async def test_categories_that_a_model_does_not_know_are_added(client: Client, upstream: FakeUpstream) -> None:
    old = {"flagged": True, "categories": {"hate": True, "illicit": None}, "category_scores": {"hate": 1, "odd": 0.5}}
    upstream.enqueue(answer(old))
    _, document = await moderate(client)
    [found] = document["results"]
    assert list(found["categories"]) == list(found["category_scores"]) == list(CATEGORIES)
    assert list(found["category_applied_input_types"]) == list(CATEGORIES)
    assert [name for name, flag in found["categories"].items() if flag] == ["hate"]
    assert {name: score for name, score in found["category_scores"].items() if score} == {"hate": 1.0}
    assert {name: kinds for name, kinds in found["category_applied_input_types"].items() if kinds} == {"hate": ["text"]}


async def test_made_up_flags_go_by_words(client: Client) -> None:
    _, document = await moderate(client, ["I will kill it", "a heron"], model="made-up")
    assert [one["flagged"] for one in document["results"]] == [True, False]
    assert document["results"][0]["categories"]["violence"] is True
    bad = {"type": "image_url", "image_url": {"url": "https://images.example/violence.png"}}
    _, document = await moderate(client, [TEXT, bad], model="made-up")
    [one] = document["results"]
    assert one["categories"]["violence"] is True
    assert one["category_applied_input_types"]["violence"] == ["text", "image"]
    assert one["category_applied_input_types"]["hate"] == ["text"]


# Money ---------------------------------------------------------------------------------------------------------------


@pytest.mark.holds("prices.md#what-is-charged-21")
@pytest.mark.parametrize(("model", "cost"), [("m1", 0), ("both", 0), ("priced", NANO // 100)])
async def test_moderation_costs_what_its_price_says_of_a_call(
    client: Client, ledger: Ledger, accounts: Accounts, gateway: Gateway, model: str, cost: int
) -> None:
    holds = record_holds(gateway)
    response, _ = await moderate(client, "a heron " * 100, model=model)
    line = await until(lambda: last_line(ledger, "acme", response.headers["x-request-id"]))
    assert line.amount == -cost
    assert [hold.amount for hold in holds] == [cost]
    assert not line.meta.get("estimated")
    assert (await until(lambda: released(accounts))).balance == 10 * NANO - cost


async def test_same_idempotency_key_runs_once_and_is_answered_with_the_same_bytes(
    client: Client, upstream: FakeUpstream, accounts: Accounts
) -> None:
    headers = {"Idempotency-Key": "order-1"}
    _, document = await moderate(client, model="priced", headers=headers)
    second, again = await moderate(client, model="priced", headers=headers)
    assert second.headers["Idempotent-Replayed"] == "true"
    assert again == document
    assert len(upstream.seen) == 1
    assert (await until(lambda: released(accounts))).balance == 10 * NANO - NANO // 100


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"endpoints": ["chat", "moderation"]}, "missing: a model has a price"),
        ({"endpoints": ["moderation"], "price": {"input": 1}}, "moderation would cost nothing: name per_request"),
        ({"endpoints": ["moderation"], "price": {"per_request": 1}}, ""),
        ({"endpoints": ["moderation"]}, ""),
    ],
)
def test_only_a_model_that_serves_nothing_else_needs_no_price(
    tmp_path: Path, fields: dict[str, Any], problem: str
) -> None:
    document = {
        "store": {"data_dir": str(tmp_path)},
        "providers": {"fake": {"plugin": "fake"}},
        "models": {"m": {"provider": "fake", **fields}},
    }
    if problem:
        with pytest.raises(SettingsError, match=problem):
            parse(document, demo=True)
    else:
        parse(document, demo=True)


# Upstreams that fail -------------------------------------------------------------------------------------------------


@pytest.mark.no_standard
@pytest.mark.parametrize(
    "broken",
    [
        answer(),
        answer(result(), result()),
        answer(result(flagged="yes")),
        answer(result(categories=5)),
        answer(result(category_scores={"hate": 1.5})),
        answer(result(category_scores={"hate": -0.5})),
        answer({"flagged": True}),
        Reply.json({"object": "list"}),
    ],
)
async def test_invalid_result_is_an_invalid_response_and_costs_nothing(
    client: Client, upstream: FakeUpstream, accounts: Accounts, broken: Reply
) -> None:
    upstream.answer = lambda _: broken
    response, document = await moderate(client, model="priced")
    assert response.status == 502
    assert document["error"]["code"] == "upstream_invalid_response"
    account = await until(lambda: released(accounts))
    assert (account.balance, account.held) == (10 * NANO, 0)


async def test_invalid_answer_of_one_target_is_retried_on_the_next(client: Client, upstream: FakeUpstream) -> None:
    upstream.enqueue(answer(result(), result()), answer(result()))
    response, _ = await moderate(client, model="two")
    assert response.status == 200
    assert [seen.json["model"] for seen in upstream.seen] == ["first", "second"]


# Refusals ------------------------------------------------------------------------------------------------------------

BAD = [
    ({}, 400, "missing_required_parameter", "input"),
    ({"input": None}, 400, "invalid_type", "input"),
    ({"input": []}, 400, "empty_array", "input"),
    ({"input": 5}, 400, "invalid_type", "input"),
    ({"input": {"type": "text", "text": "a"}}, 400, "invalid_type", "input"),
    ({"input": ["a", 1]}, 400, "invalid_type", "input[1]"),
    ({"input": ["a", TEXT]}, 400, "invalid_type", "input[1]"),
    ({"input": [TEXT, "a"]}, 400, "invalid_type", "input[1]"),
    ({"input": [{"type": "smell"}]}, 400, "invalid_value", "input[0].type"),
    ({"input": [{"type": "text"}]}, 400, "missing_required_parameter", "input[0].text"),
    ({"input": [{"type": "image_url", "image_url": "x"}]}, 400, "invalid_type", "input[0].image_url"),
    ({"input": [{"type": "image_url", "image_url": {"url": ""}}]}, 400, "empty_string", "input[0].image_url.url"),
    ({"input": ["x"] * 2049}, 400, "array_above_max_length", "input"),
    ({"input": "a", "model": ""}, 400, "empty_string", "model"),
    ({"input": "a", "model": "chat"}, 400, "unsupported_parameter", "model"),
    ({"input": "a", "model": "nowhere"}, 403, "model_not_permitted", "model"),
    ({"input": "a", "model": "secret"}, 403, "model_not_permitted", "model"),
    ({"input": ["a", "x" * 100], "model": "small"}, 400, "context_length_exceeded", "input"),
]


@pytest.mark.parametrize(("fields", "status", "code", "param"), BAD)
async def test_invalid_input_gets_its_error_and_nothing_is_held_or_sent(
    client: Client,
    upstream: FakeUpstream,
    gateway: Gateway,
    fields: dict[str, Any],
    status: int,
    code: str,
    param: str,
) -> None:
    holds = record_holds(gateway)
    async with client.request("POST", PATH, json={"model": "m1", **fields}) as response:
        error = (await response.json())["error"]
    assert holds == []
    assert (response.status, error["code"], error["param"]) == (status, code, param), error
    assert upstream.seen == []


class Reader(Provider, Moderation):
    """A dialect that takes text and nothing else."""

    name = "reader"
    moderates_images = False
    moderation_fields = None

    async def moderate(self, request: Any, target: Any) -> Any:
        raise AssertionError("never called")


async def test_images_are_refused_by_a_provider_of_texts(client: Client, gateway: Gateway) -> None:
    [candidate] = gateway.router.resolve(gateway.catalog.models["m1"], Moderation)
    reader = structs.replace(candidate, provider=Reader(Reader.Options(), candidate.provider.upstream))
    gateway.router.resolve = lambda *_: [reader]  # type: ignore[method-assign]
    response, document = await moderate(client, [TEXT, IMAGE])
    error = document["error"]
    assert (response.status, error["code"], error["param"]) == (400, "unsupported_value", "input")


class TestWithoutDefault:
    """A gateway without a model of that name."""

    @pytest.fixture
    def settings(self, tmp_path: Path) -> Settings:
        return parse(
            {
                "store": {"data_dir": str(tmp_path)},
                "providers": {"fake": {"plugin": "fake"}},
                "models": {"m": {"provider": "fake", "endpoints": ["moderation"]}},
            },
            demo=True,
        )

    async def test_model_is_missing(self, client: Client) -> None:
        async with client.request("POST", PATH, json={"input": "a"}) as response:
            error = (await response.json())["error"]
        assert (response.status, error["code"], error["param"]) == (400, "missing_required_parameter", "model")

"""`POST /v1/rerank`: what goes up, what comes down, what is charged, and every refusal before anything is held."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from gateway.accounts.accounts import Accounts
from gateway.amounts import NANO
from gateway.config.loader import parse
from gateway.config.settings import Settings
from gateway.ids import to_request_id
from gateway.ledger import Ledger
from gateway.runtime.gateway import Gateway
from gateway.testing import FakeUpstream, Reply
from tests.api.conftest import Client, record_holds
from tests.ledger_lines import last_line
from tests.polling import until

PATH = "/v1/rerank"
TOKEN = NANO // 1000  # at 1000 for a million
UNIT = 2 * NANO // 1000
QUERY = "grey herons"
DOCUMENTS = ["the price of tin", "five grey herons", "a grey morning"]


async def released(accounts: Accounts) -> Any:
    """The account once nothing is held; the answer of a failed call may arrive before its settlement is stored."""
    account = await accounts.show("acme")
    return account if account.held == 0 else None


@pytest.fixture
def settings(tmp_path: Path, upstream: FakeUpstream) -> Settings:
    """Rerankers on the upstream, one for each unit of a price, and one that only chats."""
    key = "sk-upstream-canary-0123456789"
    up: dict[str, Any] = {"plugin": "openai", "base_url": upstream.base_url, "api_key": key}
    by_token = {"provider": "up", "model": "upstream-r1", "price": {"input": 1000}, "endpoints": ["rerank"]}
    by_unit = {**by_token, "price": {"per_search_unit": "0.002"}}
    places = [{"provider": "up", "model": "first"}, {"provider": "other", "model": "second"}]
    return parse(
        {
            "store": {"data_dir": str(tmp_path)},
            "server": {"response_headers": ["cost", "provider"]},
            "providers": {
                "up": {**up, "forward_params": ["truncation"]},
                "other": up,
                "voyage": {**up, "preset": "voyage"},
                "cohere": {"plugin": "cohere", "base_url": upstream.url, "api_key": key},
                "fake": {"plugin": "fake"},
            },
            "groups": {"default": {}, "inner": {}},
            "models": {
                "r1": by_token,
                "units": by_unit,
                "called": {**by_token, "price": {"per_request": "0.01"}},
                "voyage": {**by_token, "provider": "voyage"},
                "cohere": {**by_unit, "provider": "cohere"},
                "small": {**by_token, "context_window": 10},
                "secret": {**by_token, "groups": ["inner"]},
                "two": {"targets": places, "strategy": "in_order", "price": {"input": 1000}, "endpoints": ["rerank"]},
                "chat": {"provider": "up", "price": {"input": 1, "output": 1}},
                "lonely": {**by_token, "fallbacks": ["chat"]},
                "made-up": {**by_token, "provider": "fake"},
            },
        },
        demo=True,
    )


async def rerank(
    client: Client, documents: Any = None, *, path: str = PATH, **fields: Any
) -> tuple[aiohttp.ClientResponse, Any]:
    headers = fields.pop("headers", {})
    document = {"model": "r1", "query": QUERY, "documents": documents or DOCUMENTS, **fields}
    async with client.request(
        "POST", path, data=msgspec.json.encode(document), headers={**client.headers, **headers}
    ) as response:
        return response, await response.json()


def answer(*scores: tuple[Any, Any], **fields: Any) -> Reply:
    """Results of these indices and scores; seven tokens are counted."""
    results = [{"index": index, "relevance_score": score} for index, score in scores]
    return Reply.json({"results": results, "usage": {"prompt_tokens": 7, "total_tokens": 7}, **fields})


def cohere_answer(*scores: tuple[Any, Any], **billed: Any) -> Reply:
    results = [{"index": index, "relevance_score": score} for index, score in scores]
    return Reply.json({"id": "u", "results": results, "meta": {"billed_units": billed}})


async def line_of(ledger: Ledger, response: aiohttp.ClientResponse) -> Any:
    return await until(lambda: last_line(ledger, "acme", response.headers["x-request-id"]))


# The answer ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/v1/rerank", "/v2/rerank", "/rerank"])
async def test_documents_come_back_by_falling_score(client: Client, upstream: FakeUpstream, path: str) -> None:
    upstream.enqueue(answer((0, 0.1), (1, 0.9), (2, 0.5)))
    response, document = await rerank(client, path=path)
    assert response.status == 200
    assert to_request_id(document.pop("id")) == response.headers["x-request-id"]
    assert document == {
        "object": "list",
        "results": [
            {"index": 1, "relevance_score": 0.9},
            {"index": 2, "relevance_score": 0.5},
            {"index": 0, "relevance_score": 0.1},
        ],
        "model": "r1",
        "usage": {"prompt_tokens": 7, "total_tokens": 7},
        "meta": {"billed_units": {"search_units": 1}},
    }
    assert response.headers["Content-Type"] == "application/json"
    assert response.headers["x-gateway-provider"] == "up"
    assert "x-gateway-estimated" not in response.headers


async def test_results_of_one_score_keep_the_order_of_the_documents(client: Client, upstream: FakeUpstream) -> None:
    upstream.enqueue(answer((2, 0.5), (0, 0.5), (1, 0.5)))
    _, document = await rerank(client)
    assert [result["index"] for result in document["results"]] == [0, 1, 2]


@pytest.mark.parametrize(("top_n", "count"), [(1, 1), (3, 3), (99, 3), (None, 3)])
async def test_no_more_than_top_n_results_come_back_from_an_upstream_that_returns_all(
    client: Client, upstream: FakeUpstream, top_n: int | None, count: int
) -> None:
    upstream.enqueue(answer((0, 0.1), (1, 0.9), (2, 0.5)))
    _, document = await rerank(client, top_n=top_n)
    assert [result["index"] for result in document["results"]] == [1, 2, 0][:count]


async def test_texts_come_back_if_requested_whatever_the_upstream_returns(
    client: Client, upstream: FakeUpstream
) -> None:
    results = [{"index": 1, "relevance_score": 0.9, "document": {"text": "another"}}]
    upstream.enqueue(Reply.json({"results": results, "usage": {"total_tokens": 5}}))
    documents = ["a\u00e9", {"text": 'five "grey" herons', "title": "birds"}]
    _, document = await rerank(client, documents, top_n=1, return_documents=True)
    assert document["results"] == [{"index": 1, "relevance_score": 0.9, "document": {"text": 'five "grey" herons'}}]
    assert upstream.seen[0].json["documents"] == ["a\u00e9", 'five "grey" herons']


async def test_thousand_documents_with_their_texts_come_back(client: Client) -> None:
    texts = [f"document {number}" for number in range(1000)]
    response, document = await rerank(client, texts, model="made-up", return_documents=True)
    assert response.status == 200
    assert sorted(result["index"] for result in document["results"]) == list(range(1000))
    assert all(result["document"]["text"] == texts[result["index"]] for result in document["results"])


async def test_upstream_gets_its_own_model_name_and_the_operators_key(client: Client, upstream: FakeUpstream) -> None:
    response, _ = await rerank(client, top_n=2, return_documents=True, truncation=True, api_base="http://evil")
    seen = upstream.seen[0]
    assert seen.path == "/v1/rerank"
    assert seen.json == {
        "model": "upstream-r1", "query": QUERY, "documents": DOCUMENTS, "top_n": 2, "truncation": True
    }  # fmt: skip
    assert seen.headers["authorization"] == "Bearer sk-upstream-canary-0123456789"
    assert response.headers["x-gateway-dropped-params"] == "api_base"


async def test_limit_per_document_goes_to_cohere_and_is_named_where_it_is_left_out(
    client: Client, upstream: FakeUpstream
) -> None:
    response, _ = await rerank(client, max_tokens_per_doc=100)
    assert response.headers["x-gateway-dropped-params"] == "max_tokens_per_doc"
    assert "max_tokens_per_doc" not in upstream.seen[0].json
    upstream.enqueue(cohere_answer((0, 0.5), search_units=1))
    response, _ = await rerank(client, model="cohere", max_tokens_per_doc=100, top_n=50)
    assert "x-gateway-dropped-params" not in response.headers
    assert upstream.seen[1].path == "/v2/rerank"
    assert upstream.seen[1].json == {
        "model": "upstream-r1", "query": QUERY, "documents": DOCUMENTS, "top_n": 3, "max_tokens_per_doc": 100
    }  # fmt: skip


async def test_voyage_is_asked_and_read_in_its_own_words(
    client: Client, upstream: FakeUpstream, ledger: Ledger
) -> None:
    data = [{"index": 1, "relevance_score": 0.9}, {"index": 0, "relevance_score": 0.1}]
    upstream.enqueue(Reply.json({"object": "list", "data": data, "model": "m", "usage": {"total_tokens": 26}}))
    response, document = await rerank(client, model="voyage", top_n=2, truncation=False)
    assert upstream.seen[0].json == {
        "model": "upstream-r1", "query": QUERY, "documents": DOCUMENTS, "top_k": 2, "truncation": False
    }  # fmt: skip
    assert [result["index"] for result in document["results"]] == [1, 0]
    assert (await line_of(ledger, response)).amount == -26 * TOKEN


async def test_made_up_ranking_goes_by_common_words(client: Client) -> None:
    response, document = await rerank(client, model="made-up")
    assert [(one["index"], one["relevance_score"]) for one in document["results"]] == [(1, 1.0), (2, 0.5), (0, 0.0)]
    assert document["usage"]["prompt_tokens"] == 16  # six words of the query, ten of the documents
    assert "x-gateway-estimated" not in response.headers


# Money ---------------------------------------------------------------------------------------------------------------


@pytest.mark.holds("prices.md#what-is-charged-20")
async def test_charge_by_token_is_the_upstreams_count(
    client: Client, upstream: FakeUpstream, ledger: Ledger, accounts: Accounts
) -> None:
    upstream.enqueue(answer((0, 0.5)))
    response, _ = await rerank(client)
    line = await line_of(ledger, response)
    assert line.amount == -7 * TOKEN
    assert line.meta["usage"] == {"in_text": 7, "search_units": 1}
    assert not line.meta.get("estimated")
    assert response.headers["x-gateway-cost"] == "0.007"
    account = await until(lambda: released(accounts))
    assert (account.balance, account.held) == (10 * NANO - 7 * TOKEN, 0)


@pytest.mark.holds("prices.md#what-is-charged-12")
async def test_charge_by_search_unit_is_the_upstreams_count(
    client: Client, upstream: FakeUpstream, ledger: Ledger
) -> None:
    upstream.enqueue(cohere_answer((0, 0.5), search_units=2.0))
    response, document = await rerank(client, ["x"] * 150, model="cohere")
    line = await line_of(ledger, response)
    assert line.amount == -2 * UNIT
    assert document["meta"] == {"billed_units": {"search_units": 2}}
    assert not line.meta.get("estimated")
    assert "x-gateway-estimated" not in response.headers


async def test_charge_by_request_needs_no_count(client: Client, upstream: FakeUpstream, ledger: Ledger) -> None:
    upstream.enqueue(answer((0, 0.5), usage=None))
    response, _ = await rerank(client, model="called")
    assert (await line_of(ledger, response)).amount == -NANO // 100


@pytest.mark.parametrize(
    "usage", [None, {}, {"prompt_tokens": -5}, {"prompt_tokens": 10**18, "total_tokens": 10**18}, "many"]
)
async def test_missing_or_impossible_usage_is_estimated_and_marked(
    client: Client, upstream: FakeUpstream, ledger: Ledger, usage: Any
) -> None:
    upstream.enqueue(answer((0, 0.5), usage=usage))
    response, document = await rerank(client, ["x" * 40, "y" * 80])
    assert response.headers["x-gateway-estimated"] == "true"
    assert document["usage"] == {"prompt_tokens": 36, "total_tokens": 36}  # the query has 3, and is read twice
    line = await line_of(ledger, response)
    assert line.amount == -36 * TOKEN
    assert line.meta["estimated"]


@pytest.mark.holds("prices.md#estimates-21")
@pytest.mark.parametrize(
    ("documents", "units"),
    [(["x"], 1), (["x"] * 100, 1), (["x"] * 101, 2), (["x" * 100_000], 1), (["x" * 2100] * 100, 2)],
)
async def test_search_units_that_the_upstream_does_not_count_are_estimated(
    client: Client, upstream: FakeUpstream, ledger: Ledger, documents: list[str], units: int
) -> None:
    upstream.enqueue(answer((0, 0.5)))
    response, document = await rerank(client, documents, model="units")
    assert response.headers["x-gateway-estimated"] == "true"
    assert document["meta"]["billed_units"]["search_units"] == units
    assert (await line_of(ledger, response)).amount == -units * UNIT


@pytest.mark.holds("prices.md#counts-of-upstreams-8")
async def test_count_above_what_the_pairs_can_hold_is_clipped(
    client: Client, upstream: FakeUpstream, ledger: Ledger
) -> None:
    upstream.enqueue(answer((0, 0.5), usage={"prompt_tokens": 900_000, "total_tokens": 900_000}))
    response, document = await rerank(client)
    line = await line_of(ledger, response)
    body = msgspec.json.encode({"model": "r1", "query": QUERY, "documents": DOCUMENTS})
    most = len(body) + 2 * len(QUERY) + 4096
    assert line.amount == -most * TOKEN
    assert line.meta["estimated"]
    assert document["usage"]["prompt_tokens"] == most


async def test_query_that_is_read_with_each_document_is_believed(
    client: Client, upstream: FakeUpstream, ledger: Ledger
) -> None:
    query, documents = "word " * 2000, ["x"] * 10
    usage = {"prompt_tokens": 20_100, "total_tokens": 20_100}  # more than the bytes of the body
    upstream.enqueue(answer((0, 0.5), usage=usage))
    response, _ = await rerank(client, documents, query=query, model="called")
    line = await line_of(ledger, response)
    assert line.meta["usage"]["in_text"] == 20_100
    assert not line.meta.get("estimated")


@pytest.mark.holds("prices.md#counts-of-upstreams-8")
async def test_search_units_above_what_was_held_are_clipped(
    client: Client, upstream: FakeUpstream, ledger: Ledger
) -> None:
    upstream.enqueue(cohere_answer((0, 0.5), search_units=900))
    response, document = await rerank(client, model="cohere")
    line = await line_of(ledger, response)
    assert line.amount == -UNIT
    assert line.meta["estimated"]
    assert response.headers["x-gateway-estimated"] == "true"
    assert document["meta"]["billed_units"]["search_units"] == 1


@pytest.mark.parametrize(
    ("model", "documents", "hold"),
    [("r1", ["x" * 40] * 2, 33 * TOKEN), ("units", ["x"] * 101, 2 * UNIT), ("called", ["x"], NANO // 100)],
)
async def test_hold_is_the_upper_estimate(
    client: Client, upstream: FakeUpstream, accounts: Accounts, model: str, documents: list[str], hold: int
) -> None:
    upstream.answer = lambda _: Reply.silence()
    async with aiohttp.ClientSession() as session:
        body = {"model": model, "query": QUERY, "documents": documents}
        pending = session.post(client.base_url + PATH, json=body, headers=client.headers)
        task = asyncio.ensure_future(pending.__aenter__())
        await upstream.wait_started()
        assert (await accounts.show("acme")).held == hold
        task.cancel()


async def test_same_idempotency_key_runs_once_and_is_answered_with_the_same_bytes(
    client: Client, upstream: FakeUpstream, accounts: Accounts
) -> None:
    headers = {"Idempotency-Key": "order-1"}
    upstream.enqueue(answer((0, 0.5)))
    _, document = await rerank(client, headers=headers)
    second, again = await rerank(client, headers=headers)
    assert second.headers["Idempotent-Replayed"] == "true"
    assert again == document
    assert len(upstream.seen) == 1
    account = await until(lambda: released(accounts))
    assert account.balance == 10 * NANO - 7 * TOKEN


# Upstreams that fail -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "broken",
    [
        answer(),
        answer((0, 0.5), (0, 0.4)),
        answer((3, 0.5)),
        answer((-1, 0.5)),
        answer((0, 0.1), (1, 0.1), (2, 0.1), (2, 0.1)),
        answer((0, "high")),
        answer((0, True)),
        answer((0, None)),
        answer(("0", 0.5)),
        answer((0.5, 0.5)),
        Reply(headers={"Content-Type": "application/json"}, body=b'{"results":[{"index":0,"relevance_score":1e999}]}'),
        Reply(headers={"Content-Type": "application/json"}, body=b'{"results":[{"index":0,"relevance_score":NaN}]}'),
        Reply.json({"results": None}),
        Reply.json({"object": "list"}),
    ],
)
@pytest.mark.no_standard
async def test_invalid_ranking_is_an_invalid_response_and_costs_nothing(
    client: Client, upstream: FakeUpstream, accounts: Accounts, broken: Reply
) -> None:
    upstream.answer = lambda _: broken
    response, document = await rerank(client)
    assert response.status == 502
    assert document["error"]["code"] == "upstream_invalid_response"
    account = await until(lambda: released(accounts))
    assert (account.balance, account.held) == (10 * NANO, 0)


async def test_invalid_answer_of_one_target_is_retried_on_the_next_and_charged_once(
    client: Client, upstream: FakeUpstream, ledger: Ledger
) -> None:
    upstream.enqueue(answer((9, 0.5)), answer((0, 0.5)))
    response, _ = await rerank(client, model="two")
    assert response.status == 200
    assert [seen.json["model"] for seen in upstream.seen] == ["first", "second"]
    line = await line_of(ledger, response)
    assert line.amount == -7 * TOKEN
    assert line.meta["attempts"] == 2


async def test_fallback_without_rerank_is_never_called(client: Client, upstream: FakeUpstream) -> None:
    upstream.answer = lambda _: Reply.error(500, "broken")
    response, _ = await rerank(client, model="lonely")
    assert response.status == 502
    assert {seen.json["model"] for seen in upstream.seen} == {"upstream-r1"}


@pytest.mark.parametrize(
    ("reply", "status", "code", "param"),
    [
        (Reply.error(400, "maximum context length is 512 tokens"), 400, "context_length_exceeded", "documents"),
        (Reply.error(401, "bad key sk-upstream-canary-0123456789"), 502, "upstream_auth_error", None),
        (Reply.error(404, "no such path"), 502, "upstream_error", None),
    ],
)
async def test_upstream_errors_are_mapped_and_cost_nothing(
    client: Client, upstream: FakeUpstream, accounts: Accounts, reply: Reply, status: int, code: str, param: str | None
) -> None:
    upstream.answer = lambda _: reply
    response, document = await rerank(client)
    error = document["error"]
    assert (response.status, error["code"], error["param"]) == (status, code, param)
    assert "canary" not in str(document)
    account = await until(lambda: released(accounts))
    assert (account.balance, account.held) == (10 * NANO, 0)


# Refusals ------------------------------------------------------------------------------------------------------------

GOOD = {"query": "a", "documents": ["b"]}
BAD = [
    ({"documents": ["b"]}, 400, "missing_required_parameter", "query"),
    ({"query": "a"}, 400, "missing_required_parameter", "documents"),
    ({**GOOD, "query": ""}, 400, "empty_string", "query"),
    ({**GOOD, "query": ["a"]}, 400, "invalid_type", "query"),
    ({**GOOD, "documents": []}, 400, "empty_array", "documents"),
    ({**GOOD, "documents": "b"}, 400, "invalid_type", "documents"),
    ({**GOOD, "documents": ["b", 1]}, 400, "invalid_type", "documents[1]"),
    ({**GOOD, "documents": [{"title": "b"}]}, 400, "missing_required_parameter", "documents[0].text"),
    ({**GOOD, "documents": [{"text": 1}]}, 400, "invalid_type", "documents[0].text"),
    ({**GOOD, "documents": ["b"] * 1001}, 400, "array_above_max_length", "documents"),
    ({**GOOD, "top_n": 0}, 400, "integer_below_min_value", "top_n"),
    ({**GOOD, "top_n": "1"}, 400, "invalid_type", "top_n"),
    ({**GOOD, "top_n": 1.5}, 400, "invalid_type", "top_n"),
    ({**GOOD, "return_documents": "yes"}, 400, "invalid_type", "return_documents"),
    ({**GOOD, "max_tokens_per_doc": 0}, 400, "integer_below_min_value", "max_tokens_per_doc"),
    ({**GOOD, "model": ""}, 400, "empty_string", "model"),
    ({**GOOD, "model": None}, 400, "invalid_type", "model"),
    ({**GOOD, "model": "chat"}, 400, "unsupported_parameter", "model"),
    ({**GOOD, "model": "nowhere"}, 403, "model_not_permitted", "model"),
    ({**GOOD, "model": "secret"}, 403, "model_not_permitted", "model"),
    ({**GOOD, "query": "x" * 100, "model": "small"}, 400, "context_length_exceeded", "query"),
]


@pytest.mark.parametrize(("fields", "status", "code", "param"), BAD)
async def test_invalid_input_gets_its_error_and_nothing_is_held_or_sent(
    client: Client,
    upstream: FakeUpstream,
    accounts: Accounts,
    gateway: Gateway,
    fields: dict[str, Any],
    status: int,
    code: str,
    param: str,
) -> None:
    holds = record_holds(gateway)
    async with client.request("POST", PATH, json={"model": "r1", **fields}) as response:
        error = (await response.json())["error"]
    assert holds == []
    assert (response.status, error["code"], error["param"]) == (status, code, param), error
    assert error["message"]
    account = await until(lambda: released(accounts))
    assert (account.balance, account.held) == (10 * NANO, 0)
    assert upstream.seen == []

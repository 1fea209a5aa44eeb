"""`POST /v1/embeddings`: what goes up, what comes down, what is charged, and every refusal before anything is held."""

from __future__ import annotations

import asyncio
import struct
from base64 import b64decode
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from gateway import Embeddings, Provider
from gateway.accounts.accounts import Accounts
from gateway.amounts import NANO
from gateway.config.loader import parse
from gateway.config.settings import Settings
from gateway.ledger import Ledger
from gateway.runtime.gateway import Gateway
from gateway.testing import FakeUpstream, Reply
from tests.api.conftest import Client, record_holds
from tests.ledger_lines import last_line
from tests.polling import until

PATH = "/v1/embeddings"
PRICE = {"input": 1000}
TOKEN = NANO // 1000


async def released(accounts: Accounts) -> Any:
    """The account once nothing is held; the answer of a failed call may arrive before its settlement is stored."""
    account = await accounts.show("acme")
    return account if account.held == 0 else None


@pytest.fixture
def settings(tmp_path: Path, upstream: FakeUpstream) -> Settings:
    """Embedding models on the upstream, on two of its names, and one that only chats."""
    model = {"provider": "up", "model": "upstream-e1", "price": PRICE, "endpoints": ["embeddings"]}
    places = [{"provider": "up", "model": "first"}, {"provider": "other", "model": "second"}]
    up: dict[str, Any] = {"plugin": "openai", "base_url": upstream.base_url, "api_key": "sk-upstream-canary-0123456789"}
    up["forward_params"] = ["input_type"]
    return parse(
        {
            "store": {"data_dir": str(tmp_path)},
            "server": {"response_headers": ["cost", "provider"]},
            "providers": {"up": up, "other": up, "fake": {"plugin": "fake"}},
            "groups": {"default": {}, "inner": {}},
            "models": {
                "e1": model,
                "small": {**model, "context_window": 10},
                "secret": {**model, "groups": ["inner"]},
                "two": {"targets": places, "strategy": "in_order", "price": PRICE, "endpoints": ["embeddings"]},
                "chat": {"provider": "up", "price": {"input": 1, "output": 1}},
                "lonely": {**model, "fallbacks": ["chat"]},
                "made-up": {"provider": "fake", "price": PRICE, "endpoints": ["embeddings"]},
            },
        },
        demo=True,
    )


async def embed(client: Client, given: Any = "one two three", **fields: Any) -> tuple[aiohttp.ClientResponse, Any]:
    headers = fields.pop("headers", {})
    document = {"model": "e1", "input": given, **fields}
    async with client.request(
        "POST", PATH, data=msgspec.json.encode(document), headers={**client.headers, **headers}
    ) as response:
        return response, await response.json()


def answer(*vectors: Any, **fields: Any) -> Reply:
    data = [{"object": "embedding", "index": index, "embedding": vector} for index, vector in enumerate(vectors)]
    return Reply.json({"object": "list", "data": data, "usage": {"prompt_tokens": 7, "total_tokens": 7}, **fields})


# The answer ----------------------------------------------------------------------------------------------------------


async def test_text_becomes_a_list_with_one_vector_the_public_model_and_usage(
    client: Client, upstream: FakeUpstream
) -> None:
    upstream.enqueue(answer([0.5, -0.25]))
    response, document = await embed(client)
    assert response.status == 200
    assert document == {
        "object": "list",
        "data": [{"object": "embedding", "index": 0, "embedding": [0.5, -0.25]}],
        "model": "e1",
        "usage": {"prompt_tokens": 7, "total_tokens": 7},
    }
    assert response.headers["Content-Type"] == "application/json"
    assert response.headers["x-gateway-provider"] == "up"
    assert "x-gateway-estimated" not in response.headers


@pytest.mark.parametrize(
    ("given", "count"), [(["a", "b", "c"], 3), ([1, 2, 3], 1), ([[1, 2], [3]], 2), (["x"] * 2048, 2048)]
)
async def test_vectors_keep_the_order_of_the_inputs(
    client: Client, upstream: FakeUpstream, given: Any, count: int
) -> None:
    _, document = await embed(client, given)
    assert [item["index"] for item in document["data"]] == list(range(count))
    assert upstream.seen[0].json["input"] == given


@pytest.mark.parametrize("theirs", ["float", "base64"])
@pytest.mark.parametrize("ours", ["float", "base64", None])
async def test_vectors_of_either_encoding_become_the_requested_encoding(
    client: Client, upstream: FakeUpstream, theirs: str, ours: str | None
) -> None:
    packed = "AAAAPwAAgL4="  # 0.5, -0.25
    upstream.enqueue(answer([0.5, -0.25] if theirs == "float" else packed))
    _, document = await embed(client, encoding_format=ours)
    vector = document["data"][0]["embedding"]
    assert vector == (packed if ours == "base64" else [0.5, -0.25])
    if ours == "base64":
        assert struct.unpack("<2f", b64decode(vector)) == (0.5, -0.25)


async def test_vectors_out_of_order_are_put_in_order(client: Client, upstream: FakeUpstream) -> None:
    data = [{"index": 1, "embedding": [1.0]}, {"index": 0, "embedding": [0.0]}]
    upstream.enqueue(Reply.json({"data": data, "usage": {"prompt_tokens": 2, "total_tokens": 2}}))
    _, document = await embed(client, ["a", "b"])
    assert [item["embedding"] for item in document["data"]] == [[0.0], [1.0]]


async def test_upstream_gets_every_field_its_own_model_name_and_the_operators_key(
    client: Client, upstream: FakeUpstream
) -> None:
    response, _ = await embed(client, dimensions=3, user="u", input_type="query", api_base="http://evil")
    seen = upstream.seen[0]
    assert seen.path == "/v1/embeddings"
    assert seen.json == {
        "model": "upstream-e1", "input": "one two three", "dimensions": 3, "user": "u", "input_type": "query"
    }  # fmt: skip
    assert seen.headers["authorization"] == "Bearer sk-upstream-canary-0123456789"
    assert response.headers["x-gateway-dropped-params"] == "api_base"


async def test_fake_vectors_have_length_one_and_the_requested_dimensions(client: Client) -> None:
    _, document = await embed(client, ["a", "b", "a"], model="made-up", dimensions=12)
    first, second, again = (item["embedding"] for item in document["data"])
    assert len(first) == 12
    assert sum(number * number for number in first) == pytest.approx(1.0)
    assert first == again != second


# Money ---------------------------------------------------------------------------------------------------------------


async def test_charge_is_the_upstreams_usage_at_the_models_price(
    client: Client, upstream: FakeUpstream, ledger: Ledger, accounts: Accounts
) -> None:
    upstream.enqueue(answer([1.0]))
    response, _ = await embed(client)
    line = await until(lambda: last_line(ledger, "acme", response.headers["x-request-id"]))
    assert line.amount == -7 * TOKEN
    assert line.meta["usage"] == {"in_text": 7}
    assert response.headers["x-gateway-cost"] == "0.007"
    account = await until(lambda: released(accounts))
    assert (account.balance, account.held) == (10 * NANO - 7 * TOKEN, 0)


@pytest.mark.parametrize(
    "usage", [None, {}, {"prompt_tokens": -5}, {"prompt_tokens": 10**18, "total_tokens": 10**18}, "many"]
)
async def test_missing_or_impossible_usage_is_estimated_and_marked(
    client: Client, upstream: FakeUpstream, ledger: Ledger, usage: Any
) -> None:
    upstream.enqueue(answer([1.0], usage=usage))
    response, document = await embed(client, "x" * 40)
    assert response.headers["x-gateway-estimated"] == "true"
    assert document["usage"] == {"prompt_tokens": 10, "total_tokens": 10}
    line = await until(lambda: last_line(ledger, "acme", response.headers["x-request-id"]))
    assert line.amount == -10 * TOKEN
    assert line.meta["estimated"]


async def test_token_numbers_need_no_estimate(client: Client, upstream: FakeUpstream, ledger: Ledger) -> None:
    upstream.enqueue(answer([1.0], [2.0], usage=None))
    response, document = await embed(client, [[5, 6, 7], [8]])
    assert "x-gateway-estimated" not in response.headers
    assert document["usage"]["prompt_tokens"] == 4
    line = await until(lambda: last_line(ledger, "acme", response.headers["x-request-id"]))
    assert line.amount == -4 * TOKEN
    assert not line.meta.get("estimated")


async def test_count_above_what_the_body_can_hold_is_clipped_to_its_bytes_and_a_margin(
    client: Client, upstream: FakeUpstream, ledger: Ledger
) -> None:
    upstream.enqueue(answer([1.0], usage={"prompt_tokens": 900_000, "total_tokens": 900_000}))
    response, _ = await embed(client, "x" * 40)
    line = await until(lambda: last_line(ledger, "acme", response.headers["x-request-id"]))
    body = msgspec.json.encode({"model": "e1", "input": "x" * 40})
    assert line.amount == -(len(body) + 4096) * TOKEN


@pytest.mark.parametrize(("given", "hold"), [("x" * 40, 13), ([[1, 2, 3], [4]], 4)])
async def test_hold_is_the_upper_estimate_and_exact_for_token_numbers(
    client: Client, upstream: FakeUpstream, accounts: Accounts, given: Any, hold: int
) -> None:
    upstream.answer = lambda _: Reply.silence()
    async with aiohttp.ClientSession() as session:
        body = {"model": "e1", "input": given}
        pending = session.post(client.base_url + PATH, json=body, headers=client.headers)
        task = asyncio.ensure_future(pending.__aenter__())
        await upstream.wait_started()
        assert (await accounts.show("acme")).held == hold * TOKEN
        task.cancel()


async def test_client_that_disconnects_closes_the_upstream_and_pays_for_the_prompt(
    client: Client, upstream: FakeUpstream, accounts: Accounts
) -> None:
    upstream.enqueue(Reply.silence())
    with pytest.raises(TimeoutError):
        await embed_within(client, 0.2)
    seen = await upstream.wait_ended()
    assert seen.outcome == "left"
    account = await until(lambda: paid(accounts))
    assert account.balance == 10 * NANO - 4 * TOKEN
    assert account.held == 0


async def embed_within(client: Client, seconds: float) -> None:
    timeout = aiohttp.ClientTimeout(total=seconds)
    async with client.request("POST", PATH, json={"model": "e1", "input": "one two three"}, timeout=timeout):
        pass


async def paid(accounts: Accounts) -> Any:
    account = await until(lambda: released(accounts))
    return account if account.balance < 10 * NANO else None


async def test_same_idempotency_key_runs_once_and_is_answered_with_the_same_bytes(
    client: Client, upstream: FakeUpstream, accounts: Accounts
) -> None:
    headers = {"Idempotency-Key": "order-1"}
    _, document = await embed(client, headers=headers)
    second, again = await embed(client, headers=headers)
    assert second.headers["Idempotent-Replayed"] == "true"
    assert again == document
    assert len(upstream.seen) == 1
    account = await until(lambda: released(accounts))
    assert account.balance == 10 * NANO - 3 * TOKEN


# Upstreams that fail -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "broken",
    [
        answer(),
        answer([1.0], [2.0]),
        answer([]),
        answer(["x"]),
        answer([None]),
        answer([True]),
        answer([1e39]),
        answer("%%%%"),
        answer("AAAA"),
        answer("AADAfw=="),  # a NaN
        Reply.json({"data": [{"index": 5, "embedding": [1.0]}]}),
        Reply.json({"object": "list"}),
    ],
)
async def test_invalid_vector_is_an_invalid_response_and_costs_nothing(
    client: Client, upstream: FakeUpstream, accounts: Accounts, broken: Reply
) -> None:
    upstream.answer = lambda _: broken
    response, document = await embed(client)
    assert response.status == 502
    assert document["error"]["code"] == "upstream_invalid_response"
    account = await until(lambda: released(accounts))
    assert (account.balance, account.held) == (10 * NANO, 0)


async def test_vectors_of_another_length_than_requested_are_invalid(client: Client, upstream: FakeUpstream) -> None:
    upstream.answer = lambda _: answer([1.0, 2.0])
    response, _ = await embed(client, dimensions=3)
    assert response.status == 502
    upstream.answer = lambda _: answer([1.0, 2.0], [1.0])
    response, _ = await embed(client, ["a", "b"])
    assert response.status == 502


async def test_invalid_answer_of_one_target_is_retried_on_the_next_and_charged_once(
    client: Client, upstream: FakeUpstream, ledger: Ledger
) -> None:
    upstream.enqueue(answer([1.0], [2.0]), answer([1.0]))
    response, _ = await embed(client, model="two")
    assert response.status == 200
    assert [seen.json["model"] for seen in upstream.seen] == ["first", "second"]
    line = await until(lambda: last_line(ledger, "acme", response.headers["x-request-id"]))
    assert line.amount == -7 * TOKEN
    assert line.meta["attempts"] == 2


async def test_fallback_without_embeddings_is_never_called(client: Client, upstream: FakeUpstream) -> None:
    upstream.answer = lambda _: Reply.error(500, "broken")
    response, _ = await embed(client, model="lonely")
    assert response.status == 502
    assert {seen.json["model"] for seen in upstream.seen} == {"upstream-e1"}


@pytest.mark.parametrize(
    ("reply", "status", "code", "param"),
    [
        (
            Reply.error(400, "This model's maximum context length is 8192 tokens"),
            400,
            "context_length_exceeded",
            "input",
        ),
        (Reply.error(400, "blocked by the content policy"), 400, "content_filter", "input"),
        (Reply.error(401, "bad key sk-upstream-canary-0123456789"), 502, "upstream_auth_error", None),
        pytest.param(  # after its retries
            Reply.json({"error": {"message": "overloaded"}}),
            503,
            "server_is_overloaded",
            None,
            marks=pytest.mark.slow,
        ),
    ],
)
async def test_upstream_errors_are_mapped_and_cost_nothing(
    client: Client, upstream: FakeUpstream, accounts: Accounts, reply: Reply, status: int, code: str, param: str | None
) -> None:
    upstream.answer = lambda _: reply
    response, document = await embed(client)
    error = document["error"]
    assert (response.status, error["code"], error["param"]) == (status, code, param)
    assert "canary" not in str(document)
    account = await until(lambda: released(accounts))
    assert (account.balance, account.held) == (10 * NANO, 0)


# Refusals ------------------------------------------------------------------------------------------------------------

BAD = [
    ({}, 400, "missing_required_parameter", "input"),
    ({"input": None}, 400, "invalid_type", "input"),
    ({"input": ""}, 400, "empty_string", "input"),
    ({"input": []}, 400, "empty_array", "input"),
    ({"input": ["a", ""]}, 400, "empty_string", "input[1]"),
    ({"input": [[1], []]}, 400, "empty_array", "input[1]"),
    ({"input": ["x"] * 2049}, 400, "array_above_max_length", "input"),
    ({"input": [1] * 2049}, 400, "array_above_max_length", "input"),
    ({"input": [[1]] * 2049}, 400, "array_above_max_length", "input"),
    ({"input": ["a", 1]}, 400, "invalid_type", "input[1]"),
    ({"input": [1, [2]]}, 400, "invalid_type", "input[1]"),
    ({"input": [1, 2.5]}, 400, "invalid_type", "input[1]"),
    ({"input": [[1, "a"]]}, 400, "invalid_type", "input[0][1]"),
    ({"input": [-1]}, 400, "integer_below_min_value", "input[0]"),
    ({"input": {"text": "a"}}, 400, "invalid_type", "input"),
    ({"input": "a", "dimensions": 0}, 400, "integer_below_min_value", "dimensions"),
    ({"input": "a", "dimensions": "8"}, 400, "invalid_type", "dimensions"),
    ({"input": "a", "encoding_format": "hex"}, 400, "invalid_value", "encoding_format"),
    ({"input": "a", "user": 1}, 400, "invalid_type", "user"),
    ({"input": "a", "model": ""}, 400, "empty_string", "model"),
    ({"input": "a", "model": None}, 400, "invalid_type", "model"),
    ({"input": "a", "model": "chat"}, 400, "unsupported_parameter", "model"),
    ({"input": "a", "model": "nowhere"}, 403, "model_not_permitted", "model"),
    ({"input": "a", "model": "secret"}, 403, "model_not_permitted", "model"),
    ({"input": list(range(11)), "model": "small"}, 400, "context_length_exceeded", "input"),
    ({"input": ["a", "x" * 100], "model": "small"}, 400, "context_length_exceeded", "input"),
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
    async with client.request("POST", PATH, json={"model": "e1", **fields}) as response:
        error = (await response.json())["error"]
    assert holds == []
    assert (response.status, error["code"], error["param"]) == (status, code, param), error
    assert error["message"]
    account = await until(lambda: released(accounts))
    assert (account.balance, account.held) == (10 * NANO, 0)
    assert upstream.seen == []


async def test_chat_is_refused_by_a_model_that_only_embeds(client: Client, upstream: FakeUpstream) -> None:
    response, document = await client.chat(model="e1")
    assert (response.status, document["error"]["code"], document["error"]["param"]) == (
        400, "unsupported_parameter", "model"
    )  # fmt: skip
    assert upstream.seen == []


class Plain(Provider, Embeddings):
    """A dialect that takes text and nothing else."""

    name = "plain"
    embedding_fields = frozenset({"input"})

    async def embed(self, request: Any, target: Any) -> Any:
        raise AssertionError("never called")


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({"input": [1, 2]}, "unsupported_value", "input"),
        ({"input": [[1], [2]]}, "unsupported_value", "input"),
        ({"input": "a", "dimensions": 8}, "unsupported_parameter", "dimensions"),
    ],
)
async def test_unsupported_feature_of_a_dialect_is_refused_before_anything_is_held(
    client: Client, gateway: Gateway, accounts: Accounts, fields: dict[str, Any], code: str, param: str
) -> None:
    [candidate] = gateway.router.resolve(gateway.catalog.models["made-up"], Embeddings)
    plain = msgspec.structs.replace(candidate, provider=Plain(Plain.Options(), candidate.provider.upstream))
    gateway.router.resolve = lambda *_: [plain]  # type: ignore[method-assign]
    response, document = await embed(client, fields.pop("input"), model="made-up", **fields)
    assert (response.status, document["error"]["code"], document["error"]["param"]) == (400, code, param)
    account = await until(lambda: released(accounts))
    assert (account.balance, account.held) == (10 * NANO, 0)

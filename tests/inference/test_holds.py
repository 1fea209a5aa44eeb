"""What is held before a call, what is sent upstream for it, and that no balance falls below zero."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from decimal import Decimal
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from msgspec import structs

from gateway.accounts.accounts import Accounts
from gateway.accounts.admission_check import explain
from gateway.accounts.keys import Keys
from gateway.amounts import NANO, format_amount
from gateway.api.routes import endpoint_named
from gateway.billing.price import Price
from gateway.billing.quote import Quote
from gateway.billing.token_estimate import chat_prompt
from gateway.config.loader import parse
from gateway.config.settings import Settings
from gateway.inference.endpoint import RequestSize
from gateway.ledger import Hold, Ledger
from gateway.ledger.api_key import ApiKey
from gateway.routing.hidden_reasoning import may_reason
from gateway.runtime.gateway import Gateway
from gateway.schemas.chat_request import decode_chat_request
from gateway.testing import FakeUpstream, Reply
from gateway.testing.chat_script import ChatScript
from gateway.testing.fake_upstream import Seen
from tests.api.conftest import Client
from tests.ledger_lines import last_line
from tests.polling import until

TOKEN = NANO // 1000  # a token of output costs 0.001
PRICE = {"input": 1, "output": 1000}
PROMPT = 22  # tokens of a request's prompt, with the margin
LONGEST = 2000  # what an upstream without a limit answers


@pytest.fixture
def settings(tmp_path: Path, upstream: FakeUpstream) -> Settings:
    """Models that hold in different ways, on an upstream that always answers with as much as it may."""
    upstream.answer = greedy
    model = {"provider": "up", "price": PRICE, "max_output_tokens": LONGEST}
    tiers = {**PRICE, "service_tier_multiplier": {"flex": "0.5", "priority": 2}}
    document = {
        "store": {"data_dir": str(tmp_path)},
        "providers": {
            "up": {
                "plugin": "openai",
                "base_url": upstream.base_url,
                "forward_params": ["flavour", "reasoning", "thinking"],
            },
            "mistral": {"plugin": "openai", "preset": "mistral", "base_url": upstream.base_url},
        },
        "groups": {"default": {}, "slow": {"tpm": 1500}},
        "models": {
            "strict": {**model, "groups": ["default", "slow"]},
            "clamp": {**model, "hold": "clamp"},
            "clamp-unknown": {"provider": "up", "price": PRICE, "hold": "clamp", "default_reserve_output": 50},
            "clamp-renamed": {**model, "hold": "clamp", "max_tokens_field": "max_completion_tokens"},
            "strict-unknown": {"provider": "up", "price": PRICE, "default_reserve_output": 50},
            "asked": {"provider": "up", "model": "claude-x", "price": PRICE, "default_reserve_output": 50},
            "media": {"provider": "up", "price": {**PRICE, "audio_output": 12_000, "image_output": 12_000}},
            "media-alone": {
                "provider": "up",
                "price": {"input": 1, "output": 0, "audio_output": 12_000, "image_output": 12_000},
            },
            "free": {"provider": "up", "price": {"input": 1, "output": 0}},
            "reasons": {"provider": "up", "model": "gpt-5-mini", "price": PRICE, "default_reserve_output": 50},
            "reasons-always": {
                "provider": "up",
                "price": PRICE,
                "default_reserve_output": 50,
                "reasoning": True,
            },
            "reasons-never": {
                "provider": "up",
                "model": "o3",
                "price": PRICE,
                "default_reserve_output": 50,
                "reasoning": False,
            },
            "tiers": {**model, "price": tiers},
            "no-tiers": {**model, "provider": "mistral", "price": tiers},
            "dated": {**model, "price": [PRICE, {"input": 1, "output": 3000, "effective_from": "2099-01-01"}]},
        },
    }
    return parse(decimals(document), demo=True)


def decimals(document: Any) -> Any:
    """TOML's decimals for the texts that stand for them here."""
    if isinstance(document, dict):
        return {name: decimals(value) for name, value in document.items()}
    return Decimal(document) if document == "0.5" else document


def greedy(seen: Seen) -> Reply:
    """Every choice is as long as the limit allows."""
    request = seen.json
    limit = request.get("max_completion_tokens") or request.get("max_tokens") or LONGEST
    count = request.get("n", 1)
    usage = {"prompt_tokens": 8, "completion_tokens": limit * count, "total_tokens": 8 + limit * count}
    tier = {"service_tier": request["service_tier"]} if "service_tier" in request else {}
    if request.get("stream"):
        chunks = [_chunk({"content": "word" * 10}) for _ in range(limit // 10)]
        last = [_chunk({}, "length"), {**_chunk({}), "choices": [], "usage": usage}]
        return Reply.stream([{**chunk, **tier} for chunk in (*chunks, *last)])
    choice = {"message": {"role": "assistant", "content": "word " * limit}, "finish_reason": "length"}
    choices = [{"index": index, **choice} for index in range(count)]
    return Reply.json({"object": "chat.completion", "choices": choices, "usage": usage, **tier})


def _chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


class Payer:
    """An account with a balance, and what is left of it."""

    def __init__(self, accounts: Accounts, keys: Keys, client: Client) -> None:
        self.accounts, self.keys, self.client = accounts, keys, client

    async def open(self, balance: int, *, name: str = "payer", group: str = "default", **key: Any) -> None:
        await self.accounts.create(name, balance=balance, group=group)
        text = (await self.keys.create(name, **key)).text
        self.client.headers = {"Authorization": f"Bearer {text}", "Content-Type": "application/json"}

    async def left(self) -> int:
        """The balance once nothing is held."""

        async def settled() -> Any:
            account = await self.accounts.show("payer")
            return account if account.held == 0 else None

        return int((await until(settled)).balance)


@pytest.fixture
def payer(accounts: Accounts, keys: Keys, client: Client) -> Payer:
    """The account behind the client's key."""
    return Payer(accounts, keys, client)


# Strict --------------------------------------------------------------------------------------------------------------


async def test_whole_answer_without_a_limit_is_refused_if_the_balance_cannot_pay_the_longest_one(
    client: Client, upstream: FakeUpstream, payer: Payer
) -> None:
    await payer.open((LONGEST - 1) * TOKEN)
    response, answer = await client.chat(model="strict")
    assert response.status == 429
    assert answer["error"]["type"] == "insufficient_quota"
    assert upstream.seen == []
    assert await payer.left() == (LONGEST - 1) * TOKEN


@pytest.mark.holds("prices.md#what-is-held-3")
async def test_whole_answer_without_a_limit_holds_the_longest_one_and_sends_its_limit(
    client: Client, upstream: FakeUpstream, payer: Payer, accounts: Accounts
) -> None:
    await payer.open(3 * LONGEST * TOKEN)
    upstream.tamper = _slowly
    task = asyncio.create_task(client.chat(model="strict"))
    await until(lambda: upstream.seen)
    held = (await accounts.show("payer")).held
    assert LONGEST * TOKEN < held < (LONGEST + 1) * TOKEN
    await task
    assert upstream.seen[0].json["max_tokens"] == LONGEST
    assert await payer.left() == 2 * LONGEST * TOKEN - 8000


def _slowly(reply: Reply) -> Reply:
    return structs.replace(reply, delay=0.1)


@pytest.mark.holds("README.md#model-gateway-1", "prices.md#what-is-held-2")
async def test_stream_without_a_limit_holds_its_reserve_only(
    client: Client, payer: Payer, accounts: Accounts, upstream: FakeUpstream
) -> None:
    await payer.open(1100 * TOKEN)
    response, text, _ = await client.stream(model="strict", max_tokens=None)
    assert response.status == 200
    assert "insufficient_quota" in text
    assert await payer.left() >= -10 * TOKEN


@pytest.mark.holds("prices.md#what-is-held-1")
async def test_callers_own_limit_determines_the_hold(client: Client, payer: Payer) -> None:
    await payer.open(101 * TOKEN)
    response, _ = await client.chat(model="strict", max_tokens=100)
    assert response.status == 200
    assert await payer.left() == TOKEN - 8000


@pytest.mark.holds("prices.md#what-is-held-10")
async def test_token_rate_limits_do_not_count_the_longest_answer(client: Client, payer: Payer) -> None:
    await payer.open(3 * LONGEST * TOKEN, group="slow")  # 1,500 tokens a minute
    response, _ = await client.chat(model="strict")
    assert response.status == 200
    assert int(response.headers["x-ratelimit-remaining-tokens"]) == pytest.approx(1500 - 1024 - PROMPT, abs=20)


async def test_reasoning_and_cache_prices_are_held_if_they_are_higher(
    client: Client, gateway: Gateway, payer: Payer, upstream: FakeUpstream
) -> None:
    model = gateway.catalog.models["strict"]
    dear = Price.of(parse_price({"input": 1, "output": 1000, "reasoning": 4000}))
    gateway.catalog.models["strict"] = structs.replace(model, prices=(dear,))  # type: ignore[index]
    await payer.open(399 * TOKEN)
    response, _ = await client.chat(model="strict", max_tokens=100)
    assert response.status == 429
    assert upstream.seen == []


def parse_price(price: dict[str, Any]) -> Any:
    model = {"provider": "p", "price": price}
    prices = parse({"providers": {"p": {"plugin": "openai"}}, "models": {"m": model}}).models["m"].price
    assert prices is not None
    return prices[0]


# Clamp ---------------------------------------------------------------------------------------------------------------


@pytest.mark.holds("prices.md#what-is-held-7")
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("limit", [None, 1500])
async def test_clamped_answer_is_as_long_as_the_balance_allows(
    client: Client, upstream: FakeUpstream, payer: Payer, stream: bool, limit: int | None
) -> None:
    await payer.open(500 * TOKEN)
    if stream:
        response, text, failure = await client.stream(model="clamp", max_tokens=limit)
        assert failure is None
        assert "length" in text
    else:
        response, _ = await client.chat(model="clamp", max_tokens=limit)
    assert response.status == 200
    assert upstream.seen[0].json["max_tokens"] == 499
    assert response.headers["x-gateway-max-tokens"] == "499"
    assert 0 <= await payer.left() < 2 * TOKEN


@pytest.mark.holds("prices.md#what-is-held-9")
@pytest.mark.parametrize(
    ("model", "fields", "sent"),
    [
        ("clamp", {"max_tokens": 1000}, {"max_tokens": 499}),
        ("clamp", {"max_completion_tokens": 1000}, {"max_completion_tokens": 499}),
        ("clamp", {"max_tokens": 1000, "max_completion_tokens": 1000},
         {"max_tokens": 499, "max_completion_tokens": 499}),
        ("clamp", {"max_tokens": 1000, "n": 2}, {"max_tokens": 249}),
        ("clamp-renamed", {}, {"max_completion_tokens": 499}),
        ("clamp", {"max_tokens": 400}, {"max_tokens": 400}),
        ("clamp-unknown", {}, {"max_tokens": 499}),
    ],
)  # fmt: skip
async def test_limit_is_sent_upstream_under_the_callers_field_name(
    client: Client, upstream: FakeUpstream, payer: Payer, model: str, fields: dict[str, Any], sent: dict[str, int]
) -> None:
    await payer.open(500 * TOKEN)
    response, _ = await client.chat(model=model, **fields)
    assert response.status == 200
    limits = {name: value for name, value in upstream.seen[0].json.items() if name.startswith("max_")}
    assert limits == sent
    assert await payer.left() >= 0


@pytest.mark.holds("prices.md#what-is-held-7")
async def test_balance_for_almost_no_tokens_is_refused(client: Client, upstream: FakeUpstream, payer: Payer) -> None:
    await payer.open(10 * TOKEN)
    response, _ = await client.chat(model="clamp")
    assert response.status == 429
    assert upstream.seen == []
    assert await payer.left() == 10 * TOKEN


@pytest.mark.holds("prices.md#what-is-held-7")
async def test_budget_of_the_key_clamps_too(client: Client, upstream: FakeUpstream, payer: Payer) -> None:
    await payer.open(5000 * TOKEN, budget=300 * TOKEN)
    response, _ = await client.chat(model="clamp")
    assert response.status == 200
    assert upstream.seen[0].json["max_tokens"] == 299
    assert await payer.left() >= 4700 * TOKEN


# Without a limit of the caller ---------------------------------------------------------------------------------------


@pytest.mark.holds("prices.md#what-is-held-6")
@pytest.mark.parametrize(
    ("balance", "sent"),
    [(40_000, 32_768), (32_770, 32_768), (32_000, 15_999), (8194, 4096), (8190, None), (4000, None)],
)
async def test_limit_that_the_gateway_adds_is_at_most_half_of_the_free_money_and_at_least_4096_tokens(
    client: Client, upstream: FakeUpstream, payer: Payer, balance: int, sent: int | None
) -> None:
    await payer.open(balance * TOKEN)
    response, _ = await client.chat(model="strict-unknown")
    assert response.status == (429 if sent is None else 200)
    assert response.headers.get("x-gateway-max-tokens") == (None if sent is None else str(sent))
    assert [seen.json["max_tokens"] for seen in upstream.seen] == ([] if sent is None else [sent])
    left = await payer.left()
    assert left == (balance * TOKEN if sent is None else (balance - sent) * TOKEN - 8000)


@pytest.mark.holds("prices.md#what-is-held-3")
async def test_added_limit_leaves_room_for_the_prompt_in_the_context_window(
    client: Client, upstream: FakeUpstream, payer: Payer, gateway: Gateway
) -> None:
    model = gateway.catalog.models["strict-unknown"]
    gateway.catalog.models["strict-unknown"] = structs.replace(model, context_window=10_000)  # type: ignore[index]
    await payer.open(100_000 * TOKEN)
    await client.chat(model="strict-unknown", messages=[{"role": "user", "content": "word " * 3200}])
    estimate = 4000 + 20  # the text, and the message around it
    assert upstream.seen[0].json["max_tokens"] == pytest.approx(10_000 - estimate * 5 / 4, abs=10)


@pytest.mark.holds("prices.md#what-is-held-9")
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("message", "status", "second"),
    [
        ("max_tokens is too large: 32768. This model supports at most 4096 completion tokens.", 400, 4096),
        ("max_tokens must be lower", 400, 16_384),
        (
            "The maximum context length is 8192, but you requested 32776 (32768 in the completion)",
            400,
            8184,
        ),
        ("Invalid value for 'max_tokens': use less", 422, 16_384),
    ],
)
async def test_added_limit_that_the_upstream_refuses_is_lowered_once(
    client: Client, upstream: FakeUpstream, payer: Payer, message: str, status: int, second: int, stream: bool
) -> None:
    await payer.open(100_000 * TOKEN)
    upstream.enqueue(Reply.error(status, message))
    if stream:
        response, text, failure = await client.stream(model="reasons", max_tokens=None)
        assert failure is None and "[DONE]" in text
    else:
        response, _ = await client.chat(model="reasons")
    assert response.status == 200
    assert [seen.json["max_tokens"] for seen in upstream.seen] == [32_768, second]
    assert await payer.left() == (100_000 - second) * TOKEN - 8000


@pytest.mark.holds("prices.md#what-is-held-9")
async def test_unsupported_spelling_of_an_added_limit_is_replaced_by_the_one_that_the_upstream_names(
    client: Client, upstream: FakeUpstream, payer: Payer
) -> None:
    await payer.open(100_000 * TOKEN)
    upstream.enqueue(Reply.error(400, "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."))
    response, _ = await client.chat(model="strict-unknown")
    assert response.status == 200
    assert "max_tokens" not in upstream.seen[1].json
    assert upstream.seen[1].json["max_completion_tokens"] == 16_384


@pytest.mark.holds("prices.md#what-is-held-9")
async def test_limit_that_a_target_has_refused_is_not_sent_to_it_again(
    client: Client, upstream: FakeUpstream, payer: Payer
) -> None:
    def limited(seen: Seen) -> Reply:
        too_large = "max_tokens is too large: {}. This model supports at most 4096 completion tokens."
        return greedy(seen) if seen.json["max_tokens"] <= 4096 else Reply.error(400, too_large)

    await payer.open(1_000_000 * TOKEN)
    upstream.answer = limited
    for _ in range(5):
        assert (await client.chat(model="strict-unknown"))[0].status == 200
    assert len(upstream.seen) == 6


@pytest.mark.holds("prices.md#what-is-held-9")
async def test_window_that_a_target_has_named_ends_the_answers_of_later_calls(
    client: Client, upstream: FakeUpstream, payer: Payer
) -> None:
    text = "The maximum context length is {window}. You requested {total} ({prompt} and {limit} in the completion)"
    await payer.open(100_000 * TOKEN)
    upstream.answer = lambda seen: _of_window(seen, window=4096, prompt=3000, text=text)
    for _ in range(3):
        assert (await client.chat(model="strict-unknown"))[0].status == 200
    assert [seen.json.get("max_tokens") for seen in upstream.seen] == [32_768, 1096, None, None]


@pytest.mark.holds("prices.md#what-is-held-9")
async def test_field_that_a_target_has_refused_is_not_sent_to_it_again(
    client: Client, upstream: FakeUpstream, payer: Payer
) -> None:
    await payer.open(100_000 * TOKEN)
    upstream.enqueue(Reply.error(400, "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."))
    for _ in range(2):
        assert (await client.chat(model="strict-unknown"))[0].status == 200
    limits = [(seen.json.get("max_tokens"), seen.json.get("max_completion_tokens")) for seen in upstream.seen]
    assert limits == [(32_768, None), (None, 16_384), (None, 32_768)]


async def test_limit_of_the_caller_that_the_upstream_refuses_is_not_changed(
    client: Client, upstream: FakeUpstream, payer: Payer
) -> None:
    await payer.open(100_000 * TOKEN)
    upstream.enqueue(Reply.error(400, "max_tokens is too large: 9000. This model supports at most 4096"))
    response, answer = await client.chat(model="strict-unknown", max_tokens=9000)
    assert response.status == 400
    assert "at most 4096" in answer["error"]["message"]
    assert len(upstream.seen) == 1
    assert await payer.left() == 100_000 * TOKEN


@pytest.mark.holds("prices.md#what-is-held-9")
async def test_second_refusal_of_an_added_limit_reaches_the_caller(
    client: Client, upstream: FakeUpstream, payer: Payer
) -> None:
    await payer.open(100_000 * TOKEN)
    upstream.enqueue(Reply.error(400, "max_tokens is too large"), Reply.error(400, "max_tokens is still too large"))
    response, answer = await client.chat(model="strict-unknown")
    assert (response.status, len(upstream.seen)) == (400, 2)
    assert "still too large" in answer["error"]["message"]


async def test_model_without_an_output_price_gets_no_limit(
    client: Client, upstream: FakeUpstream, payer: Payer
) -> None:
    await payer.open(TOKEN)
    response, _ = await client.chat(model="free")
    assert response.status == 200
    assert "max_tokens" not in upstream.seen[0].json
    assert "x-gateway-max-tokens" not in response.headers


@pytest.mark.holds("prices.md#what-is-held-3")
async def test_added_limit_is_long_enough_for_an_answer_if_the_estimate_of_the_prompt_fills_the_window(
    client: Client, upstream: FakeUpstream, payer: Payer, gateway: Gateway
) -> None:
    model = gateway.catalog.models["strict-unknown"]
    gateway.catalog.models["strict-unknown"] = structs.replace(model, context_window=8192)  # type: ignore[index]
    await payer.open(100_000 * TOKEN)
    text = " " * 26_300  # some 400 tokens; the estimate is 6,600 of 8,192
    response, _ = await client.chat(model="strict-unknown", messages=[{"role": "user", "content": text}])
    assert response.status == 200
    assert upstream.seen[0].json["max_tokens"] >= 1000


def _of_window(seen: Seen, *, window: int, prompt: int, text: str, code: int = 400) -> Reply:
    """The answer of a server that refuses a limit that does not fit beside the prompt."""
    limit = seen.json.get("max_completion_tokens") or seen.json.get("max_tokens") or 0
    if prompt + limit > window:
        return Reply.error(code, text.format(limit=limit, prompt=prompt, window=window, total=prompt + limit))
    return greedy(seen)


@pytest.mark.holds("prices.md#what-is-held-9")
@pytest.mark.parametrize(
    ("prompt", "code", "text"),
    [
        (
            50,
            422,
            "Input validation error: `inputs` tokens + `max_new_tokens` must be <= {window}. Given: {prompt} `inputs` "
            "tokens and {limit} `max_new_tokens`",
        ),
        (
            3000,
            400,
            "This model's maximum context length is {window} tokens. However, you requested {total} tokens ({prompt} "
            "in the messages, {limit} in the completion). Please reduce the length of the messages or completion.",
        ),
        (
            3000,
            400,
            "'max_tokens' or 'max_completion_tokens' is too large: {limit}. This model's maximum context length is "
            "{window} tokens and your request has {prompt} input tokens ({limit} > {window} - {prompt}).",
        ),
        (
            3000,
            400,
            "Requested token count exceeds the model's maximum context length of {window} tokens. You requested a "
            "total of {total} tokens: {prompt} tokens from the input messages and {limit} tokens for the completion.",
        ),
        (3000, 400, "input length and `max_tokens` exceed context limit: {prompt} + {limit} > {window}"),
        (3000, 400, "The prompt and max_tokens exceed the context window"),
    ],
    ids=["tgi", "vllm", "vllm-newer", "sglang", "anthropic", "no numbers"],
)
async def test_call_without_a_limit_is_answered_by_a_server_with_a_small_unknown_window(
    client: Client, upstream: FakeUpstream, payer: Payer, prompt: int, code: int, text: str
) -> None:
    await payer.open(100_000 * TOKEN)
    upstream.answer = lambda seen: _of_window(seen, window=4096, prompt=prompt, text=text, code=code)
    response, answer = await client.chat(model="strict-unknown")
    assert response.status == 200, answer


@pytest.mark.holds("prices.md#what-is-held-9")
async def test_added_limit_is_sent_as_max_tokens_to_a_deployment_that_does_not_know_the_newer_spelling(
    client: Client, upstream: FakeUpstream, payer: Payer, gateway: Gateway
) -> None:
    for provider in gateway.providers["up"].values():
        provider.limit_field = "max_completion_tokens"  # type: ignore[attr-defined]  # as Azure has it
    await payer.open(100_000 * TOKEN)
    upstream.enqueue(Reply.error(400, "Unrecognized request argument supplied: max_completion_tokens"))
    response, _ = await client.chat(model="strict-unknown")
    assert response.status == 200
    assert "max_completion_tokens" not in upstream.seen[1].json


# Hidden reasoning ----------------------------------------------------------------------------------------------------


@pytest.mark.holds("operations/audit.md#late-and-uncollected-3", "prices.md#what-is-held-3")
@pytest.mark.parametrize(
    ("model", "effort", "limit"),
    [
        ("reasons", None, 32_768),
        ("reasons", "none", None),
        ("reasons", "high", 32_768),
        ("reasons-always", "none", 32_768),
        ("reasons-never", "high", None),
        ("strict-unknown", None, None),
    ],
)
async def test_stream_of_a_model_that_may_reason_unseen_holds_and_sends_the_whole_limit(
    client: Client,
    upstream: FakeUpstream,
    payer: Payer,
    accounts: Accounts,
    model: str,
    effort: str | None,
    limit: int | None,
) -> None:
    await payer.open(100_000 * TOKEN)
    upstream.tamper = _slowly
    fields = {} if effort is None else {"reasoning_effort": effort}
    task = asyncio.create_task(client.stream(model=model, max_tokens=None, **fields))
    await until(lambda: upstream.seen)
    held = (await accounts.show("payer")).held // TOKEN
    await task
    assert upstream.seen[0].json.get("max_tokens") == limit
    assert held == (50 if limit is None else limit)


@pytest.mark.holds("prices.md#what-is-held-4")
async def test_reasoning_in_spite_of_the_effort_none_is_expected_from_the_next_call_on(
    client: Client, upstream: FakeUpstream, payer: Payer
) -> None:
    await payer.open(100_000 * TOKEN)
    upstream.answer = ChatScript(text="word", hidden_reasoning=5000).answer
    for _ in range(3):
        await client.stream(model="reasons", max_tokens=None, reasoning_effort="none")
    assert upstream.seen[-1].json.get("max_tokens") == 32_768


@pytest.mark.holds("prices.md#what-is-held-4")
async def test_reasoning_that_one_caller_asks_for_does_not_enlarge_the_holds_of_others(
    client: Client, upstream: FakeUpstream, payer: Payer
) -> None:
    await payer.open(100_000 * TOKEN)
    upstream.answer = ChatScript(text="word", hidden_reasoning=5000).answer
    await client.stream(model="asked", max_tokens=None, reasoning_effort="high")
    upstream.answer = ChatScript(text="word").answer
    await client.stream(model="asked", max_tokens=None)
    assert upstream.seen[0].json.get("max_tokens") == 32_768
    assert upstream.seen[1].json.get("max_tokens") is None


@pytest.mark.holds("prices.md#what-is-held-4")
@pytest.mark.parametrize(
    "fields",
    [{"reasoning": {"effort": "high", "exclude": True}}, {"thinking": {"type": "enabled", "budget_tokens": 30_000}}],
    ids=["reasoning", "thinking"],
)
async def test_reasoning_that_is_asked_for_in_a_dialects_own_words_is_held(
    client: Client, upstream: FakeUpstream, payer: Payer, fields: dict[str, Any]
) -> None:
    await payer.open(100_000 * TOKEN)
    await client.stream(model="asked", max_tokens=None, **fields)
    assert fields.items() <= upstream.seen[0].json.items()
    assert upstream.seen[0].json.get("max_tokens") == 32_768


@pytest.mark.parametrize("name", ["gemini-flash-latest", "gemini-pro-latest", "models/gemini-flash-lite-latest"])
def test_newest_gemini_models_may_reason_unseen(name: str) -> None:
    assert may_reason(name)


@pytest.mark.holds("README.md#model-gateway-1")
async def test_answers_that_hide_their_reasoning_cost_no_more_than_the_balance(
    client: Client, upstream: FakeUpstream, payer: Payer, ledger: Ledger
) -> None:
    await payer.open(1000 * TOKEN)
    usage = {"prompt_tokens": 8, "completion_tokens": 300, "total_tokens": 308}
    usage["completion_tokens_details"] = {"reasoning_tokens": 290}  # type: ignore[assignment]
    upstream.answer = lambda seen: Reply.stream(
        [_chunk({"content": "word"}), _chunk({}, "stop"), {**_chunk({}), "choices": [], "usage": usage}]
    )
    answers = await asyncio.gather(*(client.stream(model="strict-unknown", max_tokens=None) for _ in range(60)))
    assert {response.status for response, *_ in answers} <= {200, 429}
    assert await payer.left() >= 0
    assert (await ledger.audit("payer")).mismatches == []


@pytest.mark.holds("prices.md#what-is-held-4")
async def test_model_that_charged_hidden_reasoning_is_held_and_limited_as_one_afterwards(
    client: Client, upstream: FakeUpstream, payer: Payer
) -> None:
    await payer.open(100_000 * TOKEN)
    usage = {"prompt_tokens": 8, "completion_tokens": 400, "total_tokens": 408}
    usage["completion_tokens_details"] = {"reasoning_tokens": 300}  # type: ignore[assignment]
    shown = [_chunk({"reasoning_content": "word " * 300}), _chunk({"content": "word " * 100}), _chunk({}, "stop")]
    last = {**_chunk({}), "choices": [], "usage": usage}
    for chunks in (shown, shown[1:], shown):
        upstream.enqueue(Reply.stream([*chunks, last]))
        await client.stream(model="strict-unknown", max_tokens=None)
    assert [seen.json.get("max_tokens") for seen in upstream.seen] == [None, None, 32_768]


@pytest.mark.holds("prices.md#leaving-early-1")
@pytest.mark.parametrize(("model", "read_on"), [("reasons", True), ("strict-unknown", False)])
async def test_stream_of_a_model_that_may_reason_unseen_is_read_to_its_usage_after_its_caller_left(
    client: Client, upstream: FakeUpstream, payer: Payer, model: str, read_on: bool
) -> None:
    await payer.open(100_000 * TOKEN)
    usage = {"prompt_tokens": 8, "completion_tokens": 400, "total_tokens": 408}
    chunks = [_chunk({"content": "word " * 10}) for _ in range(30)]
    last = [_chunk({}, "stop"), {**_chunk({}), "choices": [], "usage": usage}]
    upstream.enqueue(Reply.stream([*chunks, *last], interval=0.02))
    body = {"model": model, "messages": [{"role": "user", "content": "Hi"}], "stream": True}
    async with client.request("POST", "/v1/chat/completions", headers=client.headers, json=body) as response:
        await response.content.readany()
    spent = 100_000 * TOKEN - await payer.left()
    assert (spent == 400 * TOKEN + 8000) if read_on else (spent < 390 * TOKEN)


# Below zero ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["strict", "clamp"])
async def test_concurrent_calls_without_a_limit_never_take_a_balance_below_zero(
    client: Client, upstream: FakeUpstream, payer: Payer, ledger: Ledger, model: str
) -> None:
    await payer.open(7 * LONGEST * TOKEN + 321 * TOKEN)
    answers = await asyncio.gather(*(client.chat(model=model, n=1 + turn % 2) for turn in range(40)))
    statuses = [response.status for response, _ in answers]
    assert set(statuses) == {200, 429}
    left = await payer.left()
    assert left >= 0
    if model == "clamp":
        assert left < 20 * TOKEN
    assert (await ledger.audit("payer")).mismatches == []


def _boundless(*, each: int = 10) -> Reply:
    """A stream that keeps no limit and tells no usage, so many tokens a chunk."""
    return Reply.stream([_chunk({"content": "word" * each}) for _ in range(LONGEST // each)])


@pytest.mark.holds("prices.md#what-is-held-8")
@pytest.mark.parametrize("model", ["strict", "clamp"])
async def test_upstream_that_ignores_limits_is_stopped_at_twice_its_hold_if_the_balance_is_used_up(
    client: Client, upstream: FakeUpstream, payer: Payer, model: str
) -> None:
    await payer.open(101 * TOKEN)
    upstream.enqueue(_boundless())
    _, text, _ = await client.stream(model=model, max_tokens=100)
    assert "insufficient_quota" in text
    assert text.count("word" * 10) == 20
    assert 0 <= await payer.left() < TOKEN


@pytest.mark.holds("prices.md#calls-that-fail-or-are-cut-1")
async def test_a_first_chunk_beyond_the_balance_is_refused_with_its_http_status_and_costs_nothing(
    client: Client, upstream: FakeUpstream, payer: Payer
) -> None:
    await payer.open(101 * TOKEN)
    upstream.enqueue(_boundless(each=400))
    response, text, _ = await client.stream(model="strict", max_tokens=100)
    assert response.status == 429
    assert "insufficient_quota" in text
    assert await payer.left() == 101 * TOKEN


@pytest.mark.holds("prices.md#what-is-held-2")
@pytest.mark.parametrize("model", ["media", "media-alone"])
@pytest.mark.parametrize("media", ["audio_seconds", "images"])
async def test_stream_of_media_is_cut_when_the_balance_is_used_up(
    client: Client, upstream: FakeUpstream, payer: Payer, ledger: Ledger, media: str, model: str
) -> None:
    await payer.open(1500 * 12 * TOKEN)  # an image, or a minute of sound
    fields: dict[str, Any] = {"max_tokens": None}
    if media == "audio_seconds":
        fields |= {"modalities": ["text", "audio"], "audio": {"voice": "alloy", "format": "pcm16"}}
    most = 8 if media == "images" else 300
    upstream.enqueue(ChatScript(text="a", usage=None, **{media: most}).stream())  # type: ignore[arg-type]
    response, text, _ = await client.stream(model=model, **fields)
    line = await until(lambda: last_line(ledger, "payer", response.headers["x-request-id"]))
    print(f"{media}: {-line.amount / NANO:.1f} are charged, {line.uncollected / NANO:.1f} are uncollected")
    assert "insufficient_quota" in text
    assert line.uncollected < -line.amount


@pytest.mark.parametrize("each", [10, 400])
async def test_upstream_that_ignores_limits_continues_within_the_balance_and_all_of_it_is_held(
    client: Client, upstream: FakeUpstream, payer: Payer, ledger: Ledger, each: int
) -> None:
    await payer.open(1500 * TOKEN)
    upstream.enqueue(_boundless(each=each))
    response, text, _ = await client.stream(model="strict", max_tokens=100)
    assert "insufficient_quota" in text
    left = await payer.left()
    assert -each * TOKEN < left < (each + 30) * TOKEN  # asked for a quarter of the hold at a time, 25 at first
    line = await last_line(ledger, "payer", response.headers["x-request-id"])
    assert line is not None
    assert line.meta["hold"] + each * TOKEN >= -line.amount


async def test_limited_stream_shorter_than_its_limit_does_not_extend_its_hold(
    client: Client, payer: Payer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unwanted(*_: object) -> None:
        pytest.fail("a hold was extended")

    monkeypatch.setattr(Ledger, "extend", unwanted)
    await payer.open(LONGEST * TOKEN)
    _, text, failure = await client.stream(model="strict", max_tokens=100)
    assert failure is None
    assert "length" in text


# Explained -----------------------------------------------------------------------------------------------------------


def always(quote: Quote) -> Callable[[object], Quote]:
    """Makes the same quote at any prices."""
    return lambda _: quote


@pytest.mark.parametrize("model", ["strict", "clamp", "clamp-unknown", "strict-unknown"])
@pytest.mark.parametrize(("balance", "budget"), [(500, None), (5000, 300), (10, None), (5000, 12)])
async def test_explanation_holds_and_clamps_as_the_chat_endpoint_does(
    client: Client,
    gateway: Gateway,
    payer: Payer,
    monkeypatch: pytest.MonkeyPatch,
    *,
    model: str,
    balance: int,
    budget: int | None,
) -> None:
    asked: list[Quote] = []
    chat, found = endpoint_named("chat"), gateway.catalog.models[model]
    admit = Ledger.admit

    async def noted(self: Ledger, request_id: str, key: ApiKey, quote: Quote) -> Hold:
        asked.append(quote)
        hold = await admit(self, request_id, key, quote)
        if hold.amount < quote.hold:
            asked[0] = chat.clamp(quote, hold.amount) or quote
        return hold

    monkeypatch.setattr(Ledger, "admit", noted)
    for stream, limit in product([False, True], [None, 1500, 30]):
        asked.clear()
        name = f"payer-{stream:d}-{limit or 0}"
        await payer.open(balance * TOKEN, name=name, budget=None if budget is None else budget * TOKEN)
        (key,) = await payer.keys.list(name)
        body: dict[str, Any] = {"model": model, "messages": [{"role": "user", "content": "Hi"}]}
        body |= {"max_tokens": limit} if limit else {}
        sent = json.dumps(body | ({"stream": True} if stream else {}))
        tokens = chat_prompt(decode_chat_request(sent.encode())).tokens
        size = chat.quote_size(found, RequestSize(tokens=tokens, max_tokens=limit, stream=stream))
        told = await explain(
            gateway.store,
            gateway.ledger,
            key_id=key.id,
            quote=always(size),
            lowerable=chat.lowerable,
            clamp=chat.clamp,
        )
        response, *_ = await (client.stream if stream else client.chat)(**body)
        assert told.admitted == (response.status == 200), (stream, limit)
        assert (told.hold, told.tokens) == (format_amount(asked[0].hold), asked[0].tokens), (stream, limit)


# Price and tier ------------------------------------------------------------------------------------------------------


@pytest.mark.holds("operations/start.md#reload-1", "prices.md#prices-that-change-2")
async def test_price_of_admission_applies_until_the_end_of_the_call(
    client: Client, upstream: FakeUpstream, payer: Payer, gateway: Gateway, ledger: Ledger
) -> None:
    await payer.open(100 * LONGEST * TOKEN)
    dearer = structs.replace(gateway.settings.models["strict"], price=(parse_price({"input": 1, "output": 5000}),))
    settings = structs.replace(gateway.settings, models={**gateway.settings.models, "strict": dearer})
    old = gateway.catalog.models["strict"]
    upstream.tamper = _slowly
    task = asyncio.create_task(client.chat(model="strict", max_tokens=10))
    await until(lambda: upstream.seen)
    await gateway.reload(settings)
    new = gateway.catalog.models["strict"]
    first, _ = await task
    second, _ = await client.chat(model="strict", max_tokens=10)
    for response, model, amount in ((first, old, 10), (second, new, 50)):
        request_id = response.headers["x-request-id"]
        line = await until(lambda request_id=request_id: last_line(ledger, "payer", request_id))
        assert line.amount == -amount * TOKEN - 8000
        assert line.meta["price"] == model.price.version


async def test_price_changes_by_date_without_a_reload(
    client: Client, payer: Payer, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    await payer.open(100 * LONGEST * TOKEN)
    clock = SimpleNamespace(time=lambda: 4_070_908_799.9)
    monkeypatch.setattr("gateway.catalog.time", clock)
    for amount, date in ((10, ""), (30, "@2099-01-01")):
        response, _ = await client.chat(model="dated", max_tokens=10)
        line = await until(lambda: last_line(ledger, "payer", response.headers["x-request-id"]))  # noqa: B023
        assert line.amount == -amount * TOKEN - 8000
        assert line.meta["price"].endswith(date)
        clock.time = lambda: 4_070_908_800.0


@pytest.mark.holds("prices.md#what-is-charged-16")
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("tier", "factor"), [("flex", 0.5), ("priority", 2), ("default", 1)])
async def test_service_tier_that_was_used_is_charged(
    client: Client, upstream: FakeUpstream, payer: Payer, tier: str, factor: float, stream: bool
) -> None:
    await payer.open(LONGEST * TOKEN)
    call = client.stream if stream else client.chat
    await call(model="tiers", max_tokens=100, service_tier=tier)
    assert LONGEST * TOKEN - await payer.left() == (100 * TOKEN + 8000) * factor


async def test_tier_that_was_not_granted_is_not_charged(client: Client, upstream: FakeUpstream, payer: Payer) -> None:
    await payer.open(LONGEST * TOKEN)
    upstream.enqueue(greedy(Seen(method="", path="", headers={}, body=b'{"max_tokens":100,"service_tier":"default"}')))
    await client.chat(model="tiers", max_tokens=100, service_tier="priority")
    assert LONGEST * TOKEN - await payer.left() == 100 * TOKEN + 8000


async def test_tier_is_held_at_its_own_price(client: Client, payer: Payer) -> None:
    await payer.open(150 * TOKEN)
    response, _ = await client.chat(model="tiers", max_tokens=100, service_tier="priority")
    assert response.status == 429
    response, _ = await client.chat(model="tiers", max_tokens=100)
    assert response.status == 200


@pytest.mark.holds("prices.md#what-is-charged-16")
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("tier", ["flex", "scale", "priority", "fast"])
async def test_service_tier_without_a_multiplier_is_not_sent(
    client: Client, upstream: FakeUpstream, payer: Payer, ledger: Ledger, tier: str, stream: bool
) -> None:
    await payer.open(LONGEST * TOKEN)
    call = client.stream if stream else client.chat
    response, answer, *_ = await call(model="strict", max_tokens=100, service_tier=tier, flavour="x")
    assert response.status == 200
    assert "service_tier" not in upstream.seen[-1].json
    assert response.headers["x-gateway-dropped-params"] == "service_tier"
    told = answer if stream else msgspec.json.encode(answer).decode()
    assert tier not in told  # the caller does not read that it was granted
    assert '"service_tier":"default"' in told
    assert LONGEST * TOKEN - await payer.left() == 100 * TOKEN + 8000


@pytest.mark.parametrize(("model", "tier"), [("strict", "auto"), ("strict", "default"), ("tiers", "priority")])
async def test_service_tier_that_is_usual_or_has_a_multiplier_is_sent(
    client: Client, upstream: FakeUpstream, payer: Payer, model: str, tier: str
) -> None:
    await payer.open(LONGEST * TOKEN)
    response, _ = await client.chat(model=model, max_tokens=100, service_tier=tier)
    assert upstream.seen[-1].json["service_tier"] == tier
    assert "x-gateway-dropped-params" not in response.headers


@pytest.mark.holds("prices.md#what-is-charged-16")
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("tier", ["flex", "priority"])
async def test_service_tier_that_the_provider_does_not_take_is_not_charged(
    client: Client, upstream: FakeUpstream, payer: Payer, tier: str, stream: bool
) -> None:
    await payer.open(LONGEST * TOKEN)
    call = client.stream if stream else client.chat
    _, answer, *_ = await call(model="no-tiers", max_tokens=100, service_tier=tier)
    assert "service_tier" not in upstream.seen[-1].json
    assert '"service_tier":"default"' in (answer if stream else msgspec.json.encode(answer).decode())
    assert LONGEST * TOKEN - await payer.left() == 100 * TOKEN + 8000

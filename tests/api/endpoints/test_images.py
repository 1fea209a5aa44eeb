"""`POST /v1/images/generations`: one document or named events, what is held and charged, and every refusal."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from gateway.accounts.accounts import Accounts
from gateway.accounts.keys import Keys
from gateway.amounts import NANO
from gateway.config.loader import parse
from gateway.config.settings import Settings
from gateway.errors import InvalidApiKey
from gateway.ledger import Ledger
from gateway.metrics import MetricsDelta, Totals
from gateway.runtime.gateway import Gateway
from gateway.testing import FakeUpstream, Reply
from gateway.testing.openai_dialect import PIXEL
from tests.api.conftest import Client, record_holds, settled
from tests.ledger_lines import last_line
from tests.polling import until

PATH = "/v1/images/generations"
PROMPT = "a grey heron"
CENT = NANO // 100
#: Cents by size and quality: no row is as dear as the large one in high quality.
PER_IMAGE = {"1024x1024": {"low": "0.01", "high": "0.04"}, "1536x1024": {"low": "0.02", "high": "0.08"}}
#: Here most is left to "*", which is not the dearest.
OPEN = {"*": "0.03", "512x512": {"low": "0.02", "high": "0.07", "*": "0.04"}, "1024x1024": {"low": "0.05"}}
PER_TOKEN = {"input": 1000, "image_output": 1000}  # 0.001 a token
TOKEN = NANO // 1000


async def released(accounts: Accounts) -> Any:
    """The account once nothing is held; the answer of a failed call may arrive before its settlement is stored."""
    account = await accounts.show("acme")
    return account if account.held == 0 else None


@pytest.fixture
def settings(tmp_path: Path, upstream: FakeUpstream) -> Settings:
    """Image models priced by image, by token and by both, on a server that tells addresses when asked."""
    up: dict[str, Any] = {"plugin": "openai", "base_url": upstream.base_url, "api_key": "sk-upstream-canary-0123456789"}
    up["forward_params"] = ["seed"]
    model = {"provider": "up", "model": "upstream-i1", "price": {"per_image": PER_IMAGE}, "endpoints": ["images"]}
    places = [{"provider": "up", "model": "first"}, {"provider": "other", "model": "second"}]
    return parse(
        {
            "store": {"data_dir": str(tmp_path)},
            "server": {"response_headers": ["cost"], "limits": {"default_image_model": "i1"}},
            "providers": {
                "up": up,
                "other": up,
                "strict": {**up, "image_response_format": "omit"},
                "fake": {"plugin": "fake", "models": {"cut": {"fail_after": 3}, "silent": {"silent_after": 2}}},
            },
            "groups": {"default": {}, "inner": {}},
            "models": {
                "i1": model,
                "tokens": {**model, "price": PER_TOKEN},
                "both": {**model, "price": {**PER_TOKEN, "per_image": PER_IMAGE}},
                "open": {**model, "price": {"per_image": OPEN}},
                "strict": {**model, "provider": "strict"},
                "secret": {**model, "groups": ["inner"]},
                "two": {**{k: v for k, v in model.items() if k not in ("provider", "model")},
                        "targets": places, "strategy": "in_order"},
                "chat": {"provider": "up", "price": {"input": 1, "output": 1}},
                "cut": {**model, "provider": "fake", "model": "cut"},
                "silent": {**model, "provider": "fake", "model": "silent"},
                "made-up": {**model, "provider": "fake", "model": "plain"},
            },
        },
        demo=True,
    )  # fmt: skip


async def draw(client: Client, **fields: Any) -> tuple[aiohttp.ClientResponse, Any]:
    headers = {**client.headers, **fields.pop("headers", {})}
    document = {"model": "i1", "prompt": PROMPT, **fields}
    async with client.request("POST", PATH, data=msgspec.json.encode(document), headers=headers) as response:
        return response, await response.json()


async def stream(client: Client, **fields: Any) -> tuple[aiohttp.ClientResponse, list[tuple[str, Any]], bool]:
    """The response, its events, and whether the body came to its end."""
    document = {"model": "i1", "prompt": PROMPT, "stream": True, **fields}
    text, whole = b"", True
    async with client.request("POST", PATH, json=document) as response:
        try:
            async for part in response.content.iter_any():
                text += part
        except aiohttp.ClientError:
            whole = False
    events = []
    for frame in text.decode().split("\n\n"):
        lines = [line for line in frame.split("\n") if line and not line.startswith(":")]
        if lines:
            name, data = lines
            assert name.startswith("event: ") and data.startswith("data: "), frame
            events.append((name[7:], msgspec.json.decode(data[6:])))
    return response, events, whole


def answer(count: int = 1, **fields: Any) -> Reply:
    return Reply.json({"created": 1, "data": [{"b64_json": PIXEL}] * count, **fields})


def usage(text: int = 10, made: int = 100) -> dict[str, Any]:
    details = {"text_tokens": text, "image_tokens": 0}
    return {
        "input_tokens": text, "output_tokens": made, "total_tokens": text + made, "input_tokens_details": details
    }  # fmt: skip


async def line_of(ledger: Ledger, response: aiohttp.ClientResponse) -> Any:
    return await until(lambda: last_line(ledger, "acme", response.headers["x-request-id"]))


# One document --------------------------------------------------------------------------------------------------------


async def test_answer_has_the_images_and_their_properties(client: Client, upstream: FakeUpstream) -> None:
    upstream.enqueue(
        answer(2, size="1536x1024", quality="high", background="opaque", output_format="png", usage=usage())
    )
    response, document = await draw(client, n=2)
    assert response.status == 200
    assert response.headers["Content-Type"] == "application/json"
    assert document.pop("created") > 1
    assert document == {
        "data": [{"b64_json": PIXEL}, {"b64_json": PIXEL}],
        "size": "1536x1024",
        "quality": "high",
        "background": "opaque",
        "output_format": "png",
        "usage": usage(),
    }


async def test_upstream_gets_every_field_with_a_request_for_base64(client: Client, upstream: FakeUpstream) -> None:
    response, _ = await draw(client, size="1024x1024", quality="low", style="vivid", seed=3, api_key="sk-evil")
    assert upstream.seen[0].path == "/v1/images/generations"
    assert upstream.seen[0].json == {
        "model": "upstream-i1", "prompt": PROMPT, "size": "1024x1024", "quality": "low", "style": "vivid", "seed": 3,
        "response_format": "b64_json",
    }  # fmt: skip
    assert response.headers["x-gateway-dropped-params"] == "api_key"


async def test_response_format_is_not_sent_to_servers_that_refuse_it(client: Client, upstream: FakeUpstream) -> None:
    response, _ = await draw(client, model="strict", response_format="b64_json")
    assert response.status == 200
    assert "response_format" not in upstream.seen[0].json


async def test_image_urls_of_the_upstream_are_passed_on(client: Client, upstream: FakeUpstream) -> None:
    _, document = await draw(client, response_format="url")
    assert upstream.seen[0].json["response_format"] == "url"
    assert document["data"] == [{"url": "https://images.invalid/1.png"}]


async def test_request_without_a_model_uses_the_default_model(client: Client, upstream: FakeUpstream) -> None:
    async with client.request("POST", PATH, json={"prompt": PROMPT}) as response:
        assert response.status == 200
    assert upstream.seen[0].json["model"] == "upstream-i1"
    async with client.request("POST", PATH, json={"prompt": PROMPT, "model": None}) as response:
        assert response.status == 200


@pytest.mark.parametrize(
    "broken",
    [
        answer(0),
        Reply.json({}),
        Reply.json({"data": [{}]}),
        Reply.json({"data": [{"b64_json": "%%%%"}]}),
        Reply.json({"data": [{"url": "ftp://images.invalid/1.png"}]}),
        Reply.json({"data": "none"}),
        Reply(body=b"<html>"),
    ],
)
async def test_invalid_image_is_an_invalid_response_and_costs_nothing(
    client: Client, upstream: FakeUpstream, accounts: Accounts, broken: Reply
) -> None:
    upstream.answer = lambda _: broken
    response, document = await draw(client)
    assert (response.status, document["error"]["code"]) == (502, "upstream_invalid_response")
    account = await until(lambda: released(accounts))
    assert (account.balance, account.held) == (10 * NANO, 0)


@pytest.mark.parametrize("status", [400, 403])
async def test_refusal_by_the_upstreams_filter_is_a_content_policy_error(
    client: Client, upstream: FakeUpstream, accounts: Accounts, status: int
) -> None:
    upstream.answer = lambda _: Reply.error(status, "rejected by the safety system", code="moderation_blocked")
    response, document = await draw(client)
    error = document["error"]
    assert (response.status, error["code"], error["param"]) == (400, "content_policy_violation", "prompt")
    account = await until(lambda: released(accounts))
    assert (account.balance, account.held) == (10 * NANO, 0)


async def test_invalid_answer_of_one_target_is_retried_on_the_next_and_charged_once(
    client: Client, upstream: FakeUpstream, ledger: Ledger
) -> None:
    upstream.enqueue(answer(0), answer(size="1024x1024", quality="low"))
    response, _ = await draw(client, model="two")
    line = await line_of(ledger, response)
    assert [seen.json["model"] for seen in upstream.seen] == ["first", "second"]
    assert line.amount == -1 * CENT
    assert line.meta["attempts"] == 2


# Money ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "told", "cents"),
    [
        ({"size": "1024x1024", "quality": "low"}, {}, 1),
        ({"size": "1536x1024", "quality": "high"}, {}, 8),
        ({"size": "1024x1024", "quality": "low", "n": 3}, {}, 3),
        ({}, {"size": "1024x1024", "quality": "high"}, 4),
        ({"quality": "auto", "size": "auto"}, {"size": "1536x1024", "quality": "low"}, 2),
        ({"size": "1024x1024", "quality": "low"}, {"size": "1536x1024", "quality": "high"}, 1),  # as asked, as held
        ({}, {}, 8),  # nobody has said: the dearest
    ],
)
async def test_charge_is_the_images_delivered_by_their_size_and_quality(
    client: Client,
    upstream: FakeUpstream,
    ledger: Ledger,
    accounts: Accounts,
    fields: dict[str, Any],
    told: dict[str, str],
    cents: int,
) -> None:
    upstream.enqueue(answer(fields.get("n", 1), **told))
    response, _ = await draw(client, **fields)
    line = await line_of(ledger, response)
    assert line.amount == -cents * CENT
    assert line.meta["usage"]["images"]["count"] == fields.get("n", 1)
    assert response.headers["x-gateway-cost"] == f"0.0{cents}"
    assert "x-gateway-estimated" not in response.headers
    account = await until(lambda: released(accounts))
    assert (account.balance, account.held) == (10 * NANO - cents * CENT, 0)


@pytest.mark.parametrize(("delivered", "charged"), [(1, 1), (2, 2), (5, 3)])
async def test_missing_images_reduce_the_charge_and_extra_ones_do_not_raise_it(
    client: Client, upstream: FakeUpstream, ledger: Ledger, delivered: int, charged: int
) -> None:
    upstream.enqueue(answer(delivered))
    response, document = await draw(client, n=3, size="1024x1024", quality="low")
    assert len(document["data"]) == charged
    assert (await line_of(ledger, response)).amount == -charged * CENT


@pytest.mark.parametrize(
    ("fields", "held"),
    [
        ({"size": "1024x1024", "quality": "low"}, 1 * CENT),
        ({"size": "1024x1024", "quality": "low", "n": 4}, 4 * CENT),
        # What no row names is charged as the dearest row, and the model may choose just that.
        ({"size": "1024x1024"}, 8 * CENT),
        ({"quality": "low"}, 8 * CENT),
        ({"quality": "low", "model": "open"}, 5 * CENT),
        ({"size": "512x512", "model": "open"}, 7 * CENT),
        ({"size": "512x512", "quality": "low", "model": "open"}, 2 * CENT),
        ({"size": "8x8", "quality": "low", "model": "open"}, 3 * CENT),
        ({"size": "auto", "quality": "auto", "n": 2}, 16 * CENT),
        ({}, 8 * CENT),
    ],
)
async def test_hold_is_the_highest_price_that_the_request_allows(
    client: Client, gateway: Gateway, fields: dict[str, Any], held: int
) -> None:
    holds = record_holds(gateway)
    await draw(client, **fields)
    assert [hold.amount for hold in holds] == [held]


async def test_tokens_are_charged_by_the_upstreams_count(
    client: Client, upstream: FakeUpstream, ledger: Ledger
) -> None:
    upstream.enqueue(answer(usage=usage(12, 300)))
    response, _ = await draw(client, model="tokens", quality="low")
    line = await line_of(ledger, response)
    assert line.amount == -(12 + 300) * TOKEN
    images = {"count": 1, "size": "1x1", "quality": "low"}  # nobody said the size, so it was measured
    assert line.meta["usage"] == {"in_text": 12, "out_image": 300, "images": images}


async def test_prices_by_image_and_by_token_are_added(client: Client, upstream: FakeUpstream, ledger: Ledger) -> None:
    upstream.enqueue(answer(usage=usage(10, 100)))
    response, _ = await draw(client, model="both", size="1024x1024", quality="low")
    assert (await line_of(ledger, response)).amount == -110 * TOKEN - CENT


@pytest.mark.parametrize(
    "said", [None, {}, {"input_tokens": -1, "output_tokens": -1}, {"output_tokens": 10**18}, "many"]
)
async def test_missing_or_impossible_usage_is_estimated_if_tokens_are_charged(
    client: Client, upstream: FakeUpstream, ledger: Ledger, gateway: Gateway, said: Any
) -> None:
    holds = record_holds(gateway)
    upstream.enqueue(answer(usage=said))
    response, document = await draw(client, model="tokens", size="1024x1024", quality="low")
    line = await line_of(ledger, response)
    assert response.headers["x-gateway-estimated"] == "true"
    assert line.meta["estimated"]
    assert line.amount == -(3 + 500) * TOKEN
    assert -line.amount <= holds[0].amount
    assert document["usage"]["output_tokens"] == 500


async def test_balance_below_the_highest_price_is_refused_before_the_upstream(
    client: Client, upstream: FakeUpstream, accounts: Accounts, keys: Keys
) -> None:
    await accounts.create("poor", balance=7 * CENT)
    key = await keys.create("poor")
    headers = {"Authorization": f"Bearer {key.text}"}
    response, document = await draw(client, headers=headers)
    assert (response.status, document["error"]["type"]) == (429, "insufficient_quota")
    assert upstream.seen == []
    response, _ = await draw(client, size="1024x1024", quality="low", headers=headers)
    assert response.status == 200


async def test_same_idempotency_key_generates_once(client: Client, upstream: FakeUpstream, accounts: Accounts) -> None:
    headers = {"Idempotency-Key": "order-1"}
    fields = {"size": "1024x1024", "quality": "low", "headers": headers}
    _, document = await draw(client, **fields)
    again, repeated = await draw(client, **{**fields, "headers": headers})
    assert again.headers["Idempotent-Replayed"] == "true"
    assert repeated == document
    assert len(upstream.seen) == 1
    assert (await settled(accounts)).balance == 10 * NANO - CENT


# Events --------------------------------------------------------------------------------------------------------------


async def test_image_stream_has_named_events_and_no_done_marker(client: Client, ledger: Ledger) -> None:
    response, events, whole = await stream(client, partial_images=2, size="1024x1024", quality="low")
    assert whole
    assert response.headers["Content-Type"] == "text/event-stream; charset=utf-8"
    assert [name for name, _ in events] == ["image_generation.partial_image"] * 2 + ["image_generation.completed"]
    for number, (name, data) in enumerate(events[:2]):
        assert data.pop("created_at") > 1
        assert data == {
            "type": name, "b64_json": PIXEL, "partial_image_index": number, "size": "1024x1024", "quality": "low",
            "background": "opaque", "output_format": "png",
        }  # fmt: skip
    last = events[2][1]
    assert last["usage"] == usage()
    assert "partial_image_index" not in last
    assert (await line_of(ledger, response)).amount == -CENT


async def test_stream_of_several_images_has_a_completed_event_for_each(client: Client, ledger: Ledger) -> None:
    response, events, whole = await stream(client, n=3, model="both", size="1024x1024", quality="low")
    assert whole
    assert [name for name, _ in events] == ["image_generation.completed"] * 3
    assert (await line_of(ledger, response)).amount == -3 * CENT - (10 + 300) * TOKEN


async def test_time_spent_on_the_upstream_is_not_counted_as_overhead(
    client: Client, gateway: Gateway, upstream: FakeUpstream
) -> None:
    upstream.tamper = lambda reply: msgspec.structs.replace(reply, interval=0.2)
    _, events, _ = await stream(client, n=3)
    assert len(events) == 3
    totals = Totals()
    totals.merge(gateway.metrics.drain() or MetricsDelta(), source="w")
    text = totals.text()[0].decode()
    took, ours = (
        float(next(line for line in text.splitlines() if line.startswith(f'{name}_sum{{endpoint="images"')).split()[-1])
        for name in ("gateway_request_duration_seconds", "gateway_overhead_seconds")
    )
    assert took > 0.6
    assert ours < took - 0.5  # the upstream took 0.6 s and more


async def test_failure_before_the_first_event_has_its_http_status(client: Client, upstream: FakeUpstream) -> None:
    upstream.answer = lambda _: Reply.error(400, "flagged by the safety system")
    async with client.request("POST", PATH, json={"model": "i1", "prompt": PROMPT, "stream": True}) as response:
        assert response.status == 400
        assert (await response.json())["error"]["code"] == "content_policy_violation"


async def test_failure_after_the_first_event_is_an_error_event_and_delivered_images_are_charged(
    client: Client, ledger: Ledger
) -> None:
    fields = {"size": "1024x1024", "quality": "low", "n": 4, "partial_images": 1}
    response, events, whole = await stream(client, model="cut", **fields)
    names = ["image_generation.partial_image", "image_generation.completed", "image_generation.partial_image", "error"]
    assert [name for name, _ in events] == names
    error = events[-1][1]
    assert error["type"] == "error"
    assert error["error"]["code"] == "upstream_error"
    assert error["error"].keys() == {"message", "type", "param", "code"}
    assert not whole
    assert (await line_of(ledger, response)).amount == -1 * CENT


async def test_stream_that_ends_without_the_last_image_is_an_error(
    client: Client, upstream: FakeUpstream, ledger: Ledger
) -> None:
    def shorten(reply: Reply) -> Reply:
        return msgspec.structs.replace(reply, frames=(reply.frames or [])[:-1])

    upstream.tamper = shorten
    response, events, whole = await stream(client, n=2, size="1024x1024", quality="low")
    assert [name for name, _ in events] == ["image_generation.completed", "error"]
    assert events[-1][1]["error"]["code"] == "upstream_stream_truncated"
    assert not whole
    assert (await line_of(ledger, response)).amount == -CENT


async def test_extra_images_of_a_stream_are_dropped_and_not_charged(
    client: Client, upstream: FakeUpstream, ledger: Ledger
) -> None:
    def double(reply: Reply) -> Reply:
        return msgspec.structs.replace(reply, frames=(reply.frames or []) * 2)

    upstream.tamper = double
    response, events, whole = await stream(client, n=2, size="1024x1024", quality="low")
    assert [name for name, _ in events] == ["image_generation.completed"] * 2
    assert whole
    assert (await line_of(ledger, response)).amount == -2 * CENT


async def test_client_that_disconnects_from_a_stream_pays_for_delivered_images(
    client: Client, accounts: Accounts
) -> None:
    document = {"model": "silent", "prompt": PROMPT, "stream": True, "n": 3, "size": "1024x1024", "quality": "low"}
    async with client.request("POST", PATH, json=document) as response:
        text = b""
        while text.count(b"event: image_generation.completed") < 2:
            text += await response.content.readany()

    async def settled() -> Any:
        account = await until(lambda: released(accounts))
        return account if not account.held else None

    assert (await until(settled)).balance == 10 * NANO - 2 * CENT


async def test_revoked_key_ends_a_running_stream_with_an_error_event(
    client: Client, gateway: Gateway, accounts: Accounts
) -> None:
    fields = {"model": "silent", "n": 3, "size": "1024x1024", "quality": "low"}
    task = asyncio.ensure_future(stream(client, **fields))
    await until(lambda: delivered(gateway) == 2)
    gateway.active_calls.cut_all(InvalidApiKey())
    _, events, whole = await task
    assert events[-1][0] == "error"
    assert events[-1][1]["error"]["code"] == "invalid_api_key"
    assert not whole
    assert (await settled(accounts)).balance == 10 * NANO - 2 * CENT


def delivered(gateway: Gateway) -> int:
    """Events sent by the calls that run."""
    return sum(call.chunks for call in gateway.active_calls._calls.values())


@pytest.mark.slow
async def test_comments_are_sent_while_a_slow_image_is_generated(
    client: Client, gateway: Gateway, upstream: FakeUpstream
) -> None:
    gateway.keep_alive.commit_after = gateway.keep_alive.comment_after = 0.1

    def slow(reply: Reply) -> Reply:
        return msgspec.structs.replace(reply, delay=2.5)

    upstream.tamper = slow
    text = b""
    async with client.request("POST", PATH, json={"model": "i1", "prompt": PROMPT, "stream": True}) as response:
        async for part in response.content.iter_any():
            text += part
    assert text.startswith(b": keep-alive\n\n")
    assert b"event: image_generation.completed" in text


# Refusals ------------------------------------------------------------------------------------------------------------

BAD = [
    ({"prompt": None}, 400, "invalid_type", "prompt"),
    ({"prompt": ""}, 400, "empty_string", "prompt"),
    ({"prompt": "x" * 32_001}, 400, "string_above_max_length", "prompt"),
    ({"prompt": ["x"]}, 400, "invalid_type", "prompt"),
    ({"model": ""}, 400, "empty_string", "model"),
    ({"model": "chat"}, 400, "unsupported_parameter", "model"),
    ({"model": "nowhere"}, 403, "model_not_permitted", "model"),
    ({"model": "secret"}, 403, "model_not_permitted", "model"),
    ({"n": 0}, 400, "integer_below_min_value", "n"),
    ({"n": 11}, 400, "integer_above_max_value", "n"),
    ({"n": "1"}, 400, "invalid_type", "n"),
    ({"size": "big"}, 400, "invalid_value", "size"),
    ({"size": "0x10"}, 400, "invalid_value", "size"),
    ({"size": "1024x1024\n"}, 400, "invalid_value", "size"),
    ({"quality": "ultra"}, 400, "invalid_value", "quality"),
    ({"background": "blue"}, 400, "invalid_value", "background"),
    ({"background": "transparent", "output_format": "jpeg"}, 400, "invalid_value", "background"),
    ({"output_format": "bmp"}, 400, "invalid_value", "output_format"),
    ({"output_compression": 101}, 400, "integer_above_max_value", "output_compression"),
    ({"output_compression": 50}, 400, "invalid_value", "output_compression"),
    ({"output_compression": 50, "output_format": "gif"}, 400, "invalid_value", "output_compression"),
    ({"moderation": "none"}, 400, "invalid_value", "moderation"),
    ({"partial_images": 2}, 400, "invalid_value", "partial_images"),
    ({"partial_images": 4, "stream": True}, 400, "integer_above_max_value", "partial_images"),
    ({"response_format": "blob"}, 400, "invalid_value", "response_format"),
    ({"response_format": "url", "stream": True}, 400, "invalid_value", "response_format"),
    ({"response_format": "url", "model": "strict"}, 400, "unsupported_value", "response_format"),
    ({"style": "odd"}, 400, "invalid_value", "style"),
    ({"complexity": "odd"}, 400, "invalid_value", "complexity"),
    ({"frame_count": 4}, 400, "invalid_value", "frame_count"),
    ({"frame_count": 17, "output_format": "gif"}, 400, "integer_above_max_value", "frame_count"),
    ({"frame_duration_ms": 100, "output_format": "png"}, 400, "invalid_value", "frame_duration_ms"),
    ({"svg": {"model": "m"}}, 400, "invalid_value", "svg"),
    ({"svg": {}, "output_format": "svg"}, 400, "missing_required_parameter", "svg.model"),
    ({"output_format": "svg", "n": 2}, 400, "invalid_value", "n"),
    ({"output_format": "svg", "stream": True}, 400, "invalid_value", "stream"),
    ({"safety_identifier": "x" * 129}, 400, "string_above_max_length", "safety_identifier"),
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
    response, document = await draw(client, **fields)
    error = document["error"]
    assert (response.status, error["code"], error["param"]) == (status, code, param), error
    assert error["message"]
    assert holds == []
    account = await until(lambda: released(accounts))
    assert (account.balance, account.held) == (10 * NANO, 0)
    assert upstream.seen == []


@pytest.mark.parametrize(
    "fields",
    [
        {"background": "transparent"},
        {"background": "transparent", "output_format": "webp"},
        {"output_compression": 100},
        {"output_compression": 50, "output_format": "jpeg"},
        {"partial_images": 0},
        {"output_format": "gif", "frame_count": 4, "frame_duration_ms": 100},
        {"output_format": "svg", "svg": {"model": "m", "reasoning": {"effort": "low"}}},
        {"size": "3840x2160", "quality": "max"},
    ],
)
async def test_fields_within_their_bounds_are_sent(
    client: Client, upstream: FakeUpstream, fields: dict[str, Any]
) -> None:
    response, _ = await draw(client, **fields)
    assert response.status == 200
    assert fields.items() <= {"partial_images": 0, **upstream.seen[0].json}.items()

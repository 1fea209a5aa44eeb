"""`POST /v1/completions`: over an upstream that has it, over one with chats alone, and what is held and charged."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from msgspec import structs

from gateway.accounts.accounts import Accounts
from gateway.amounts import NANO
from gateway.config.loader import parse
from gateway.config.settings import Settings
from gateway.ledger import Ledger
from gateway.runtime.gateway import Gateway
from gateway.testing import FakeUpstream, Reply
from tests.api.conftest import Client, record_holds, settled
from tests.api.endpoints.test_chat_stream import documents
from tests.ledger_lines import last_line
from tests.polling import at_once, until

PATH = "/v1/completions"
IN, OUT = 1_000, 2_000  # nano units for a token
USAGE = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}


@pytest.fixture
def settings(tmp_path: Path, upstream: FakeUpstream) -> Settings:
    """Models on one upstream: with completions, with chats alone, and on both."""
    up: dict[str, Any] = {"plugin": "openai", "base_url": upstream.base_url, "api_key": "sk-upstream-canary-0123456789"}
    native = {**up, "completions": True, "forward_params": ["min_p"]}
    model = {"provider": "native", "model": "base", "price": {"input": 1, "output": 2}, "retries": 0}
    targets = [{"provider": "chats", "model": "first"}, {"provider": "native", "model": "second"}]
    return parse(
        {
            "store": {"data_dir": str(tmp_path)},
            "providers": {
                "native": native,
                "chats": up,
                "llamacpp": {**up, "preset": "llamacpp"},
                "fake": {"plugin": "fake"},
            },
            "groups": {"default": {}},
            "models": {
                "m1": model,
                "chat": {**model, "provider": "chats"},
                "both": {"targets": targets, "strategy": "in_order", "price": {"input": 1, "output": 2}, "retries": 0},
                "small": {**model, "context_window": 10},
                "capped": {**model, "max_output_tokens": 100},
                "cold": {**model, "unsupported_params": ["temperature"]},
                "llama": {**model, "provider": "llamacpp"},
                "made-up": {**model, "provider": "fake"},
            },
        },
        demo=True,
    )


async def complete(client: Client, prompt: Any = "one two three", **fields: Any) -> tuple[aiohttp.ClientResponse, Any]:
    """The response of a whole call, and its JSON."""
    document = {"model": "m1", "prompt": prompt, **fields}
    async with client.request("POST", PATH, json=document) as response:
        return response, await response.json()


async def stream(
    client: Client, prompt: Any = "one two three", **fields: Any
) -> tuple[aiohttp.ClientResponse, str, BaseException | None]:
    """The response of a streamed call, all text received, and how reading ended if not well."""
    text, failure = b"", None
    document = {"model": "m1", "prompt": prompt, "stream": True, **fields}
    async with client.request("POST", PATH, json=document) as response:
        try:
            async for part in response.content.iter_any():
                text += part
        except aiohttp.ClientError as error:
            failure = error
    return response, text.decode(), failure


def texts_of(text: str) -> dict[int, str]:
    """The texts that a stream spells, by choice."""
    texts: dict[int, str] = {}
    for document in documents(text):
        for choice in document.get("choices", []):
            texts[choice["index"]] = texts.get(choice["index"], "") + choice["text"]
    return texts


def answer(*texts: str, usage: Any = USAGE, **fields: Any) -> Reply:
    """A whole answer of an upstream."""
    choices = [{"index": index, "text": text, "finish_reason": "stop"} for index, text in enumerate(texts)]
    return Reply.json({"id": "up", "object": "text_completion", "choices": choices, "usage": usage, **fields})


def chunk(text: str = "", finish: str | None = None, **fields: Any) -> dict[str, Any]:
    """An upstream's chunk."""
    return {
        "id": "up",
        "object": "text_completion",
        "created": 1,
        "model": "base",
        "choices": [{"index": 0, "text": text, "logprobs": None, "finish_reason": finish}],
        **fields,
    }


HELLO = [chunk("Hel"), chunk("lo"), chunk(finish="stop"), {**chunk(), "choices": [], "usage": USAGE}]


def frames(items: list[dict[str, Any]]) -> list[bytes]:
    """The bytes of events."""
    return [b"data: %b\n\n" % msgspec.json.encode(item) for item in items]


# Answers of an upstream that has completions -------------------------------------------------------------------------


async def test_whole_answer_has_the_form_of_a_text_completion(client: Client, upstream: FakeUpstream) -> None:
    response, document = await complete(client)
    assert response.status == 200
    assert upstream.seen[0].path == "/v1/completions"
    assert set(document) == {"id", "object", "created", "model", "choices", "usage"}
    assert document["object"] == "text_completion" and document["model"] == "m1"
    assert document["id"].startswith("cmpl-") and len(document["id"]) == len("cmpl-") + 29
    assert document["choices"] == [
        {"index": 0, "text": "one two three ", "logprobs": None, "finish_reason": "stop"},
    ]
    assert document["usage"]["total_tokens"] == 6


async def test_call_is_found_by_the_id_of_its_answer(client: Client) -> None:
    response, document = await complete(client)

    async def receipt() -> Any:
        async with client.request("GET", f"/v1/usage/{document['id']}") as found:
            return await found.json() if found.status == 200 else None

    found = await until(receipt)
    assert found["request_id"] == response.headers["x-request-id"]


async def test_request_goes_up_as_it_was_sent(client: Client, upstream: FakeUpstream) -> None:
    sent = {
        "prompt": [[1, 2], [3]],
        "suffix": "end",
        "n": 2,
        "best_of": 3,
        "logprobs": 0,
        "echo": True,
        "logit_bias": {"50256": -100},
        "user": "u",
        "temperature": 0.5,
        "stop": ["\n"],
        "seed": 7,
        "max_tokens": 5,
        "min_p": 0.1,
    }
    response, _ = await complete(client, **sent)
    assert response.status == 200
    assert upstream.seen[0].json == {"model": "base", **sent}


async def test_limit_of_16_tokens_is_sent_where_the_caller_names_none(client: Client, upstream: FakeUpstream) -> None:
    _, document = await complete(client, " ".join(map(str, range(40))))
    assert upstream.seen[0].json["max_tokens"] == 16
    assert document["choices"][0]["finish_reason"] == "length"
    assert document["usage"]["completion_tokens"] == 16


async def test_null_prompt_is_sent_as_null(client: Client, upstream: FakeUpstream) -> None:
    upstream.enqueue(answer("Once"))
    response, _ = await complete(client, None)
    assert response.status == 200
    assert upstream.seen[0].json["prompt"] is None


@pytest.mark.holds("api.md#post-v1completions-1")
@pytest.mark.parametrize("streamed", [False, True])
async def test_choices_of_the_first_prompt_come_first(client: Client, streamed: bool) -> None:
    fields = {"prompt": ["a b", "c d"], "n": 2}
    if streamed:
        _, text, _ = await stream(client, **fields)
        found = texts_of(text)
    else:
        _, document = await complete(client, **fields)
        found = {choice["index"]: choice["text"] for choice in document["choices"]}
    assert found == {0: "a b ", 1: "a b ", 2: "c d ", 3: "c d "}


async def test_log_probabilities_are_passed_on(client: Client) -> None:
    _, document = await complete(client, "a b", logprobs=1)
    assert document["choices"][0]["logprobs"] == {
        "tokens": ["a ", "b "],
        "token_logprobs": [-0.5, -0.5],
        "top_logprobs": [{"a ": -0.5}, {"b ": -0.5}],
        "text_offset": [0, 2],
    }


@pytest.mark.no_standard
async def test_log_probabilities_in_the_form_of_a_chat_become_those_of_a_completion(
    client: Client, upstream: FakeUpstream
) -> None:
    def token(text: str) -> dict[str, Any]:
        return {"id": 5, "token": text, "logprob": -1.0, "top_logprobs": [{"token": text, "logprob": -1.0}]}

    first, second = ([token("He")], "He"), ([token("l"), token("lo")], "llo")
    upstream.enqueue(
        Reply.stream(
            [
                *(
                    {"choices": [{"index": 0, "text": text, "logprobs": {"content": tokens}, "finish_reason": None}]}
                    for tokens, text in (first, second)
                ),
                chunk(finish="stop"),
            ]
        )
    )
    _, text, _ = await stream(client, model="llama", logprobs=1)
    found = [frame["choices"][0]["logprobs"] for frame in documents(text)]
    assert found == [
        {"tokens": ["He"], "token_logprobs": [-1.0], "top_logprobs": [{"He": -1.0}], "text_offset": [0]},
        {
            "tokens": ["l", "lo"],
            "token_logprobs": [-1.0, -1.0],
            "top_logprobs": [{"l": -1.0}, {"lo": -1.0}],
            "text_offset": [2, 3],
        },
        None,
    ]


async def test_sampling_field_that_the_model_refuses_is_left_out_and_named(
    client: Client, upstream: FakeUpstream
) -> None:
    response, _ = await complete(client, model="cold", temperature=0.5, zeal=3, api_base="http://evil.invalid")
    assert response.status == 200
    assert set(upstream.seen[0].json) == {"model", "prompt", "max_tokens"}
    assert response.headers["x-gateway-dropped-params"] == "api_base,temperature,zeal"


async def test_fields_that_ask_for_nothing_reach_no_server_that_does_not_know_them(
    client: Client, upstream: FakeUpstream
) -> None:
    response, _ = await complete(client, model="llama", best_of=1, n=1, echo=False, suffix="", user="u")
    assert response.status == 200
    assert set(upstream.seen[0].json) == {"model", "prompt", "max_tokens", "n"}
    assert "x-gateway-dropped-params" not in response.headers


async def test_provider_without_a_network_makes_completions_up(client: Client) -> None:
    _, document = await complete(client, ["a b", "c"], model="made-up", n=2, best_of=3, echo=True, logprobs=1)
    texts = [choice["text"] for choice in document["choices"]]
    assert texts == ["a bYou said: a b", "a bYou said: a b", "cYou said: c", "cYou said: c"]
    assert document["usage"]["completion_tokens"] == 3 * (4 + 3)
    assert document["choices"][1]["logprobs"]["text_offset"] == [0, 3, 7, 13, 15]


# Upstreams with chats alone ------------------------------------------------------------------------------------------


async def test_prompt_becomes_one_user_message_of_a_chat(client: Client, upstream: FakeUpstream) -> None:
    response, document = await complete(client, ["Hi there"], model="chat", temperature=0.5, user="u", tools=[])
    assert response.status == 200
    assert upstream.seen[0].path == "/v1/chat/completions"
    assert upstream.seen[0].json == {
        "model": "base",
        "messages": [{"role": "user", "content": "Hi there"}],
        "max_tokens": 16,
        "temperature": 0.5,
        "user": "u",
    }
    assert document["object"] == "text_completion"
    assert document["choices"] == [{"index": 0, "text": "Hi there ", "logprobs": None, "finish_reason": "stop"}]
    assert response.headers["x-gateway-dropped-params"] == "tools"


async def test_stream_of_a_chat_becomes_a_stream_of_texts(client: Client) -> None:
    response, text, failure = await stream(client, "Hi there", model="chat")
    assert (response.status, failure) == (200, None)
    assert texts_of(text) == {0: "Hi there "}
    assert text.endswith("data: [DONE]\n\n")


CHAT_LACKS = [
    ({"suffix": "end"}, "suffix"),
    ({"echo": True}, "echo"),
    ({"best_of": 2}, "best_of"),
    ({"logprobs": 0}, "logprobs"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"prompt": [1, 2]}, "prompt"),
    ({"prompt": [[1], [2]]}, "prompt"),
    ({"prompt": ["a", "b"]}, "prompt"),
    ({"prompt": None}, "prompt"),
]


@pytest.mark.parametrize(("fields", "param"), CHAT_LACKS, ids=str)
async def test_what_a_chat_cannot_meet_is_refused_before_anything_is_held(
    client: Client, upstream: FakeUpstream, gateway: Gateway, fields: dict[str, Any], param: str
) -> None:
    holds = record_holds(gateway)
    response, document = await complete(client, **{"model": "chat", "prompt": "Hi", **fields})
    assert (response.status, document["error"]["code"]) == (400, "unsupported_parameter")
    assert document["error"]["param"] == param
    assert (holds, upstream.seen) == ([], [])


@pytest.mark.parametrize(("fields", "param"), CHAT_LACKS, ids=str)
async def test_what_a_chat_cannot_meet_goes_to_the_target_that_has_completions(
    client: Client, upstream: FakeUpstream, fields: dict[str, Any], param: str
) -> None:
    response, _ = await complete(client, **{"model": "both", "prompt": "Hi", **fields})
    assert response.status == 200
    assert (upstream.seen[0].path, upstream.seen[0].json["model"]) == ("/v1/completions", "second")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"max_tokens": 0}, "max_tokens"),
        ({"best_of": 2}, "best_of"),
        ({"echo": True}, "echo"),
        ({"suffix": "x"}, "suffix"),
        ({"prompt": None}, "prompt"),
    ],
)
async def test_what_a_server_with_completions_lacks_is_refused(
    client: Client, upstream: FakeUpstream, fields: dict[str, Any], param: str
) -> None:
    response, document = await complete(client, model="llama", **fields)
    assert (response.status, document["error"]["code"]) == (400, "unsupported_parameter")
    assert document["error"]["param"] == param
    assert upstream.seen == []


# Refusals ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({"prompt": ...}, "missing_required_parameter", "prompt"),
        ({"model": ...}, "missing_required_parameter", "model"),
        ({"prompt": []}, "empty_array", "prompt"),
        ({"prompt": [[]]}, "empty_array", "prompt[0]"),
        ({"prompt": {"a": 1}}, "invalid_type", "prompt"),
        ({"prompt": ["a", 1]}, "invalid_type", "prompt[1]"),
        ({"prompt": [-1]}, "integer_below_min_value", "prompt[0]"),
        ({"prompt": ["a"] * 65, "n": 2}, "array_above_max_length", "prompt"),
        ({"max_tokens": -1}, "integer_below_min_value", "max_tokens"),
        ({"n": 129}, "integer_above_max_value", "n"),
        ({"best_of": 21}, "integer_above_max_value", "best_of"),
        ({"best_of": 1, "n": 2}, "invalid_value", "best_of"),
        ({"best_of": 2, "stream": True}, "invalid_value", "best_of"),
        ({"logprobs": 6}, "integer_above_max_value", "logprobs"),
        ({"logprobs": True}, "invalid_type", "logprobs"),
        ({"temperature": 2.5}, "decimal_above_max_value", "temperature"),
        ({"stop": [""]}, "empty_string", "stop[0]"),
        ({"logit_bias": {"a": 1}}, "invalid_value", "logit_bias"),
        ({"stream_options": {"include_usage": True}}, "invalid_value", "stream_options"),
        ({"model": "capped", "max_tokens": 101}, "integer_above_max_value", "max_tokens"),
        ({"model": "small", "prompt": "x" * 400}, "context_length_exceeded", "prompt"),
        ({"model": "small", "prompt": list(range(30))}, "context_length_exceeded", "prompt"),
    ],
    ids=str,
)
async def test_invalid_request_gets_its_error_and_nothing_is_held_or_sent(
    client: Client, upstream: FakeUpstream, gateway: Gateway, fields: dict[str, Any], code: str, param: str
) -> None:
    holds = record_holds(gateway)
    document = {"model": "m1", "prompt": "Hi", **fields}
    document = {name: value for name, value in document.items() if value is not ...}
    async with client.request("POST", PATH, json=document) as response:
        error = (await response.json())["error"]
    assert (response.status, error["code"]) == (400, code)
    assert error["param"].startswith(param)
    assert (holds, upstream.seen) == ([], [])


# Money ---------------------------------------------------------------------------------------------------------------


@pytest.mark.holds("api.md#post-v1completions-2")
@pytest.mark.parametrize(
    ("fields", "tokens"),
    [
        ({}, 16),
        ({"max_tokens": 100}, 100),
        ({"max_tokens": 100, "n": 2}, 200),
        ({"max_tokens": 100, "best_of": 5, "n": 2}, 500),
        ({"max_tokens": 100, "best_of": 5, "n": 2, "prompt": [[1, 2, 3], [4, 5, 6]]}, 1000),
        ({"max_tokens": 0, "echo": True}, 0),
    ],
    ids=str,
)
async def test_hold_covers_each_text_that_the_upstream_makes(
    client: Client, gateway: Gateway, fields: dict[str, Any], tokens: int
) -> None:
    holds = record_holds(gateway)
    given = fields.pop("prompt", [1, 2, 3])
    response, document = await complete(client, given, **fields)
    assert response.status == 200
    prompt = 8 if isinstance(given[0], list) else 4  # with the margin of an estimate
    assert [hold.amount for hold in holds] == [prompt * IN + tokens * OUT]
    assert document["usage"]["completion_tokens"] <= tokens


async def test_upstreams_count_is_charged_with_the_cached_part_at_its_price(
    client: Client, upstream: FakeUpstream, ledger: Ledger, accounts: Accounts
) -> None:
    upstream.enqueue(answer("Hello", usage={**USAGE, "prompt_tokens_details": {"cached_tokens": 4}}))
    response, document = await complete(client)
    line = await until(lambda: last_line(ledger, "acme", response.headers["x-request-id"]))
    assert line.amount == -(7 * IN + 3 * OUT)
    assert (line.meta["usage"]["in_text"], line.meta["usage"]["in_cached"]) == (3, 4)
    assert document["usage"]["prompt_tokens_details"]["cached_tokens"] == 4
    assert (await settled(accounts)).balance == 10 * NANO + line.amount


@pytest.mark.holds("api.md#post-v1completions-2")
async def test_count_of_best_of_texts_is_believed(client: Client, upstream: FakeUpstream, ledger: Ledger) -> None:
    upstream.enqueue(answer("Hello", usage={"prompt_tokens": 7, "completion_tokens": 150, "total_tokens": 157}))
    response, _ = await complete(client, best_of=10, max_tokens=15)
    line = await until(lambda: last_line(ledger, "acme", response.headers["x-request-id"]))
    assert line.amount == -(7 * IN + 150 * OUT)


async def test_count_above_what_was_asked_for_is_clipped_to_it(
    client: Client, upstream: FakeUpstream, ledger: Ledger
) -> None:
    upstream.enqueue(answer("Hello", usage={"prompt_tokens": 7, "completion_tokens": 9000, "total_tokens": 9007}))
    response, _ = await complete(client, best_of=2, max_tokens=15)
    line = await until(lambda: last_line(ledger, "acme", response.headers["x-request-id"]))
    assert line.amount == -(7 * IN + 30 * OUT)


LONG = "seven words are in each of these " * 40


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("given", [LONG, [LONG, LONG], list(range(100))], ids=["text", "texts", "tokens"])
async def test_echoed_prompt_is_no_output(
    client: Client, upstream: FakeUpstream, ledger: Ledger, given: Any, streamed: bool
) -> None:
    many = 2 if isinstance(given[0], str) and isinstance(given, list) else 1
    usage = {"prompt_tokens": 400, "completion_tokens": 0, "total_tokens": 400}
    choices = [{"index": i, "text": LONG, "logprobs": None, "finish_reason": "length"} for i in range(many)]
    if streamed:
        upstream.enqueue(Reply.stream([{**chunk(), "choices": choices}, {**chunk(), "choices": [], "usage": usage}]))
        response, _, _ = await stream(client, given, echo=True, max_tokens=0)
    else:
        upstream.enqueue(answer(*([LONG] * many), usage=usage))
        response, _ = await complete(client, given, echo=True, max_tokens=0)
    line = await until(lambda: last_line(ledger, "acme", response.headers["x-request-id"]))
    assert line.amount == -400 * IN
    assert not line.meta.get("estimated")


@pytest.mark.no_standard
@pytest.mark.parametrize("given", ["one two three", [1, 2, 3]], ids=["text", "tokens"])
async def test_without_a_count_the_text_after_the_echo_is_charged(
    client: Client, upstream: FakeUpstream, ledger: Ledger, given: Any
) -> None:
    upstream.enqueue(answer("one two three" + "x" * 40, usage=None))
    response, document = await complete(client, given, echo=True)
    line = await until(lambda: last_line(ledger, "acme", response.headers["x-request-id"]))
    assert line.meta["estimated"]
    assert 10 <= line.meta["usage"]["out_text"] <= 11
    assert response.headers["x-gateway-estimated"] == "true"
    assert document["usage"]["completion_tokens"] == line.meta["usage"]["out_text"]


@pytest.mark.no_standard
@pytest.mark.parametrize("streamed", [False, True])
async def test_count_of_a_server_that_counts_one_text_is_not_believed_for_several(
    client: Client, upstream: FakeUpstream, ledger: Ledger, streamed: bool
) -> None:
    """As llama.cpp does, which also begins such a stream with a null."""
    items = [{**chunk("x" * 40), "choices": [{"index": i, "text": "x" * 40, "finish_reason": "stop"}]} for i in (0, 1)]
    counts = {**chunk(), "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 10, "total_tokens": 13}}
    for prompt, tokens in (("a", 10), (["a", "b"], 20)):
        texts = items[: 1 if prompt == "a" else 2]
        if streamed:
            reply = Reply.stream([*texts, counts])
            upstream.enqueue(structs.replace(reply, frames=[b"data: null\n\n", *(reply.frames or [])]))
            response, _, _ = await stream(client, prompt, model="llama")
        else:
            upstream.enqueue(answer(*(["x" * 40] * len(texts)), usage=counts["usage"]))
            response, _ = await complete(client, prompt, model="llama")
        line = await until(lambda response=response: last_line(ledger, "acme", response.headers["x-request-id"]))
        assert (line.meta["usage"]["out_text"], bool(line.meta.get("estimated"))) == (tokens, len(texts) > 1)


# Hostile upstreams, and repeated requests ----------------------------------------------------------------------------

ODD: tuple[Any, ...] = (None, [], {}, 0, -1, 10**30, True, "", "x", ["x"], {"a": 1}, 0.5, "1")
PLACES = ("text", "index", "logprobs", "finish_reason")


def odd_documents() -> Iterator[dict[str, Any]]:
    """Answers with an odd value in each place."""
    for value in ODD:
        for place in PLACES:
            yield {**chunk("Hello", "stop"), "choices": [{**chunk("Hello", "stop")["choices"][0], place: value}]}
        yield {**chunk(), "choices": value}
        yield {**chunk("Hello", "stop"), "usage": value}
        for name in USAGE:
            yield {**chunk("Hello", "stop"), "usage": {**USAGE, name: value}}
        for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset", "content"):
            choice = {**chunk("Hello", "stop")["choices"][0], "logprobs": {"tokens": ["Hello"], name: value}}
            yield {**chunk(), "choices": [choice], "usage": USAGE}
            choice = {**choice, "logprobs": {"content": [{"token": value, "logprob": value, "top_logprobs": [value]}]}}
            yield {**chunk(), "choices": [choice], "usage": USAGE}


@pytest.mark.no_standard
@pytest.mark.parametrize("streamed", [False, True])
async def test_odd_answer_is_an_answer_or_a_bad_gateway_and_is_settled_once(
    client: Client, upstream: FakeUpstream, ledger: Ledger, accounts: Accounts, gateway: Gateway, streamed: bool
) -> None:
    holds, statuses = record_holds(gateway), set()
    for number, document in enumerate(odd_documents()):
        upstream.enqueue(Reply.stream([document]) if streamed else Reply.json(document))
        fields = {"logprobs": 1, "echo": number % 2 == 0}
        if streamed:
            response, text, _ = await stream(client, **fields)
            assert "internal_error" not in text, document
        else:
            response, answered = await complete(client, **fields)
            assert response.status == 200 or answered["error"]["code"] == "upstream_invalid_response", document
        statuses.add(response.status)
    assert statuses == {200, 502}
    account = await settled(accounts)
    assert 10 * NANO - sum(hold.amount for hold in holds) <= account.balance < 10 * NANO
    assert (await ledger.audit()).mismatches == []


@pytest.mark.parametrize("number", [3, 5])
async def test_answer_without_a_choice_of_each_prompt_is_none(
    client: Client, upstream: FakeUpstream, number: int
) -> None:
    """One that is missing would give the choices of the next prompt to this one."""
    upstream.enqueue(answer(*("x" * number)))
    response, document = await complete(client, ["a", "b"], n=2)
    assert (response.status, document["error"]["code"]) == (502, "upstream_invalid_response")
    choices = [{**chunk("x", "stop")["choices"][0], "index": index} for index in range(number)]
    upstream.enqueue(Reply.stream([{**chunk(), "choices": choices}]))
    _, text, _ = await stream(client, ["a", "b"], n=2)
    assert documents(text)[-1]["error"]["code"] == "upstream_stream_truncated"
    assert "[DONE]" not in text


@pytest.mark.parametrize("end", ["whole", "cut"])
@pytest.mark.parametrize("streamed", [False, True])
async def test_repeated_request_runs_once_and_is_answered_with_the_same_bytes(
    client: Client, upstream: FakeUpstream, gateway: Gateway, ledger: Ledger, streamed: bool, end: str
) -> None:
    if end == "cut" and streamed:
        upstream.enqueue(Reply.stream(HELLO[:2], done=False))
    document = {"model": "m1", "prompt": ["one two", "three"], "stream": streamed}
    headers, bodies, responses = {**client.headers, "Idempotency-Key": "order-1"}, [], []
    for _ in range(2):
        body = b""
        async with client.request("POST", PATH, json=document, headers=headers) as response:
            with contextlib.suppress(aiohttp.ClientError):
                async for part in response.content.iter_any():
                    body += part
        bodies.append(body)
        responses.append(response)
        await gateway.idempotency.drain()
        await gateway.settlement.drain()
    first, again = responses
    assert (first.status, again.status, bodies[0]) == (200, 200, bodies[1])
    assert again.headers["Idempotent-Replayed"] == "true" and "Idempotent-Replayed" not in first.headers
    assert len(upstream.seen) == 1
    charged = [line.request_id async for line in ledger.lines("acme") if line.kind == "use" and line.amount]
    assert charged == [first.headers["x-request-id"]]
    assert (await ledger.audit()).mismatches == []


# Streams -------------------------------------------------------------------------------------------------------------


async def test_stream_has_texts_then_a_finish_for_each_choice_then_done(client: Client, upstream: FakeUpstream) -> None:
    upstream.enqueue(Reply.stream(HELLO))
    response, text, failure = await stream(client)
    assert failure is None
    assert response.headers["Content-Type"] == "text/event-stream; charset=utf-8"
    found = documents(text)
    assert [frame["choices"][0]["text"] for frame in found] == ["Hel", "lo", ""]
    assert [frame["choices"][0]["finish_reason"] for frame in found] == [None, None, "stop"]
    assert {frame["object"] for frame in found} == {"text_completion"}
    assert len({(frame["id"], frame["created"], frame["model"]) for frame in found}) == 1
    assert all("usage" not in frame for frame in found)
    assert text.endswith("data: [DONE]\n\n")


async def test_usage_is_requested_upstream_always_and_sent_last_only_if_the_caller_requests_it(
    client: Client, upstream: FakeUpstream
) -> None:
    upstream.enqueue(Reply.stream(HELLO), Reply.stream(HELLO))
    await stream(client)
    assert upstream.seen[0].json["stream_options"]["include_usage"] is True
    _, text, _ = await stream(client, stream_options={"include_usage": True})
    found = documents(text)
    assert all(frame["usage"] is None for frame in found[:-1])
    assert (found[-1]["choices"], found[-1]["usage"]["total_tokens"]) == ([], 10)


async def test_cut_upstream_ends_with_an_error_frame_and_without_done(
    client: Client, upstream: FakeUpstream, ledger: Ledger
) -> None:
    upstream.enqueue(Reply(headers={"Content-Type": "text/event-stream"}, frames=frames(HELLO[:2]), end="cut"))
    response, text, failure = await stream(client)
    assert response.status == 200
    assert documents(text)[-1]["error"]["code"] == "upstream_stream_truncated"
    assert "[DONE]" not in text and failure is not None
    line = await until(lambda: last_line(ledger, "acme", response.headers["x-request-id"]))
    assert line.meta["estimated"]
    assert line.meta["usage"]["out_text"] == 2  # "Hello", never the error's text


async def test_stream_end_without_a_finish_is_a_truncation(client: Client, upstream: FakeUpstream) -> None:
    upstream.enqueue(Reply.stream(HELLO[:2], done=False))
    _, text, _ = await stream(client)
    assert documents(text)[-1]["error"]["code"] == "upstream_stream_truncated"
    assert "[DONE]" not in text


async def test_error_inside_the_stream_becomes_our_error_frame(client: Client, upstream: FakeUpstream) -> None:
    upstream.enqueue(Reply.stream([*HELLO[:2], {"error": {"message": "boom sk-upstream-canary-0123456789"}}]))
    _, text, _ = await stream(client)
    assert set(documents(text)[-1]["error"]) == {"message", "type", "param", "code"}
    assert "canary" not in text and "[DONE]" not in text


async def test_client_that_disconnects_closes_the_upstream_and_pays_for_what_it_got(
    client: Client, upstream: FakeUpstream, ledger: Ledger, accounts: Accounts
) -> None:
    upstream.enqueue(Reply(headers={"Content-Type": "text/event-stream"}, frames=frames(HELLO[:2]), end="silence"))
    document = {"model": "m1", "prompt": "Hi", "stream": True}
    async with client.request("POST", PATH, json=document) as response:
        request_id, received = response.headers["x-request-id"], b""
        while b'"lo"' not in received:
            received += await response.content.readany()
        async with at_once():
            response.close()
            await upstream.wait_ended()
    line = await until(lambda: last_line(ledger, "acme", request_id))
    assert line.meta["outcome"] == "client_closed"
    assert line.meta["usage"]["out_text"] == 2
    assert (await accounts.show("acme")).held == 0


@pytest.mark.slow
async def test_comments_are_sent_during_silence_after_the_headers(
    client: Client, upstream: FakeUpstream, gateway: Gateway
) -> None:
    gateway.keep_alive.commit_after = gateway.keep_alive.comment_after = 0.1
    late = Reply.stream(HELLO)
    late.delay = 1.5
    upstream.enqueue(late)
    _, text, failure = await stream(client)
    assert failure is None
    assert text.startswith(": keep-alive\n\n")
    assert texts_of(text) == {0: "Hello"}


async def test_halves_of_a_character_in_two_chunks_are_joined(client: Client, upstream: FakeUpstream) -> None:
    halves = [json.dumps(chunk(half)).encode() for half in ("\ud83d", "\ude00")]
    upstream.enqueue(
        Reply(
            headers={"Content-Type": "text/event-stream"},
            frames=[*(b"data: %b\n\n" % half for half in halves), *frames(HELLO[2:]), b"data: [DONE]\n\n"],
        )
    )
    _, text, _ = await stream(client)
    assert texts_of(text) == {0: "\U0001f600"}


async def test_chunk_of_several_choices_keeps_each_at_its_number(client: Client, upstream: FakeUpstream) -> None:
    def two(first: str, second: str, finish: str | None = None) -> dict[str, Any]:
        return {
            **chunk(),
            "choices": [
                {"index": index, "text": text, "logprobs": None, "finish_reason": finish}
                for index, text in ((1, second), (0, first))
            ],
        }

    upstream.enqueue(Reply.stream([two("a", "x"), two("b", "y"), two("", "", "length")]))
    _, text, _ = await stream(client, ["p", "q"])
    assert texts_of(text) == {0: "ab", 1: "xy"}
    assert [frame["choices"][0]["finish_reason"] for frame in documents(text)[-2:]] == ["length", "length"]

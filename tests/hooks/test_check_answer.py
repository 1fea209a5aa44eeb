"""`check_answer`: a hook sees what the caller would get, and may refuse it or, unless it is a stream, replace it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import structs

from gateway import CheckedAnswer, CheckedCall, errors
from gateway.accounts.accounts import Accounts
from gateway.amounts import NANO
from gateway.runtime.gateway import Gateway
from gateway.testing import FakeUpstream
from gateway.testing.reply import Reply
from tests.api.conftest import settled, taken
from tests.inference.test_garbage_endpoints import Ask

from .conftest import Client, Scripted, counted

__all__ = ["taken"]

FIRST, SECOND = "All is well. ", "The Kestrel flies. "


async def mask(call: CheckedCall, answer: CheckedAnswer) -> Any:
    return answer.with_texts(lambda text: text.replace("Kestrel", "bird"))


async def refuse(call: CheckedCall, answer: CheckedAnswer) -> Any:
    if "Kestrel" in answer.before[-10:] + " ".join(answer.texts()):
        raise errors.ContentFiltered("Not this word")


async def fail(call: CheckedCall, answer: CheckedAnswer) -> Any:
    raise RuntimeError


def completion(text: str) -> Reply:
    message = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12}
    return Reply.json({"id": "x", "object": "chat.completion", "choices": [message], "usage": usage})


def chunks(*deltas: dict[str, Any]) -> list[Any]:
    found: list[Any] = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    found.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    found.append({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 9, "total_tokens": 14}})
    return [{"object": "chat.completion.chunk", **one} for one in found]


def streamed(*texts: str) -> Reply:
    return Reply.stream(chunks(*({"content": text} for text in texts)))


def content(text: str) -> str:
    """The text of a streamed answer."""
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: {")]
    chunks = [msgspec.json.decode(line) for line in lines]
    return "".join(choice["delta"].get("content") or "" for one in chunks for choice in one.get("choices", ()))


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("chat/completions", {"messages": [{"role": "user", "content": "Hi"}]}),
        ("completions", {"prompt": "Hi"}),
        ("responses", {"input": "Hi"}),
        ("messages", {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 50}),
    ],
)
async def test_a_replaced_answer_is_what_the_caller_gets_with_the_same_usage(
    client: Client, gateway: Gateway, scripted: type[Scripted], upstream: FakeUpstream, path: str, fields: Any
) -> None:
    answers = []
    for do in (None, mask):
        scripted.on_answer = do
        if path == "completions":
            choice = {"index": 0, "text": FIRST + SECOND, "finish_reason": "stop"}
            usage = {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12}
            upstream.enqueue(Reply.json({"object": "text_completion", "choices": [choice], "usage": usage}))
        else:
            upstream.enqueue(completion(FIRST + SECOND))
        async with client.request("POST", f"/v1/{path}", json={"model": "m", **fields}) as response:
            assert response.status == 200
            answers.append(await response.json())
    plain, masked = map(str, answers)
    assert "Kestrel" in plain and "Kestrel" not in masked and "bird" in masked
    assert answers[0]["usage"] == answers[1]["usage"]


@pytest.mark.no_standard
async def test_a_hook_cannot_change_the_usage_the_model_or_the_id(
    client: Client, scripted: type[Scripted], upstream: FakeUpstream
) -> None:
    async def lie(call: CheckedCall, answer: CheckedAnswer) -> Any:
        return {**answer.document, "usage": {}, "id": "mine", "model": "other", "extra": 1}

    scripted.on_answer = lie
    upstream.enqueue(completion(FIRST))
    _, answer = await client.chat(model="m")
    assert (answer["usage"]["total_tokens"], answer["model"], answer["extra"]) == (12, "m", 1)
    assert answer["id"].startswith("chatcmpl-")


async def test_a_refused_answer_is_charged(
    client: Client, gateway: Gateway, scripted: type[Scripted], upstream: FakeUpstream, accounts: Accounts
) -> None:
    """The upstream did the work."""
    scripted.on_answer = refuse
    upstream.enqueue(completion(SECOND))
    response, answer = await client.chat(model="m")
    assert (response.status, answer["error"]["code"]) == (400, "content_filter")
    assert (await settled(accounts)).balance == 10 * NANO - (5 * 1000 + 7 * 2000)
    assert counted(gateway)["check", "check_answer", "refused"] == 1.0


async def test_an_answer_whose_check_fails_costs_nothing(
    client: Client, scripted: type[Scripted], upstream: FakeUpstream, accounts: Accounts
) -> None:
    scripted.on_answer = fail
    upstream.enqueue(completion(FIRST))
    response, _ = await client.chat(model="m")
    assert response.status == 503
    assert (await settled(accounts)).balance == 10 * NANO


@pytest.mark.parametrize("wrong", [["a list"], "a text", {"x": object()}, {"x": "y" * 200_000}])
async def test_what_is_no_answer_is_a_failure_of_the_hook(
    client: Client, gateway: Gateway, scripted: type[Scripted], upstream: FakeUpstream, wrong: Any
) -> None:
    async def give(call: CheckedCall, answer: CheckedAnswer) -> Any:
        return wrong

    scripted.on_answer = give
    upstream.enqueue(completion(FIRST))
    response, _ = await client.chat(model="m")
    assert response.status == 503
    assert counted(gateway)["check", "check_answer", "invalid"] == 1.0


async def test_a_transcript_in_plain_text_is_checked(client: Client, scripted: type[Scripted]) -> None:
    async def other(call: CheckedCall, answer: CheckedAnswer) -> Any:
        assert isinstance(answer.document, str) and not answer.is_part
        return "something else"

    scripted.on_answer = other
    ask = Ask("audio/transcriptions", seconds=1.0, response_format="text")
    assert await ask.send(client, "m") == 200
    assert scripted.answers


# Streams -------------------------------------------------------------------------------------------------------------


async def test_a_stream_is_checked_by_sentence_and_arrives_whole(
    client: Client, scripted: type[Scripted], upstream: FakeUpstream, taken: list[str]
) -> None:
    upstream.enqueue(streamed("All ", "is ", "well. ", "The ", "heron ", "flies"))
    _, text, failure = await client.stream(model="m")
    assert failure is None and content(text) == "All is well. The heron flies" and text.endswith("data: [DONE]\n\n")
    assert [answer.document for answer in scripted.answers] == ["All is well. ", "The heron flies"]
    assert [answer.before for answer in scripted.answers] == ["", "All is well. "]
    assert taken == [], "the text fast path is off"


async def test_a_refused_sentence_ends_the_stream_with_one_error_and_what_was_delivered_is_charged(
    client: Client, scripted: type[Scripted], upstream: FakeUpstream, accounts: Accounts
) -> None:
    scripted.on_answer = refuse
    upstream.enqueue(streamed(FIRST, "The Kes", "trel flies. ", "Never sent."))
    response, text, _ = await client.stream(model="m")
    assert content(text) == FIRST and "trel" not in text and "[DONE]" not in text
    assert text.count('"error"') == 1 and "content_filter" in text
    charged = 10 * NANO - (await settled(accounts)).balance
    async with client.request("GET", f"/v1/usage/{response.headers['x-request-id']}") as found:
        usage = (await found.json())["usage"]
    assert usage["out_text"] * 4 <= len(FIRST) + 4 and charged == usage["in_text"] * 1000 + usage["out_text"] * 2000


async def test_a_stream_whose_first_sentence_is_refused_is_an_error_that_costs_nothing(
    client: Client, scripted: type[Scripted], upstream: FakeUpstream, accounts: Accounts
) -> None:
    scripted.on_answer = refuse
    upstream.enqueue(streamed(SECOND, "More."))
    response, text, _ = await client.stream(model="m")
    assert response.status == 400 and "content_filter" in text
    assert (await settled(accounts)).balance == 10 * NANO


async def test_reasoning_and_tool_calls_are_checked_apart(
    client: Client, scripted: type[Scripted], upstream: FakeUpstream
) -> None:
    function = {"name": "f", "arguments": '{"a":"b"}'}
    tool = {"tool_calls": [{"index": 0, "id": "c", "type": "function", "function": function}]}
    upstream.enqueue(Reply.stream(chunks({"reasoning_content": "I think"}, {"content": "Yes"}, tool)))
    await client.stream(model="m")
    assert {(answer.kind, answer.document) for answer in scripted.answers} == {
        ("reasoning", "I think"), ("text", "Yes"), ("tool", 'f{"a":"b"}'),
    }  # fmt: skip


async def test_a_part_cannot_be_replaced(
    client: Client, gateway: Gateway, scripted: type[Scripted], upstream: FakeUpstream
) -> None:
    scripted.on_answer = mask
    upstream.enqueue(streamed(FIRST, SECOND))
    _, text, _ = await client.stream(model="m")
    assert content(text) == FIRST and "service_unavailable" in text
    assert counted(gateway)["check", "check_answer", "invalid"] == 1.0


class TestDelay:
    @pytest.fixture
    def hook_settings(self) -> dict[str, Any]:
        return {"timeout": 20, "stream_delay": 0.05}

    async def test_text_waits_no_longer_than_the_delay(
        self, client: Client, scripted: type[Scripted], upstream: FakeUpstream
    ) -> None:
        upstream.enqueue(structs.replace(Reply.stream(chunks({"content": "no end"})[:1], done=False), end="silence"))
        body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "stream": True}
        async with client.request("POST", "/v1/chat/completions", json=body) as response:
            text = b""
            while b"no end" not in text:
                text += await response.content.readany()
        assert [answer.document for answer in scripted.answers] == ["no end"]


class TestLength:
    @pytest.fixture
    def hook_settings(self) -> dict[str, Any]:
        return {"timeout": 20, "stream_delay": 10, "stream_length": 16}

    async def test_a_long_text_is_checked_before_its_end(
        self, client: Client, scripted: type[Scripted], upstream: FakeUpstream
    ) -> None:
        upstream.enqueue(streamed("ten letter", "ten letter", "end"))
        await client.stream(model="m")
        assert [answer.document for answer in scripted.answers] == ["ten letterten letter", "end"]


class TestSkip:
    @pytest.fixture
    def hook_settings(self) -> dict[str, Any]:
        return {"timeout": 20, "stream_delay": 10, "streams": "skip"}

    async def test_a_hook_may_leave_streams_out(
        self, client: Client, scripted: type[Scripted], upstream: FakeUpstream, taken: list[str]
    ) -> None:
        upstream.enqueue(streamed("one ", "two ", "three"))
        _, text, _ = await client.stream(model="m")
        assert content(text) == "one two three" and scripted.answers == []

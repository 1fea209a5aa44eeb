"""A stream that another target finishes is one answer in each dialect: one message, numbers without gaps."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gateway.config.loader import parse
from gateway.config.settings import Settings
from gateway.ledger import Ledger
from gateway.testing import FakeUpstream
from gateway.testing.fake_upstream import Reply
from tests.api.conftest import Client as Http

from .clients import CLIENTS, Client, Question, events
from .word_streams import word_stream

every_client = pytest.mark.parametrize("dialect", CLIENTS, ids=lambda one: one.name)
every_form = pytest.mark.parametrize(
    ("form", "second"),
    [
        ("prefill", " there was an end."),
        ("overlap", "upon a time there was an end."),
        ("restart", "Once upon a time there was an end."),
    ],
)


@pytest.fixture
def settings(tmp_path: Path, upstream: FakeUpstream) -> Settings:
    provider = {
        "plugin": "openai",
        "base_url": upstream.base_url,
        "api_key": "sk-upstream-canary-0123456789",
        "responses": False,
    }
    key = {"api_key": "sk-upstream-canary-0123456789"}
    natives = {
        "messages": {"plugin": "anthropic", "base_url": upstream.base_url.removesuffix("/v1"), **key},
        "gemini": {"plugin": "gemini", "base_url": upstream.base_url + "beta", **key},
        "responses": {**provider, "responses": True},
    }

    def model(*providers: str) -> dict[str, Any]:
        names = {"messages": "claude-sonnet-4-5", "gemini": "gemini-2.5-flash"}
        targets = [{"provider": name, "model": names.get(name, "gpt-5")} for name in providers]
        return {"targets": targets, "strategy": "in_order", "price": {"input": 1, "output": 2}, "prefill": "assistant"}

    return parse(
        {
            "store": {"data_dir": str(tmp_path)},
            "providers": {"one": provider, "two": provider, **natives},
            "models": {
                "going": model("one", "two"),
                **{f"{name}-chat": model(name, "two") for name in natives},
                **{f"{name}-{name}": model(name, name) for name in natives},
            },
        },
        demo=True,
    )


def frames(*texts: str) -> list[dict[str, Any]]:
    return [{"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]} for text in texts]


def cut(*texts: str) -> Reply:
    reply = Reply.stream(frames(*texts), done=False)
    reply.end = "cut"
    return reply


def rest(text: str) -> Reply:
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    return Reply.stream([*frames(*text.partition(" there")), end])


async def ask(http: Http, dialect: Client, *, stream: bool, model: str = "going", **fields: Any) -> str:
    path, body = dialect.ask(model, Question(), stream=stream)
    body |= fields
    async with http.request("POST", path, json=body) as response:
        assert response.status == 200
        text = b""
        with contextlib.suppress(aiohttp.ClientError):  # a cut stream has no last chunk
            async for part in response.content.iter_any():
                text += part
        return text.decode()


@every_client
@every_form
async def test_a_joined_stream_is_one_answer(
    client: Http, upstream: FakeUpstream, ledger: Ledger, dialect: Client, form: str, second: str
) -> None:
    upstream.enqueue(cut("Once ", "upon a time"), rest(second))
    body = await ask(client, dialect, stream=True)
    got = dialect.read(body, stream=True)
    assert got.text == "Once upon a time there was an end."
    assert got.finish == dialect.words["stop"]
    check_numbers(dialect.name, body)
    await ledger.drain()
    [line] = [line async for line in ledger.lines("acme") if line.kind == "use"]
    assert line.amount < 0


@every_client
async def test_a_stream_that_does_not_fit_ends_with_the_error_of_the_cut(
    client: Http, upstream: FakeUpstream, dialect: Client
) -> None:
    upstream.enqueue(cut("Once ", "upon a time"), rest("Sure, I go on: there was"))
    body = await ask(client, dialect, stream=True)
    assert "Sure" not in body
    assert "upstream_stream_truncated" in body or "stream ended before" in body


@every_client
async def test_a_whole_answer_is_of_one_target_alone(client: Http, upstream: FakeUpstream, dialect: Client) -> None:
    broken = Reply.json({"choices": [{"index": 0, "message": {"role": "assistant", "content": "Once"}}]})
    broken.cut_after = 20
    whole = {"index": 0, "message": {"role": "assistant", "content": "The whole text."}, "finish_reason": "stop"}
    upstream.enqueue(broken, Reply.json({"choices": [whole]}))
    got = dialect.read(await ask(client, dialect, stream=False), stream=False)
    assert got.text == "The whole text."


def native_cut(api: str, *texts: str, more: Sequence[bytes] = ()) -> Reply:
    """A stream of an upstream of that dialect which breaks off after its texts, and after `more`."""
    found = word_stream(api, texts)[: NATIVE_FRAMES[api](len(texts))]
    reply = Reply(headers={"Content-Type": "text/event-stream"}, frames=[*found, *more])
    reply.end = "cut"
    return reply


def native_rest(api: str, text: str) -> Reply:
    return Reply(headers={"Content-Type": "text/event-stream"}, frames=word_stream(api, text.partition(" there")))


#: The frames up to the last one of so many texts.
NATIVE_FRAMES = {
    "messages": lambda texts: 2 + texts,
    "gemini": lambda texts: texts,
    "responses": lambda texts: 3 + texts,
}
NATIVE_CLIENTS = [one for one in CLIENTS if one.name in NATIVE_FRAMES]


@pytest.mark.holds("routing.md#streams-that-their-upstream-cuts-3")
@pytest.mark.parametrize("dialect", NATIVE_CLIENTS, ids=lambda one: one.name)
@pytest.mark.parametrize("second_api", ["chat", "its own"])
@every_form
async def test_a_stream_that_was_passed_on_as_it_came_is_finished_by_another_target_as_one_answer(
    client: Http, upstream: FakeUpstream, ledger: Ledger, dialect: Client, second_api: str, form: str, second: str
) -> None:
    api = dialect.name
    model = f"{api}-chat" if second_api == "chat" else f"{api}-{api}"
    is_chat = second_api == "chat" or api == "responses"  # whose provider is asked in the dialect of chat, too
    answer = rest(second) if is_chat else native_rest(api, second)
    upstream.enqueue(native_cut(api, "Once ", "upon a", " time"), answer)
    body = await ask(client, dialect, stream=True, model=model)
    got = dialect.read(body, stream=True)
    assert got.text == "Once upon a time there was an end."
    assert got.finish == dialect.words["stop"]
    check_numbers(dialect.name, body)
    first, asked = upstream.seen[0].json, upstream.seen[1].json
    assert "Once upon a time" in str(asked), "it was asked to go on"
    assert "Once" not in str(first)
    await ledger.drain()
    [line] = [line async for line in ledger.lines("acme") if line.kind == "use"]
    assert line.json_form()["joined"] == {"form": form, "offset": len("Once upon a time")}
    usage = line.meta["usage"]
    assert -line.amount == usage["in_text"] * 1000 + usage["out_text"] * 2000
    assert (await ledger.audit()).clean


SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
SEARCHED = {"type": "content_block_start", "index": 1, "content_block": SEARCH}
RAN = {"candidates": [{"content": {"parts": [{"executableCode": {"code": "1"}}], "role": "model"}}]}
CITED = {
    "type": "response.output_text.annotation.added", "sequence_number": 6, "item_id": "msg_1", "output_index": 0,
    "content_index": 0, "annotation_index": 0, "annotation": {
        "type": "url_citation", "url": "https://a.example", "title": "A", "start_index": 0, "end_index": 1,
    },
}  # fmt: skip
CALL = {"type": "response.output_item.added", "output_index": 1, "item": {"id": "ws_1", "type": "web_search_call"}}


@pytest.mark.holds("routing.md#streams-that-their-upstream-cuts-3")
@pytest.mark.parametrize(
    ("api", "more"),
    [("messages", SEARCHED), ("gemini", RAN), ("responses", CITED), ("responses", CALL)],
    ids=["search", "code", "citation", "item"],
)
async def test_a_stream_with_parts_that_chat_does_not_have_stays_cut(
    client: Http, upstream: FakeUpstream, api: str, more: dict[str, Any]
) -> None:
    [dialect] = [one for one in CLIENTS if one.name == api]
    event = b"data: %b\n\n" % json.dumps(more).encode()
    upstream.enqueue(native_cut(api, "Once ", "upon a", " time", more=[event]), rest(" there was an end."))
    body = await ask(client, dialect, stream=True, model=f"{api}-chat")
    assert "there was" not in body
    assert len(upstream.seen) == 1


@pytest.mark.holds("routing.md#streams-that-their-upstream-cuts-3")
@pytest.mark.parametrize("is_complete", [True, False])
async def test_items_before_the_text_of_a_responses_stream_are_in_the_joined_answer(
    client: Http, upstream: FakeUpstream, is_complete: bool
) -> None:
    [dialect] = [one for one in CLIENTS if one.name == "responses"]
    item = {"id": "rs_up", "type": "reasoning", "summary": [], "encrypted_content": "sealed"}
    created, *others = word_stream("responses", ("Once ", "upon a", " time"))[:6]
    added = {"type": "response.output_item.added", "sequence_number": 1, "output_index": 0, "item": item}
    done = {**added, "type": "response.output_item.done", "sequence_number": 2}
    before = [added, done] if is_complete else [added]
    later = [one.replace(b'"output_index": 0', b'"output_index": 1') for one in others]
    sent = [created, *(b"data: %b\n\n" % json.dumps(one).encode() for one in before), *later]
    broken = Reply(headers={"Content-Type": "text/event-stream"}, frames=sent)
    broken.end = "cut"
    upstream.enqueue(broken, rest(" there was an end."))
    body = await ask(client, dialect, stream=True, model="responses-chat")
    if not is_complete:
        assert "there was" not in body, "the item before the text is open"
        return
    assert dialect.read(body, stream=True).text == "Once upon a time there was an end."
    found = events(body)
    assert [one["sequence_number"] for one in found] == list(range(len(found)))
    reasoning, message = found[-1]["response"]["output"]
    assert reasoning == item
    assert (message["id"], message["content"][0]["text"]) == ("msg_1", "Once upon a time there was an end.")
    assert found[-1]["response"]["status"] == "completed"


def check_numbers(dialect: str, body: str) -> None:
    """One message, and no gap in what numbers its parts."""
    found = events(body)
    if dialect == "responses":
        assert [one["sequence_number"] for one in found] == list(range(len(found)))
        assert {one["output_index"] for one in found if "output_index" in one} == {0}
        assert sum(one["type"] == "response.created" for one in found) == 1
        assert json.dumps(found[-1]).count("Once upon a time there was an end.") == 1
    elif dialect == "messages":
        kinds = [one["type"] for one in found]
        assert kinds.count("message_start") == kinds.count("content_block_start") == kinds.count("message_stop") == 1
        assert {one["index"] for one in found if "index" in one} == {0}
    elif dialect == "chat":
        assert body.count('"role":"assistant"') == body.count("[DONE]") == 1
        assert len({one["id"] for one in found}) == 1

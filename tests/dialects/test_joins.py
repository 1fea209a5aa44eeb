"""A stream that another target finishes is one answer in each dialect: one message, numbers without gaps."""

from __future__ import annotations

import contextlib
import json
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
    targets = [{"provider": "one", "model": "first"}, {"provider": "two", "model": "second"}]
    model = {"targets": targets, "strategy": "in_order", "price": {"input": 1, "output": 2}, "prefill": "assistant"}
    return parse(
        {
            "store": {"data_dir": str(tmp_path)},
            "providers": {"one": provider, "two": provider},
            "models": {"going": model},
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


async def ask(http: Http, dialect: Client, *, stream: bool) -> str:
    path, body = dialect.ask("going", Question(), stream=stream)
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

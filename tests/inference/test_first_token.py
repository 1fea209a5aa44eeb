"""A stream without content in time leads to another target, whatever else the first one sends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.config.settings import Settings
from gateway.ledger import Ledger
from gateway.testing import FakeUpstream
from gateway.testing.fake_upstream import Reply
from tests.api.conftest import Client
from tests.inference.test_continuation import CALL, chunk, rest, said
from tests.inference.two_targets import IN_ORDER, PRICE, settings_with


@pytest.fixture
def settings(tmp_path: Path, upstream: FakeUpstream) -> Settings:
    models = {
        "quick": {**IN_ORDER, "first_token_timeout": 0.2},
        "in-a-second": {**IN_ORDER, "first_token_timeout": 1},
        "patient": {**IN_ORDER, "first_token_timeout": 20},
        "alone": {"provider": "one", **PRICE, "first_token_timeout": 0.2},
    }
    return settings_with(models, tmp_path, upstream)


def silent(*chunks: dict[str, Any]) -> Reply:
    """Headers and these chunks, then nothing."""
    reply = Reply.stream(list(chunks), done=False)
    reply.end = "silence"
    return reply


@pytest.mark.parametrize("chunks", [[], [chunk({"role": "assistant", "content": ""})]], ids=["headers", "role"])
async def test_a_stream_without_content_in_time_is_left_for_another_target(
    client: Client, upstream: FakeUpstream, ledger: Ledger, chunks: list[dict[str, Any]]
) -> None:
    upstream.enqueue(silent(*chunks), rest("The answer."))
    _, text, failure = await client.stream(model="quick")
    assert (said(text), failure) == ("The answer.", None)
    assert text.count('"role":"assistant"') == 1
    assert [seen.json["model"] for seen in upstream.seen] == ["first", "second"]
    assert (await upstream.wait_ended(0)).outcome == "left"
    await ledger.drain()
    [line] = [line.json_form() async for line in ledger.lines("acme") if line.kind == "use"]
    assert [answer["code"] for answer in line["answers"]] == ["upstream_timeout", "ok"]


@pytest.mark.holds("routing.md#what-each-attempt-answered-2")
@pytest.mark.parametrize("is_counted", [False, True])
async def test_attempt_without_content_in_time_has_what_it_may_cost_and_is_charged_to_nobody(
    client: Client, upstream: FakeUpstream, ledger: Ledger, is_counted: bool
) -> None:
    begin = chunk({"role": "assistant", "content": ""})
    if is_counted:
        begin["usage"] = {"prompt_tokens": 7, "completion_tokens": 0, "total_tokens": 7}
    upstream.enqueue(silent(begin), rest("The answer."))
    await client.stream(model="quick")
    await ledger.drain()
    [line] = [line async for line in ledger.lines("acme") if line.kind == "use"]
    left, served = line.json_form()["answers"]
    assert (left["code"], left.get("estimated", False)) == ("upstream_timeout", not is_counted)
    assert left["tokens_in"] == 7 if is_counted else 0 < left["tokens_in"] < 50
    assert "tokens_in" not in served, "its usage is that of the line"
    assert line.meta["usage"] == {"in_text": 900, "out_text": 3}
    assert -line.amount == 900 * 1000 + 3 * 2000


async def test_a_model_alone_is_not_asked_again_after_that(client: Client, upstream: FakeUpstream) -> None:
    upstream.enqueue(silent())
    response, _, _ = await client.stream(model="alone")
    assert response.status == 504
    assert len(upstream.seen) == 1


@pytest.mark.parametrize(
    "delta", [{"content": "x"}, {"reasoning_content": "x"}, CALL], ids=["text", "reasoning", "call"]
)
async def test_any_content_in_time_is_enough(client: Client, upstream: FakeUpstream, delta: dict[str, Any]) -> None:
    chunks = [chunk({"role": "assistant", "content": ""}), chunk(delta), chunk({}, finish="stop")]
    reply = Reply.stream(chunks, interval=0.4)  # the end comes after the time
    assert reply.frames is not None
    reply.frames[:2] = [b"".join(reply.frames[:2])]
    upstream.enqueue(reply)
    _, text, failure = await client.stream(model="in-a-second")
    assert failure is None
    assert text.endswith("data: [DONE]\n\n")
    assert len(upstream.seen) == 1


async def test_the_text_fast_path_stays(client: Client, upstream: FakeUpstream, taken: list[str]) -> None:
    words = [f"word{number} " for number in range(30)]
    upstream.enqueue(
        Reply.stream([*(chunk({"content": word}) for word in words), chunk({}, finish="stop")], interval=0.005)
    )
    _, text, _ = await client.stream(model="patient")
    assert said(text) == "".join(words)
    assert len(taken) > 10

"""Each request of a WebSocket is checked, with the turns before it."""

from __future__ import annotations

from typing import Any

import pytest

from gateway import CheckedCall, Identity, errors
from gateway.testing import FakeUpstream
from tests.api.sockets.conftest import answers, opened

from .conftest import Client, Scripted

WORD = "Kestrel"
TOOL = {"type": "function", "name": "f", "description": f"about {WORD}", "parameters": {"type": "object"}}


@pytest.fixture
def document(document: dict[str, Any]) -> dict[str, Any]:
    return {**document, "server": {"websocket": {"responses": True}, "authenticate": ["check"]}}


async def mask(call: CheckedCall) -> Any:
    return call.with_texts(lambda text: text.replace(WORD, "bird"))


async def test_a_masked_word_reaches_no_upstream_in_any_turn(
    client: Client, scripted: type[Scripted], upstream: FakeUpstream
) -> None:
    scripted.on_call = mask
    answers(upstream, 2)
    async with opened(client) as socket:
        first = await socket.ask(model="m", input=f"one {WORD}", tools=[TOOL])
        assert first[-1]["type"] == "response.completed"
        turn = {"previous_response_id": first[-1]["response"]["id"], "input": f"two {WORD}", "tools": [TOOL]}
        assert (await socket.ask(model="m", **turn))[-1]["type"] == "response.completed"
    bodies = [seen.body for seen in upstream.seen]
    assert len(bodies) == 2 and all(WORD.encode() not in body and b"about bird" in body for body in bodies)
    assert b"one bird" in bodies[1] and b"two bird" in bodies[1]


async def test_a_refused_request_leaves_the_socket_open(
    client: Client, scripted: type[Scripted], upstream: FakeUpstream
) -> None:
    async def refuse(call: CheckedCall) -> Any:
        if any(WORD in text for text in call.texts()):
            raise errors.InvalidValue("Not this", code="forbidden_word")

    scripted.on_call = refuse
    answers(upstream)
    async with opened(client) as socket:
        [refused] = await socket.ask(model="m", input=WORD)
        assert refused["error"]["code"] == "forbidden_word"
        assert (await socket.ask(model="m", input="Hi"))[-1]["type"] == "response.completed"
    assert len(upstream.seen) == 1


async def test_a_foreign_credential_opens_a_socket(
    client: Client, scripted: type[Scripted], upstream: FakeUpstream
) -> None:
    asked: list[str] = []

    async def known(credential: str) -> Any:
        asked.append(credential)
        return Identity(account="acme", subject="alice")

    scripted.on_credential = known
    answers(upstream, 2)
    async with opened(client, Authorization="Bearer a.b.c") as socket:
        for _ in range(2):
            assert (await socket.ask(model="free", input="Hi"))[-1]["type"] == "response.completed"
    assert asked == ["a.b.c"]

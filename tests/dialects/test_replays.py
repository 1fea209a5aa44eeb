"""Idempotency-Key in each dialect of clients: a repeated request is answered with the same bytes, and charged once."""

from __future__ import annotations

from typing import Any

import aiohttp
import pytest
from msgspec import structs

from gateway.ledger import Ledger
from gateway.runtime.gateway import Gateway
from gateway.testing import FakeUpstream, Reply
from tests.api.conftest import Client as Http

from .answers import Answer, Call, reply
from .clients import Client, Question
from .conftest import UPSTREAMS
from .test_matrix import either_way, every_cell, every_client

ANSWER = Answer(calls=(Call("tide", {"port": "Brest"}),), thinking="Brest, perhaps.")
QUESTION = Question(tools=True, reasoning=True)


async def ask(http: Http, path: str, body: Any, *, name: str = "order-1") -> tuple[int, bytes, Any]:
    """Status, body and headers."""
    headers = {**http.headers, "Idempotency-Key": name}
    content = b""
    async with http.request("POST", path, json=body, headers=headers) as response:
        try:
            async for part in response.content.iter_any():
                content += part
        except aiohttp.ClientError:
            pass  # it was cut
        return response.status, content, response.headers


async def kept(gateway: Gateway) -> None:
    """Every claim that ended is written, and every settlement."""
    await gateway.idempotency.drain()
    await gateway.settlement.drain()


async def charges(ledger: Ledger) -> list[str]:
    """The request ids of the calls that cost something."""
    return [line.request_id async for line in ledger.lines("acme") if line.kind == "use" and line.amount]


@either_way
@every_cell
@every_client
async def test_repeated_request_runs_once_and_is_answered_with_the_same_bytes(
    client: Http, upstream: FakeUpstream, gateway: Gateway, ledger: Ledger, dialect: Client, api: str, stream: bool
) -> None:
    upstream.answer = lambda seen: reply(ANSWER, seen)
    path, body = dialect.ask(f"m-{api}", QUESTION, stream=stream)
    status, first, headers = await ask(client, path, body)
    assert (status, headers.get("Idempotent-Replayed")) == (200, None)
    await kept(gateway)
    status, again, replayed = await ask(client, path, body)
    assert (status, replayed["Idempotent-Replayed"], again) == (200, "true", first)
    assert replayed["Content-Type"] == headers["Content-Type"]
    assert replayed["x-gateway-original-request"] == headers["x-request-id"]
    assert len(upstream.seen) == 1
    assert await charges(ledger) == [headers["x-request-id"]]
    assert (await ledger.audit()).mismatches == []


@every_client
@pytest.mark.parametrize("api", UPSTREAMS[:1])
async def test_key_of_another_request_is_refused_in_the_form_of_the_dialect(
    client: Http, upstream: FakeUpstream, gateway: Gateway, dialect: Client, api: str
) -> None:
    upstream.answer = lambda seen: reply(Answer("Four."), seen)
    path, body = dialect.ask(f"m-{api}", Question(), stream=False)
    assert (await ask(client, path, body))[0] == 200
    await kept(gateway)
    path, body = dialect.ask(f"m-{api}", QUESTION, stream=False)
    status, content, _ = await ask(client, path, body)
    assert status == 400, content
    assert b"idempotency" in content.lower()
    assert len(upstream.seen) == 1


def cut(whole: Reply) -> Reply:
    """A stream that ends behind its text."""
    frames = whole.frames or []
    if len(frames) == 1:
        *events, _ = frames[0].split(b"\n\n")
        said = next(at for at, event in enumerate(events) if b"Four ports." in event)
        frames = [event + b"\n\n" for event in events[: said + 1]]
    else:
        frames = frames[:-2]  # of Bedrock: what ends the message, and the counts
    return structs.replace(whole, frames=frames, end="cut")


@every_cell
@every_client
async def test_stream_that_broke_is_replayed_up_to_the_break(
    client: Http, upstream: FakeUpstream, gateway: Gateway, ledger: Ledger, dialect: Client, api: str
) -> None:
    upstream.answer = lambda seen: cut(reply(Answer("Four ports."), seen))
    path, body = dialect.ask(f"m-{api}", Question(), stream=True)
    status, first, headers = await ask(client, path, body)
    assert (status, b"Four ports." in first, b"before it was complete" in first) == (200, True, True), first
    await kept(gateway)
    _, again, replayed = await ask(client, path, body)
    assert (again, replayed["Idempotent-Replayed"]) == (first, "true")
    assert len(upstream.seen) == 1
    assert await charges(ledger) == [headers["x-request-id"]]
    assert (await ledger.audit()).mismatches == []

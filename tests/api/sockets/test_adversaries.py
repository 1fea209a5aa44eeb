"""What clients may do to sockets, sessions and compactions beside what they should."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.accounts.accounts import Accounts
from gateway.accounts.keys import Keys
from gateway.admin.account_limits import AccountLimits
from gateway.http_server.server import HTTPServer
from gateway.runtime.gateway import Gateway
from gateway.testing import FakeUpstream, Reply
from tests.api.conftest import Client, settled
from tests.api.endpoints.test_chat_stream import HELLO
from tests.api.sockets.conftest import PATH, answers, opened
from tests.polling import until

TEN = 10 * 10**9
CALL = 21_000  # nano units that an answer "Hello" costs
LIMIT = 20  # tokens of output that each request asks for
HEADER = "session-id"


async def test_budget_of_a_session_holds_over_two_sockets_and_http(
    client: Client, upstream: FakeUpstream, gateway: Gateway, accounts: Accounts
) -> None:
    """Each call holds about 45,000 nano units and costs 21,000: the fourth does not fit."""
    await AccountLimits(gateway.store, accounts).change("acme", max_session_cost=4 * CALL)
    answers(upstream, 20)
    spent = []
    async with opened(client, **{HEADER: "s-1"}) as one, opened(client, **{HEADER: "s-1"}) as other:
        for turn in range(6):
            if turn % 3 == 2:
                body = {"model": "m1", "input": "Hi", "max_output_tokens": LIMIT}
                async with client.request(
                    "POST", PATH, json=body, headers={**client.headers, HEADER: "s-1"}
                ) as response:
                    spent.append(response.status)
                    await response.read()
            else:
                last = (await (one if turn % 3 else other).ask(max_output_tokens=LIMIT))[-1]
                spent.append(last.get("status", 200))
                if last["type"] == "error":
                    assert last["error"]["code"] == "session_budget_exceeded"
                    assert last["headers"]["x-should-retry"] == "false"
            await settled(accounts)  # the hold of an answer is released a moment after its end
        assert spent[0] == 200 and spent[-1] == 429 and sorted(spent) == spent
        admitted = spent.count(200)
        assert (await one.ask(max_output_tokens=LIMIT))[-1]["status"] == 429, "the socket is still open"
    async with opened(client, **{HEADER: "s-2"}) as another:
        assert (await another.ask(max_output_tokens=LIMIT))[-1]["type"] == "response.completed"
    account = await settled(accounts)
    assert TEN - account.balance == (admitted + 1) * CALL <= 5 * CALL


async def test_requests_of_two_sockets_at_once_stay_within_the_budget(
    client: Client, upstream: FakeUpstream, gateway: Gateway, accounts: Accounts
) -> None:
    await AccountLimits(gateway.store, accounts).change("acme", max_session_cost=3 * CALL)
    upstream.answer = lambda seen: Reply.stream(HELLO, interval=0.005)
    async with opened(client, **{HEADER: "s-1"}) as one, opened(client, **{HEADER: "s-1"}) as other:
        for _ in range(5):
            await asyncio.gather(one.ask(max_output_tokens=LIMIT), other.ask(max_output_tokens=LIMIT))
    account = await settled(accounts)
    assert 0 < TEN - account.balance <= 3 * CALL


@pytest.mark.parametrize("kind", ["abort", "close"])
async def test_sockets_opened_and_left_again_and_again_leave_nothing(
    client: Client, upstream: FakeUpstream, http_server: HTTPServer, accounts: Accounts, kind: str
) -> None:
    """Also in the middle of a handshake, a message, and an answer."""
    upstream.answer = lambda seen: Reply.stream(HELLO, interval=0.002)

    async def once(turn: int) -> None:
        async with opened(client) as socket:
            if turn % 3:
                await socket.send(max_output_tokens=LIMIT)
            if turn % 3 == 2:
                await socket.event()
            if kind == "abort":
                socket.wire._response.connection.transport.abort()

    for turn in range(0, 60, 6):
        await asyncio.gather(*(once(turn + at) for at in range(6)))
    assert await until(lambda: not http_server.connections)
    account = await settled(accounts)
    assert 0 <= TEN - account.balance <= 40 * CALL
    async with opened(client) as socket:
        answered = await socket.ask(max_output_tokens=LIMIT)
    assert answered[-1]["type"] == "response.completed"


async def test_conversation_of_a_revoked_key_is_not_continued_with_another(
    client: Client, upstream: FakeUpstream, keys: Keys, gateway: Gateway
) -> None:
    """A response is of its socket, whatever key comes later: another socket does not find it."""
    answers(upstream, 3)
    other = await keys.create("acme", name="other")
    async with opened(client) as first:
        [*_, last] = await first.ask()
        previous: Any = last["response"]["id"]
        async with opened(client, Authorization=f"Bearer {other.text}") as second:
            refused = (await second.ask(previous_response_id=previous))[-1]
            assert (refused["status"], refused["error"]["code"]) == (404, "previous_response_not_found")
            assert (await second.ask())[-1]["type"] == "response.completed"
    assert len(upstream.seen) == 2

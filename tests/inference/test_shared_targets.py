"""Accounts that share a target: what one of them provokes, the others do not notice."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.accounts.accounts import Accounts
from gateway.accounts.keys import Keys
from gateway.amounts import NANO
from gateway.errors import UpstreamTimeout
from gateway.runtime.gateway import Gateway
from gateway.testing import FakeUpstream
from gateway.testing.fake_upstream import Reply
from tests.api.conftest import Client

POISON = "make the provider fail"


async def client_of(account: str, client: Client, accounts: Accounts, keys: Keys) -> Client:
    """A client of another account."""
    await accounts.create(account, balance=10 * NANO)
    key = await keys.create(account)
    return Client(client.base_url, {**client.headers, "Authorization": f"Bearer {key.text}"})


async def fails(client: Client, upstream: FakeUpstream, reply: Reply, times: int, **fields: Any) -> set[int]:
    """The statuses of so many calls, each of which the upstream answers with `reply`."""
    statuses = set()
    for _ in range(times):
        upstream.enqueue(reply)
        statuses.add((await client.chat(**fields))[0].status)
    upstream._scripted.clear()
    return statuses


@pytest.mark.holds("routing.md#health-1")
@pytest.mark.parametrize(
    "reply",
    [Reply.error(500, "no"), Reply.error(503, "overloaded"), Reply.hang_up(), Reply.error(404, "no such model")],
    ids=["500", "503", "connection lost", "404"],
)
async def test_failed_calls_of_one_account_do_not_close_a_target_that_answers_another(
    client: Client, accounts: Accounts, keys: Keys, upstream: FakeUpstream, reply: Reply
) -> None:
    other = await client_of("other", client, accounts, keys)
    assert (await other.chat())[0].status == 200
    for number in range(3):  # bodies differ, as those of a caller who means harm
        await fails(client, upstream, reply, 5, user=f"u{number}")
    assert (await other.chat())[0].status == 200


@pytest.mark.parametrize("reply", [Reply.error(404, "no such model"), Reply.error(504, "timeout")], ids=["4xx", "slow"])
async def test_failures_that_any_request_can_cause_count_once_for_an_account_that_is_alone(
    client: Client, accounts: Accounts, keys: Keys, upstream: FakeUpstream, reply: Reply
) -> None:
    for number in range(8):
        await fails(client, upstream, reply, 1, user=f"u{number}")
    other = await client_of("other", client, accounts, keys)
    assert (await other.chat())[0].status == 200


async def test_equal_bodies_that_get_a_5xx_count_once_for_an_account_that_is_alone(
    client: Client, accounts: Accounts, keys: Keys, upstream: FakeUpstream
) -> None:
    await fails(client, upstream, Reply.error(500, "no"), 8)
    other = await client_of("other", client, accounts, keys)
    assert (await other.chat())[0].status == 200


async def test_different_bodies_that_get_a_5xx_close_a_target_that_nobody_else_uses(
    client: Client, upstream: FakeUpstream
) -> None:
    for number in range(5):
        await fails(client, upstream, Reply.error(500, "no"), 1, user=f"u{number}")
    assert (await client.chat())[0].status == 503


async def test_failed_connections_close_a_target_that_nobody_else_uses(client: Client, upstream: FakeUpstream) -> None:
    await upstream.close()
    assert {(await client.chat())[0].status for _ in range(5)} == {502}
    assert (await client.chat())[0].status == 503


async def test_five_accounts_that_get_a_5xx_close_the_target_for_all(
    client: Client, accounts: Accounts, keys: Keys, upstream: FakeUpstream
) -> None:
    assert (await client.chat())[0].status == 200
    for number in range(5):
        other = await client_of(f"a{number}", client, accounts, keys)
        assert await fails(other, upstream, Reply.error(500, "no"), 1) == {502}
    assert (await client.chat())[0].status == 503


def raise_for_poison(gateway: Gateway, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """Let the provider's code raise for poison at one of its models."""
    provider: Any = type(gateway.providers["up"][0])
    chat = provider.chat

    async def poisoned(this: Any, request: Any, target: Any) -> Any:
        if target.model == "upstream-m1" and request.messages[0].content == POISON:
            raise error
        return await chat(this, request, target)

    monkeypatch.setattr(provider, "chat", poisoned)


def poison(number: int = 0) -> dict[str, Any]:
    """A request for which the provider raises."""
    return {"messages": [{"role": "user", "content": POISON}], "user": f"u{number}"}


async def test_exceptions_for_one_account_do_not_quarantine_a_provider_that_answers_another(
    client: Client, accounts: Accounts, keys: Keys, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    raise_for_poison(gateway, monkeypatch, ValueError("a bug of the provider"))
    other = await client_of("other", client, accounts, keys)
    for number in range(8):
        assert (await other.chat())[0].status == 200
        assert (await client.chat(**poison(number)))[0].status == 502
    assert (await other.chat())[0].status == 200


async def test_equal_requests_that_raise_count_once_for_an_account_that_is_alone(
    client: Client, accounts: Accounts, keys: Keys, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    raise_for_poison(gateway, monkeypatch, ValueError("a bug of the provider"))
    assert {(await client.chat(**poison()))[0].status for _ in range(8)} == {502}
    other = await client_of("other", client, accounts, keys)
    assert (await other.chat())[0].status == 200


async def test_quarantine_of_one_model_leaves_the_other_models_of_its_provider(
    client: Client, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    raise_for_poison(gateway, monkeypatch, ValueError("a bug of the provider"))
    for number in range(5):
        assert (await client.chat(**poison(number)))[0].status == 502
    assert (await client.chat())[0].status == 503
    assert (await client.chat(model="two"))[0].status == 200


async def test_timeout_of_the_caller_s_own_request_closes_no_target(
    client: Client, accounts: Accounts, keys: Keys, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    raise_for_poison(gateway, monkeypatch, UpstreamTimeout())
    for number in range(8):
        assert (await client.chat(**poison(number)))[0].status == 504
    other = await client_of("other", client, accounts, keys)
    assert (await other.chat())[0].status == 200

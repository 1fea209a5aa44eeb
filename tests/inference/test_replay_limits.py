"""A replayed answer counts as a request of its key and of its account, and takes nothing else."""

from __future__ import annotations

import pytest
from msgspec import structs

from gateway.accounts.keys import Keys
from gateway.config.settings import GroupSettings
from gateway.ledger import Ledger
from gateway.runtime.gateway import Gateway
from gateway.testing import FakeUpstream
from tests.api.conftest import Client
from tests.inference.test_idempotency import charges, kept, post, proved


@pytest.mark.holds("prices.md#what-is-collected-8")
async def test_replay_over_the_keys_request_limit_gets_429_and_is_not_charged(
    client: Client, gateway: Gateway, keys: Keys, upstream: FakeUpstream, ledger: Ledger
) -> None:
    key = await keys.create("acme", rpm=3)
    await post(client, key=key)
    await kept(gateway)
    answers = [await post(client, key=key) for _ in range(4)]
    assert [(answer.status, answer.replayed) for answer in answers] == [(200, True)] * 2 + [(429, False)] * 2
    assert [answer.headers["x-ratelimit-remaining-requests"] for answer in answers] == ["1", "0", "0", "0"]
    refused = answers[-1]
    assert refused.code == "rate_limit_exceeded"
    assert 0 < int(refused.headers["retry-after-ms"]) <= 20_000
    assert (len(upstream.seen), len(await charges(ledger))) == (1, 1)
    await proved(ledger)


@pytest.mark.holds("prices.md#what-is-collected-8")
async def test_replays_of_all_keys_count_against_the_accounts_limit(
    client: Client, gateway: Gateway, keys: Keys, upstream: FakeUpstream
) -> None:
    limited = structs.replace(gateway.settings, groups={"default": GroupSettings(rpm=3)})
    await gateway.reload(limited)
    await post(client, key=await keys.create("acme"))
    await kept(gateway)
    statuses = [(await post(client, key=await keys.create("acme"))).status for _ in range(4)]
    assert statuses == [200, 200, 429, 429]
    assert (await post(client, name="order-2")).status == 429  # a new call has no more room than a replay
    assert len(upstream.seen) == 1


async def test_replay_needs_no_money_no_tokens_and_no_place_among_running_calls(
    client: Client, gateway: Gateway, keys: Keys, ledger: Ledger
) -> None:
    key = await keys.create("acme", rpm=100, tpm=100_000, concurrency=1)
    await post(client, key=key)
    await kept(gateway)
    name = f"{{a:acme}}:tpm:{key.id}"
    seconds, microseconds = await gateway.store.client.time()
    tokens = (
        f"100000 {seconds * 1_000_000 + microseconds} 100000".encode()
    )  # the key's tokens of this minute are used up
    await gateway.store.client.set(name, tokens)
    await gateway.store.client.zadd(f"{{a:acme}}:cc:{key.id}", {"another call": 2**52})
    await gateway.store.client.hset("{a:acme}", "floor", str(2**50))
    assert (await post(client, name="order-2", key=key)).status == 429
    assert (await post(client, key=key)).replayed
    assert await gateway.store.client.get(name) == tokens
    assert await gateway.store.client.hgetall("{a:acme}:rv") == {}


@pytest.mark.parametrize("group", ["default", "inner"])
async def test_replay_is_counted_in_the_accounts_own_group(
    client: Client, gateway: Gateway, keys: Keys, group: str
) -> None:
    groups = {"default": GroupSettings(), "inner": GroupSettings(), group: GroupSettings(rpm=2)}
    await gateway.reload(structs.replace(gateway.settings, groups=groups))
    await gateway.store.client.hset("{a:acme}", "group", group)
    await gateway.store.client.hset("{a:acme}", "m:org/m:1", "+")
    await post(client, {"model": "org/m:1", "messages": [{"role": "user", "content": "Hi"}]})
    await kept(gateway)
    document = {"model": "org/m:1", "messages": [{"role": "user", "content": "Hi"}]}
    assert [(await post(client, document)).status for _ in range(2)] == [200, 429]

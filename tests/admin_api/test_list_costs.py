"""A page of a list and an unknown name cost the store the same however many accounts and keys there are."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Struct

from gateway.ids import key_id
from gateway.ledger.gather_all import batches
from gateway.ledger.listing.names import ACCOUNTS
from tests.admin_api.client import Api

SIZES = 100, 5_000
MORE = 12  # commands: of 5,000 names the order is asked, too


class Cost(Struct, frozen=True):
    """Of one request: commands of the store, and bytes that it sent."""

    commands: int
    read: int


async def fill(a: Api, size: int) -> list[str]:
    """As many accounts, and keys of acme, as an older version stores them; the ids of the keys."""
    client, ids = a.services.store.store.client, [key_id() for _ in range(size)]
    for some in batches(range(size), 1000):
        pipe = client.pipeline(transaction=False)
        names = [f"account-{number:05}" for number in some]
        pipe.sadd(ACCOUNTS, *names)
        for name in names:
            pipe.hset(f"{{a:{name}}}", mapping={"group": "default", "state": "active", "bal": 0, "held": 0})
            pipe.sadd(f"{{a:{name}}}:ks", f"key_{name}")
            pipe.hset(f"{{a:{name}}}:k:key_{name}", mapping={"state": "active", "created": 1, "last4": "efgh"})
        for number in some:
            pipe.sadd("{a:acme}:ks", ids[number])
            pipe.set(f"ki:{ids[number]}", "acme")
            pipe.hset(f"{{a:acme}}:k:{ids[number]}", mapping={"state": "active", "created": 1, "last4": "abcd"})
        await pipe.execute()
    return ids


async def cost(a: Api, path: str, status: int) -> Cost:
    """Of the second request: the first one may make orders and connections."""
    client, told = a.services.store.store.client, dict[str, Any]()
    for _ in range(2):
        await client.config_resetstat()
        answer = await a.ask("GET", path)
        assert answer.status == status, answer.document
        told = await client.info("all")
    commands = sum(said["calls"] for name, said in told.items() if name.startswith("cmdstat_"))
    return Cost(commands, int(told["total_net_output_bytes"]))


@pytest.mark.holds("admin-api.md#requests-and-answers-10", "admin-api.md#requests-and-answers-11")
@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/accounts?limit=50", 200),
        ("/keys?limit=50", 200),
        ("/accounts/acme/keys?limit=50", 200),
        ("/accounts/nobody", 404),
        ("/accounts/nobody/keys", 404),
        ("/keys/key_none", 404),
    ],
)
async def test_page_costs_the_store_what_it_shows(api: Any, path: str, status: int) -> None:
    costs = []
    for size in SIZES:
        async with api() as a:
            await a.as_operator()
            await fill(a, size)
            costs.append(await cost(a, path, status))
    few, many = costs
    assert many.commands <= few.commands + MORE, costs
    assert many.read <= 2.5 * few.read, costs


@pytest.mark.holds("admin-api.md#requests-and-answers-10")
async def test_list_with_a_filter_finds_a_key_behind_many_others(api: Any) -> None:
    async with api() as a:
        await a.as_operator()
        ids = await fill(a, 1_500)
        await a.services.store.store.client.hset(f"{{a:acme}}:k:{ids[-2]}", "last4", "last")
        for path in ("/keys", "/accounts/acme/keys"):
            answer = await a.get(f"{path}?last4=last&limit=1")
            assert [key["id"] for key in answer["data"]] == [ids[-2]] and answer["next_cursor"] is None
        pages = await a.pages("/accounts/acme/keys?limit=400")
        assert sorted(key["id"] for key in pages) == sorted(ids)
        everywhere = [key for key in await a.pages("/keys?limit=400") if key["account"] == "acme"]
        assert everywhere == pages


@pytest.mark.holds("admin-api.md#requests-and-answers-11")
async def test_nearest_account_is_found_among_many(api: Any) -> None:
    async with api() as a:
        await a.as_operator()
        await fill(a, 5_000)
        answer = await a.ask("GET", "/accounts/account-o1234")
        assert 'nearest: "account-0' in answer.error["message"]
        answer = await a.ask("GET", "/accounts/acmee")
        assert 'nearest: "acme"' in answer.error["message"]

"""Batches of all accounts: pages of the list, and tokens that are restricted to an account."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from gateway.batches.records import BatchRecords
from tests.batches.made import made_batch


@pytest.mark.holds("admin-api.md#batches-1")
async def test_list_has_each_batch_once_newest_first_over_pages_and_accounts(api) -> None:
    async with api() as a:
        store = a.services.store.store
        made = [await made_batch(store, account) for account in ("acme", "other", "acme", "other", "acme") * 2]
        await a.as_operator()
        deleted = await made_batch(store, "other")
        await store.client.hdel("{a:other}:bt", deleted.id)
        found = await a.pages("/batches?limit=3")
        assert sorted(one["id"] for one in found) == sorted(batch.id for batch in made)
        places = [await store.client.zscore("{batches}:made", one["id"]) for one in found]
        assert places == sorted(places, reverse=True)
        of_acme = await a.pages("/batches?account=acme&limit=2")
        assert {one["account"] for one in of_acme} == {"acme"} and len(of_acme) == 6
        shown = await a.get(f"/batches/{made[1].id}")
        assert (shown["account"], shown["status"], shown["cost"], shown["max_cost"]) == (
            "other",
            "validating",
            "0",
            None,
        )
        assert (await a.ask("GET", "/batches?account=nobody")).document["data"] == []
        assert (await a.ask("GET", "/batches/batch_none")).status == 404


@pytest.mark.holds("admin-api.md#batches-2")
async def test_restricted_token_sees_and_cancels_batches_of_its_account_only(api) -> None:
    async with api() as a:
        store = a.services.store.store
        own, theirs = await made_batch(store, "acme"), await made_batch(store, "other")
        a.token = await a.make_token("accounts", account="acme")
        assert [one["id"] for one in (await a.get("/batches"))["data"]] == [own.id]
        assert (await a.ask("GET", "/batches?account=other")).status == 404
        for method, path in (("GET", f"/batches/{theirs.id}"), ("POST", f"/batches/{theirs.id}/cancel")):
            answer, missing = await a.ask(method, path), await a.ask(method, path.replace(theirs.id, "batch_x"))
            assert answer.status == missing.status == 404
            assert answer.error["message"].replace(theirs.id, "batch_x") == missing.error["message"]
        assert (await BatchRecords(store).find("other", theirs.id))[1] is None
        document = await a.post(f"/batches/{own.id}/cancel")
        assert (document["status"], document["cancelled"] is not None) == ("cancelling", True)
        a.token = await a.make_token("read")
        assert (await a.ask("POST", f"/batches/{theirs.id}/cancel")).status == 403
        ended = await made_batch(store, "acme", status="expired")
        await a.as_operator()
        assert (await a.ask("POST", f"/batches/{ended.id}/cancel")).status == 400


async def test_batches_of_one_millisecond_are_each_on_one_page(api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.batches.records.time.time_ns", lambda: 1_700_000_000_000_000_000)
    async with api() as a:
        made = await asyncio.gather(*(made_batch(a.services.store.store, "acme") for _ in range(250)))
        await a.as_operator()
        for path in ("/batches?limit=40", "/batches?account=acme&limit=40"):
            assert [one["id"] for one in await a.pages(path)] == sorted((batch.id for batch in made), reverse=True)


async def test_batches_that_made_room_are_in_no_list(api, monkeypatch: pytest.MonkeyPatch) -> None:
    milliseconds = itertools.count(1_700_000_000_000)
    monkeypatch.setattr("gateway.batches.records.time.time_ns", lambda: next(milliseconds) * 1_000_000)
    monkeypatch.setattr("gateway.batches.records.MOST_KEPT", 3)
    async with api() as a:
        store = a.services.store.store
        made = [await made_batch(store, "acme", status="completed") for _ in range(5)]
        await a.as_operator()
        assert {one["id"] for one in await a.pages("/batches?limit=40")} == {batch.id for batch in made[2:]}
        assert await store.client.zcard("{batches}:made") == await store.client.hlen("{batches}:of") == 3

"""Scripts that a link sends again after a lost reply change nothing the second time, and answer as they did before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from gateway.errors import BalanceExhausted, Conflict
from gateway.inference.idempotency import Claim, Idempotency, StoredAnswer
from gateway.ledger.scripts import load_script
from gateway.store.command import Argument, Script
from gateway.store.link import RedisLink
from tests.world import OpenWorld

Repeated = set[str]  # the hashes of scripts


@pytest.fixture
def repeated(monkeypatch: pytest.MonkeyPatch) -> Repeated:
    """Each script that may be sent again is executed twice, and the second reply counts."""
    run, seen = RedisLink.eval, Repeated()

    async def run_twice(
        link: RedisLink,
        script: Script,
        keys: Sequence[str | bytes],
        args: Sequence[Argument],
        *,
        repeatable: bool = False,
    ) -> Any:
        if repeatable:
            seen.add(script.sha1)
            await run(link, script, keys, args, repeatable=True)
        return await run(link, script, keys, args, repeatable=repeatable)

    monkeypatch.setattr(RedisLink, "eval", run_twice)
    return seen


def was(repeated: Repeated, *names: str) -> bool:
    """Whether these scripts were executed twice."""
    return {load_script(name).sha1 for name in names} <= repeated


@pytest.mark.holds("operations/redis.md#a-slow-store-4")
async def test_hold_is_increased_once(world: OpenWorld, repeated: Repeated) -> None:
    async with world() as w:
        hold = await w.admit(await w.caller(balance=1000), 100)
        await w.ledger.extend(hold, 50)
        assert (hold.amount, (await w.accounts.show("acme")).held) == (150, 150)
        with pytest.raises(BalanceExhausted):
            await w.ledger.extend(hold, 1000)
        assert (hold.amount, (await w.accounts.show("acme")).held) == (150, 150)
        assert was(repeated, "extend")


@pytest.mark.holds("operations/redis.md#a-slow-store-4")
async def test_lease_is_renewed_and_its_cost_stored(world: OpenWorld, repeated: Repeated) -> None:
    async with world() as w:
        hold = await w.admit(await w.caller(balance=1000), 100)
        hold.used = 7
        assert await w.ledger.renew_leases([hold]) == {hold.request_id: "ok"}
        await w.expire(hold)
        assert await w.ledger.reclaim() == 1
        assert [line.amount async for line in w.ledger.lines("acme")][-1] == -7
        assert await w.ledger.renew_leases([hold]) == {hold.request_id: "gone"}
        assert was(repeated, "beat")


@pytest.mark.holds("operations/redis.md#a-slow-store-4")
async def test_idempotency_key_is_claimed_kept_and_released(world: OpenWorld, repeated: Repeated) -> None:
    async with world() as w:
        key, records = await w.caller(), Idempotency(w.store)

        async def claim(number: int) -> Claim | StoredAnswer:
            return await records.claim(key, "name", digest="d", request_id=f"req_{number:032x}", model="m")

        first = await claim(1)
        assert isinstance(first, Claim)
        with pytest.raises(Conflict):
            await claim(2)
        first.close({}, charged=False)
        await records.drain()
        second = await claim(3)
        assert isinstance(second, Claim)
        second.keep(b"body")
        second.complete(200, {})
        await records.drain()
        answer = await claim(4)
        assert isinstance(answer, StoredAnswer) and (answer.request_id, answer.body) == (second.request_id, b"body")
        listed = await w.store.client.zrange("{a:acme}:ids", 0, -1)
        kept = await w.store.client.get("{a:acme}:idb")
        assert [entry.split()[-1] for entry in listed] == [kept]
        assert was(repeated, "claim", "keep")


async def test_key_is_confirmed_and_own_prices_are_read(world: OpenWorld, repeated: Repeated) -> None:
    async with world() as w:
        key = await w.caller()
        assert (await w.auth.confirm(key, ["m"])).group == "default"
        await w.ledger.terms.read("acme")
        assert was(repeated, "confirm", "own_prices")

"""Refusals are counted in memory within bounds, and appended to the store once."""

import json
from typing import Any

import pytest

from gateway.errors import StoreFate, StoreUnavailable
from gateway.ledger import refusal_counts
from gateway.ledger.refusal_counts import STREAM, RefusalCounts, read_batches


class Away:
    """Links whose server does not answer; what is written arrives or not."""

    def __init__(self, links, *, arrives: bool) -> None:
        self._links = links
        self._arrives = arrives

    def link(self, key):
        return self

    async def call(self, *words):
        if self._arrives:
            await self._links.link(STREAM).call(*words)
        raise StoreUnavailable(fate=StoreFate.UNKNOWN)


def counted(batch) -> dict[tuple[str, str, str, str], int]:
    return {tuple(label): n for _, *label, n in batch.counts}


async def test_equal_refusals_are_one_count_of_a_batch(world):
    async with world() as w:
        counts = RefusalCounts(w.store)
        for _ in range(3):
            counts.count("acme", "key_x", "m", "rate_limit_exceeded")
        counts.count("", "", "", "invalid_api_key")
        await counts.sender.stop()
        await counts.sender.stop()
        [(_, batch)] = await read_batches(w.store, 10)
        expected = {("acme", "key_x", "m", "rate_limit_exceeded"): 3, ("", "", "", "invalid_api_key"): 1}
        assert counted(batch) == expected


@pytest.mark.holds("operations/history.md#refused-requests-2")
async def test_further_keys_count_in_the_total_only(world, monkeypatch):
    monkeypatch.setattr(refusal_counts, "MOST", 5)
    async with world() as w:
        counts = RefusalCounts(w.store)
        for n in range(1000):
            counts.count("acme", f"key_{n}", "m", "code")
        counts.count("acme", "key_0", "m", "code")
        await counts.send()
        [(_, batch)] = await read_batches(w.store, 10)
        found = counted(batch)
        assert len(found) == 6
        assert (found["acme", "key_0", "m", "code"], found["", "", "", "code"]) == (2, 995)


@pytest.mark.holds("operations/history.md#refused-requests-1")
@pytest.mark.parametrize("arrives", [False, True])
async def test_batch_without_an_answer_is_sent_again_under_the_same_id(world, arrives):
    async with world() as w:
        counts = RefusalCounts(w.store)
        counts.count("acme", "key_x", "m", "code")
        away: Any = Away(w.store, arrives=arrives)
        counts._links = away
        with pytest.raises(StoreUnavailable):
            await counts.send()
        counts.count("acme", "key_x", "m", "code")
        counts._links = w.store
        await counts.send()
        batches = [batch for _, batch in await read_batches(w.store, 10)]
        assert [sum(counted(batch).values()) for batch in batches] == [1] * (3 if arrives else 2)
        assert len({batch.id for batch in batches}) == 2


@pytest.mark.holds("operations/history.md#refused-requests-2")
async def test_stream_of_batches_is_bounded(world, monkeypatch):
    monkeypatch.setattr(refusal_counts, "KEPT", 100)
    async with world() as w:
        counts = RefusalCounts(w.store)
        for _ in range(300):
            counts.count("acme", "key_x", "m", "code")
            await counts.send()
        assert await w.store.client.xlen(STREAM) <= 200
        assert json.loads((await w.store.client.xrevrange(STREAM, count=1))[0][1][b"b"])["counts"]

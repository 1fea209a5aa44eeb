"""Requests and tokens per minute: exact waits, exact bursts, headers."""

import asyncio

import pytest

from gateway import errors
from gateway.ledger import GroupLimits, RateState
from gateway.ledger.limits import duration_text
from tests.delays import time_passes
from tests.ledger.records import settle, void

MINUTE = 60_000_000


async def turn_back(world, account: str, microseconds: int) -> None:
    """Let the account's buckets believe that much more time has passed."""
    client = world.store.client
    for name in [name async for name in client.scan_iter(f"{{a:{account}}}:[rt]pm*")]:
        level, stamp, limit = (await client.get(name)).split()
        await client.set(name, b"%s %d %s" % (level, int(stamp) - microseconds, limit), keepttl=True)


async def level_of(world, name: str) -> float:
    stored = await world.store.client.get(name)
    return float(stored.split()[0]) if stored else 0.0


@pytest.mark.parametrize("limit", [1, 7, 600])
async def test_burst_is_the_limit_itself_and_remaining_counts_down_to_zero(world, limit):
    async with world() as w:
        key = await w.caller(rpm=limit)
        holds = await asyncio.gather(*(w.admit(key, 0) for _ in range(limit)))
        assert holds[0].rates.remaining_requests == limit - 1
        assert holds[-1].rates.remaining_requests <= limit // 20  # a little may have drained between batches
        extra = await asyncio.gather(*(w.admit(key, 0) for _ in range(limit // 20 + 2)), return_exceptions=True)
        assert isinstance(extra[-1], errors.RequestRateLimited)


async def test_limits_of_any_size_allow_exactly_their_burst_at_once(world):
    async with world() as w:
        key = await w.caller(rpm=61)
        answers = await asyncio.gather(*(w.admit(key, 0) for _ in range(64)), return_exceptions=True)  # one script call
        assert [isinstance(answer, Exception) for answer in answers] == [False] * 61 + [True] * 3


async def test_wait_is_exact_to_the_microsecond(world):
    async with world() as w:
        key = await w.caller(rpm=7)
        await asyncio.gather(*(w.admit(key, 0) for _ in range(7)))
        with pytest.raises(errors.RequestRateLimited) as refused:
            await w.admit(key, 0)
        wait = refused.value.retry_after
        assert wait is not None and 8.0 < wait <= 60 / 7 + 1e-6
        name = f"{{a:acme}}:rpm:{key.id}"
        level = (await w.store.client.get(name)).split()[0]
        assert float(level) == 7.0  # the refused ask took nothing
        client = w.store.client
        # Stop the clock's influence: put the stamp where the bucket has just drained to 6 + a hair, then to 6.
        seconds, micros = await client.time()
        now = seconds * MINUTE // 60 + micros
        await client.set(name, b"7 %d 7" % (now - round(60 / 7 * 1e6) + 300_000))
        with pytest.raises(errors.RequestRateLimited) as refused:
            await w.admit(key, 0)
        wait = refused.value.retry_after
        assert wait is not None and wait <= 0.3
        await time_passes(wait)
        await w.admit(key, 0)


async def admitted(world, key, count: int) -> int:
    """How many of so many asks in one moment pass."""
    answers = await asyncio.gather(*(world.admit(key, 0) for _ in range(count)), return_exceptions=True)
    return sum(not isinstance(answer, errors.TooManyRequests) for answer in answers)


async def test_steady_rate_equals_the_limit(world):
    async with world() as w:
        key = await w.caller(rpm=60)
        assert await admitted(w, key, 60) == 60
        for _ in range(5):
            await turn_back(w, "acme", 1_000_000)
            assert await admitted(w, key, 2) == 1
        await turn_back(w, "acme", 59_200_000)  # leaves some real milliseconds for the test itself
        assert await admitted(w, key, 60) == 59


async def test_fractions_of_a_request_are_accumulated(world):
    async with world() as w:
        key = await w.caller(rpm=60)
        assert await admitted(w, key, 60) == 60
        for _ in range(4):
            await turn_back(w, "acme", 1_300_000)
            assert await admitted(w, key, 1) == 1
        assert await admitted(w, key, 2) == 1


async def test_refusal_by_the_token_limit_does_not_count_as_a_request(world):
    async with world() as w:
        key = await w.caller(rpm=10, tpm=100)
        await w.admit(key, 0, 90)
        before = await w.dump()
        with pytest.raises(errors.TokenRateLimited) as refused:
            await w.admit(key, 0, 20)
        assert await w.dump() == before
        assert refused.value.type == "tokens"
        headers = refused.value.headers()
        assert headers["x-ratelimit-remaining-requests"] == "9"
        assert headers["x-ratelimit-remaining-tokens"] == "10"
        assert headers["Retry-After"] == "6"
        assert 5500 <= int(headers["retry-after-ms"]) <= 6000
        assert headers["x-should-retry"] == "true"


async def test_long_wait_tells_sdks_not_to_retry(world):
    async with world() as w:
        key = await w.caller(tpm=100)
        hold = await w.admit(key, 0, 100)
        await settle(w.ledger, hold, 0, tokens=300)
        with pytest.raises(errors.TokenRateLimited) as refused:
            await w.admit(key, 0, 10)
        assert (refused.value.retry_after or 0) > 100
        assert refused.value.headers()["x-should-retry"] == "false"
        assert refused.value.headers()["x-ratelimit-remaining-tokens"] == "0"


async def test_request_larger_than_the_burst_is_a_bad_request(world):
    async with world(default=GroupLimits(tpm=50)) as w:
        key = await w.caller()
        before = await w.dump()
        with pytest.raises(errors.InvalidValue) as refused:
            await w.admit(key, 0, 51)
        assert (refused.value.status, refused.value.code) == (400, "invalid_value")
        assert "51 tokens" in refused.value.message and "50 tokens per minute" in refused.value.message
        assert await w.dump() == before
        await w.admit(key, 0, 50)


@pytest.mark.holds("prices.md#what-is-held-10")
async def test_settlement_corrects_the_token_estimate_both_ways(world):
    async with world(default=GroupLimits(tpm=10_000)) as w:
        key = await w.caller(tpm=1000)
        hold = await w.admit(key, 0, 400)
        await settle(w.ledger, hold, 0, tokens=100)
        assert 90 < await level_of(w, f"{{a:acme}}:tpm:{key.id}") <= 100
        hold = await w.admit(key, 0, 400)
        await settle(w.ledger, hold, 0, tokens=900)
        assert 990 < await level_of(w, f"{{a:acme}}:tpm:{key.id}") <= 1000
        assert 900 < await level_of(w, "{a:acme}:tpm") <= 1000


async def test_tokens_of_a_bucket_that_has_drained_are_still_charged(world):
    async with world() as w:
        key = await w.caller(tpm=60_000)
        hold = await w.admit(key, 0, 10)
        await w.store.client.delete(f"{{a:acme}}:tpm:{key.id}")
        await settle(w.ledger, hold, 0, tokens=50_010)
        with pytest.raises(errors.TokenRateLimited):
            await w.admit(key, 0, 20_000)


async def test_void_returns_the_tokens(world):
    async with world() as w:
        key = await w.caller(tpm=100)
        await void(w.ledger, await w.admit(key, 0, 100))
        await w.admit(key, 0, 100)
        with pytest.raises(errors.TokenRateLimited):
            await w.admit(key, 0, 100)


@pytest.mark.parametrize(("before", "after"), [(600, 6), (6, 600)])
async def test_changed_limit_keeps_the_wait_and_not_the_count(world, before, after):
    async with world(default=GroupLimits(rpm=before)) as w:
        key = await w.caller()
        await asyncio.gather(*(w.admit(key, 0) for _ in range(before)))
        w.ledger.use_groups({"default": GroupLimits(rpm=after)})
        with pytest.raises(errors.RequestRateLimited) as refused:
            await asyncio.gather(*(w.admit(key, 0) for _ in range(after)))
        assert refused.value.retry_after <= 60 / after
        assert int(refused.value.rate_headers["x-ratelimit-limit-requests"]) == after


async def test_group_limits_count_all_keys_and_the_tighter_limit_is_reported(world):
    async with world(default=GroupLimits(rpm=3)) as w:
        one, two = await w.caller(rpm=2), await w.caller()
        assert (await w.admit(one, 0)).rates.limit_requests == 2
        await w.admit(two, 0)
        told = (await w.admit(two, 0)).rates
        assert (told.limit_requests, told.remaining_requests) == (3, 0)
        before = await w.dump()
        with pytest.raises(errors.RequestRateLimited) as refused:
            await w.admit(one, 0)
        assert await w.dump() == before
        assert refused.value.rate_headers["x-ratelimit-limit-requests"] == "3"


async def test_empty_bucket_costs_no_memory(world):
    async with world() as w:
        key = await w.caller(rpm=60_000)
        await w.admit(key, 0)
        assert await w.store.client.pttl(f"{{a:acme}}:rpm:{key.id}") in (-2, 0, 1, 2)  # about to go, or gone


@pytest.mark.parametrize(
    ("microseconds", "text"),
    [
        (0, "0s"),
        (-5, "0s"),
        (1, "1ms"),
        (120_000, "120ms"),
        (999_001, "1s"),
        (1_000_000, "1s"),
        (7_660_000, "7.66s"),
        (360_000_000, "6m0s"),
        (3_612_000_000, "1h0m12s"),
        (3_600_000_000, "1h0m0s"),
        (61_001_000, "1m1.001s"),
    ],
)
def test_durations_have_the_format_of_go(microseconds, text):
    assert duration_text(microseconds) == text


def test_headers_name_only_the_limits_that_exist():
    assert RateState(10, 9, 6_000_000, -1, -1, -1).headers() == {
        "x-ratelimit-limit-requests": "10",
        "x-ratelimit-remaining-requests": "9",
        "x-ratelimit-reset-requests": "6s",
    }


@pytest.mark.holds("configuration.md#groupsname-1")
@pytest.mark.parametrize(
    ("groups", "calls"),
    [
        ({"small": GroupLimits(rpm=3, concurrency=50), "large": GroupLimits(rpm=600)}, 3),
        ({"small": GroupLimits(rpm=300, concurrency=2), "large": GroupLimits(concurrency=9)}, 2),
        ({"free": GroupLimits()}, 1),
        ({}, 1),
    ],
    ids=["lowest rate", "lowest concurrency", "no limits left", "no groups left"],
)
async def test_account_of_an_unknown_group_has_the_lowest_limits_of_all_groups(world, groups, calls):
    async with world(**groups) as w:
        key = await w.caller(group="gone")
        await w.accounts.allow("acme", ["m"])
        assert await admitted(w, key, 10) == calls


async def test_default_group_without_a_table_has_no_limits(world):
    async with world(small=GroupLimits(rpm=3)) as w:
        assert await admitted(w, await w.caller(), 10) == 10

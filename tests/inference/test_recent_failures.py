"""Failed attempts reach the store with what the page of a provider shows, and with no text of an upstream."""

from __future__ import annotations

from gateway.billing.call_record import CallRecord
from gateway.billing.usage import Usage
from gateway.errors.attempt_answer import CANCELLED, AttemptAnswer
from gateway.inference import recent_failures
from gateway.inference.recent_failures import KEPT, MOST_AT_ONCE, RecentFailures, read_failures
from tests.world import OpenWorld


def record(outcome: str = "ok", provider: str = "one", request_id: str = "req_1") -> CallRecord:
    """The end of a call."""
    return CallRecord(
        request_id, "chat", "acme", "key_1", "m", provider, outcome, 200, Usage(), 0, 0, 0, 2, 1.5, None, True
    )


def failed(provider: str, code: str, status: int = 0) -> AttemptAnswer:
    """An attempt."""
    return AttemptAnswer.of(provider, "m", code, status=status, seconds=0.25)


async def test_each_failed_attempt_is_kept_under_its_provider_with_whether_the_call_was_served(
    world: OpenWorld,
) -> None:
    async with world() as w:
        failures = RecentFailures(w.store)
        failures.note(record(), [failed("two", "slow_down", 429), failed("one", "ok", 200)])
        failures.note(record("upstream_timeout", request_id="req_2"), [failed("two", "upstream_error", 500)])
        await failures.send()
        [last, first] = await read_failures(w.store, "two")
        assert (first.request_id, first.account, first.model, first.code) == ("req_1", "acme", "m", "slow_down")
        assert (first.status, first.ms, first.served) == (429, 250, True)
        assert (last.code, last.status, last.served) == ("upstream_error", 500, False)
        [cut] = await read_failures(w.store, "one")
        assert (cut.code, cut.ms, cut.served) == ("upstream_timeout", 1500, False)
        assert await w.store.client.ttl(recent_failures.STREAM + "one") > 0


async def test_last_attempt_of_a_call_is_kept_once_and_ends_that_are_no_failures_are_not(world: OpenWorld) -> None:
    async with world() as w:
        failures = RecentFailures(w.store)
        failures.note(record("upstream_error"), [failed("one", "upstream_error", 500)])
        failures.note(record("request_cancelled"), [])
        failures.note(record("client_closed"), [failed("one", CANCELLED)])
        failures.note(record("insufficient_quota", provider=""), [])
        await failures.send()
        assert [one.code for one in await read_failures(w.store, "one")] == ["upstream_error"]


async def test_number_of_failures_that_are_sent_and_kept_is_bounded(world: OpenWorld) -> None:
    async with world() as w:
        failures = RecentFailures(w.store)
        for number in range(200):
            failures.note(record(request_id=f"req_{number}"), [failed("one", "upstream_error", 500)])
        await failures.send()
        found = await read_failures(w.store, "one")
        assert [one.request_id for one in found] == [f"req_{number}" for number in range(199, 199 - MOST_AT_ONCE, -1)]
        for _ in range(KEPT // MOST_AT_ONCE + 1):
            for number in range(MOST_AT_ONCE):
                failures.note(record(request_id=f"req_{number}"), [failed("one", "upstream_error", 500)])
            await failures.send()
        assert await w.store.client.xlen(recent_failures.STREAM + "one") == KEPT

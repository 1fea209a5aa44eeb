"""Idempotency-Key: the same request runs once, is charged once, and is answered with the same bytes each time."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import aiohttp
import msgspec
import pytest
from msgspec import structs

from gateway.accounts.accounts import Accounts
from gateway.accounts.key_record import CreatedKey
from gateway.accounts.keys import Keys
from gateway.inference import idempotency
from gateway.inference.idempotency import Claim, request_digest
from gateway.ledger import Hold, Ledger, LedgerLine
from gateway.ledger.api_key import ApiKey
from gateway.runtime.gateway import Gateway
from gateway.testing import FakeUpstream, Reply
from tests.api.conftest import Client
from tests.api.endpoints.test_chat_stream import HELLO, _frames
from tests.ledger.records import quote_of, settle, void
from tests.polling import until

CHAT = {"model": "m1", "messages": [{"role": "user", "content": "Hi"}]}
STREAM = {**CHAT, "stream": True, "stream_options": {"include_usage": True}}
PATH = "/v1/chat/completions"


class Answered(msgspec.Struct):
    """One answer as the client saw it; `failed` if it ended without its end."""

    status: int
    headers: Any
    body: bytes
    failed: bool

    @property
    def code(self) -> str:
        """The error's code."""
        return str(msgspec.json.decode(self.body)["error"]["code"])

    @property
    def replayed(self) -> bool:
        """Whether it is said to be an old answer."""
        return bool(self.headers.get("Idempotent-Replayed") == "true")


async def post(
    client: Client, document: Any = CHAT, *, name: str = "order-1", key: CreatedKey | None = None, **headers: str
) -> Answered:
    """One POST with an Idempotency-Key."""
    headers = {**client.headers, "Idempotency-Key": name, **headers}
    if key is not None:
        headers["Authorization"] = f"Bearer {key.text}"
    async with client.request("POST", PATH, data=msgspec.json.encode(document), headers=headers) as response:
        body, failed = b"", False
        try:
            async for part in response.content.iter_any():
                body += part
        except aiohttp.ClientError:
            failed = True
        return Answered(response.status, response.headers, body, failed)


async def charges(ledger: Ledger, account: str = "acme") -> list[LedgerLine]:
    """The lines of calls, without those of calls that failed and cost nothing."""
    lines = [line async for line in ledger.lines(account) if line.kind not in {"open", "topup"}]
    return [line for line in lines if line.amount or line.kind != "use"]


async def proved(ledger: Ledger) -> None:
    """No hold is left and the audit finds nothing."""

    async def released() -> bool:
        return not any(account.held for account in await Accounts(ledger._links, ledger).list())

    await until(released)
    assert (await ledger.audit()).mismatches == []


async def records(gateway: Gateway) -> list[bytes]:
    """The names of all idempotency records."""
    return [name async for name in gateway.store.client.scan_iter(match="{a:acme}:id:*")]


async def kept(gateway: Gateway) -> None:
    """Every claim that ended is written, and every settlement."""
    await gateway.idempotency.drain()
    await gateway.settlement.drain()


# The answer ----------------------------------------------------------------------------------------------------------


@pytest.mark.holds("prices.md#what-is-collected-8")
async def test_repeated_request_runs_once_and_is_answered_with_the_same_bytes(
    client: Client, gateway: Gateway, upstream: FakeUpstream, ledger: Ledger
) -> None:
    first = await post(client)
    await kept(gateway)
    again = await post(client)
    assert (first.status, first.replayed) == (200, False)
    assert (again.status, again.replayed, again.body) == (200, True, first.body)
    assert again.headers["Content-Type"] == "application/json"
    assert again.headers["x-gateway-original-request"] == first.headers["x-request-id"]
    assert again.headers["x-request-id"] != first.headers["x-request-id"]
    assert len(upstream.seen) == 1
    assert [line.request_id for line in await charges(ledger)] == [first.headers["x-request-id"]]
    await proved(ledger)


async def test_replay_of_a_stream_is_equal_byte_for_byte_and_without_its_comments(
    client: Client, gateway: Gateway, upstream: FakeUpstream, ledger: Ledger
) -> None:
    gateway.keep_alive.commit_after = gateway.keep_alive.comment_after = 0.1
    upstream.enqueue(Reply(headers={"Content-Type": "text/event-stream"}, frames=_frames(HELLO), delay=1.2))
    first = await post(client, STREAM)
    await kept(gateway)
    again = await post(client, STREAM)
    assert b": keep-alive\n\n" in first.body
    assert again.body == first.body.replace(b": keep-alive\n\n", b"")
    assert again.body.endswith(b"data: [DONE]\n\n")
    assert again.headers["Content-Type"] == "text/event-stream; charset=utf-8"
    assert (again.replayed, again.failed, len(upstream.seen)) == (True, False, 1)
    assert len(await charges(ledger)) == 1


async def test_stream_that_broke_after_its_charge_is_replayed_up_to_the_break(
    client: Client, gateway: Gateway, upstream: FakeUpstream, ledger: Ledger
) -> None:
    upstream.enqueue(Reply(headers={"Content-Type": "text/event-stream"}, frames=_frames(HELLO[:3]), end="cut"))
    first = await post(client, STREAM)
    await kept(gateway)
    again = await post(client, STREAM)
    assert b"upstream_stream_truncated" in first.body
    assert b"[DONE]" not in first.body
    assert (again.body, again.failed, again.replayed) == (first.body, True, True)
    assert (len(upstream.seen), len(await charges(ledger))) == (1, 1)


async def test_hundred_concurrent_requests_with_one_idempotency_key_make_one_call_and_one_ledger_line(
    client: Client, gateway: Gateway, upstream: FakeUpstream, ledger: Ledger
) -> None:
    upstream.tamper = lambda reply: msgspec.structs.replace(reply, delay=0.3)
    answers = await asyncio.gather(*(post(client) for _ in range(100)))
    assert Counter(answer.status for answer in answers) == {200: 1, 409: 99}
    for answer in answers:
        if answer.status == 409:
            assert (answer.code, answer.headers["Retry-After"]) == ("conflict", "1")
            assert answer.headers["x-should-retry"] == "true"
    await kept(gateway)
    answers = await asyncio.gather(*(post(client) for _ in range(100)))
    assert {(answer.status, answer.replayed) for answer in answers} == {(200, True)}
    assert len({answer.body for answer in answers}) == 1
    assert len(upstream.seen) == 1
    assert len(await charges(ledger)) == 1
    await proved(ledger)


async def test_retries_during_and_after_a_call_get_a_409_or_the_answer(
    client: Client, gateway: Gateway, upstream: FakeUpstream, ledger: Ledger
) -> None:
    """Polls without pause while long calls end: each poll sees 409 or the answer, and nothing runs twice."""
    upstream.tamper = lambda reply: msgspec.structs.replace(reply, delay=0.05)
    for round_ in range(10):
        running = asyncio.create_task(post(client, name=f"round-{round_}"))
        await until(lambda count=round_ + 1: len(upstream.seen) == count)
        for record in await records(gateway):
            await gateway.store.client.hset(record, "until", 1)  # from here on only the hold says that it is alive
        for _ in range(200):
            poll = await post(client, name=f"round-{round_}")
            if poll.replayed:
                break
            assert (poll.status, poll.headers.get("Retry-After")) == (409, "1")
        assert (await running).body == poll.body
    await kept(gateway)
    assert (len(upstream.seen), len(await charges(ledger))) == (10, 10)


async def test_idempotency_key_with_another_body_or_path_is_refused(
    client: Client, gateway: Gateway, upstream: FakeUpstream
) -> None:
    await post(client)
    await kept(gateway)
    other = await post(client, {**CHAT, "temperature": 1})
    assert (other.status, other.code) == (400, "invalid_value")
    assert msgspec.json.decode(other.body)["error"]["param"] is None
    assert len(upstream.seen) == 1


@pytest.mark.parametrize("name", ["", "x" * 256, "tab\there", "caf\xe9"])
async def test_idempotency_key_must_be_short_printable_ascii(client: Client, upstream: FakeUpstream, name: str) -> None:
    answer = await post(client, name=name)
    assert (answer.status, answer.code) == (400, "invalid_value")
    assert not upstream.seen


async def test_idempotency_keys_are_separate_for_each_account(
    client: Client, gateway: Gateway, accounts: Accounts, keys: Keys, upstream: FakeUpstream
) -> None:
    await accounts.create("other", balance=10**9)
    await post(client)
    await kept(gateway)
    assert not (await post(client, key=await keys.create("other"))).replayed
    assert (await post(client, key=await keys.create("acme"))).replayed
    assert len(upstream.seen) == 2


async def test_stored_answer_is_only_for_keys_that_may_still_use_the_model(
    client: Client, gateway: Gateway, keys: Keys, api_key: CreatedKey
) -> None:
    await post(client)
    await kept(gateway)
    assert (await post(client, key=await keys.create("acme", models=["org/m:1"]))).status == 403
    await keys.revoke(api_key.id)
    for document in (CHAT, {**CHAT, "n": 1}):
        assert (await post(client, document)).status == 401


# What is not kept ----------------------------------------------------------------------------------------------------


async def test_refusals_and_failures_release_the_idempotency_key(
    client: Client, gateway: Gateway, accounts: Accounts, keys: Keys, upstream: FakeUpstream, ledger: Ledger
) -> None:
    await accounts.create("poor", balance=1)
    poor = await keys.create("poor")
    assert (await post(client, key=poor)).status == 429
    await accounts.credit("poor", 10**9)
    await kept(gateway)
    assert (await post(client, key=poor)).status == 200

    upstream.enqueue(Reply.error(500, "no"), Reply.error(400, "bad"))
    for status in (502, 400):
        assert (await post(client)).status == status
        await kept(gateway)
    answer = await post(client)
    assert (answer.status, answer.replayed) == (200, False)
    await kept(gateway)
    assert (len(await charges(ledger)), len(await charges(ledger, "poor"))) == (1, 1)


async def test_answer_that_is_too_long_to_store_is_sent_once_and_then_a_409(
    client: Client, gateway: Gateway, upstream: FakeUpstream, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idempotency, "MAX_ANSWER", 300)
    long = {**CHAT, "messages": [{"role": "user", "content": "word " * 100}]}
    first = await post(client, long)
    await kept(gateway)
    again = await post(client, long)
    assert first.status == 200
    assert (again.status, again.code, again.headers["x-should-retry"]) == (409, "conflict", "false")
    assert "Retry-After" not in again.headers
    assert first.headers["x-request-id"] in again.body.decode()
    assert (len(upstream.seen), len(await charges(ledger))) == (1, 1)


async def test_oldest_stored_answers_are_removed_at_the_accounts_bound(
    client: Client, gateway: Gateway, upstream: FakeUpstream
) -> None:
    limits = structs.replace(gateway.settings.server.limits, max_kept_answers=2000)
    server = structs.replace(gateway.settings.server, limits=limits)
    await gateway.reload(structs.replace(gateway.settings, server=server))
    for number in range(6):
        await post(client, name=f"n{number}")
        await kept(gateway)
    kept_bytes: Any = await gateway.store.client.get("{a:acme}:idb")
    assert int(kept_bytes) <= 2000
    assert (await post(client, name="n0")).status == 409
    assert (await post(client, name="n5")).replayed
    assert len(upstream.seen) == 6


async def test_lowered_bound_drops_what_is_kept_beyond_it_at_the_next_answer(client: Client, gateway: Gateway) -> None:
    for number in range(3):
        await post(client, name=f"n{number}")
    await kept(gateway)
    gateway.idempotency.most = 0
    await post(client, name="last")
    await kept(gateway)
    kept_bytes: Any = await gateway.store.client.get("{a:acme}:idb")
    assert int(kept_bytes) == 0
    assert [(await post(client, name=name)).status for name in ("n0", "n2", "last")] == [409] * 3


async def test_request_without_the_header_writes_no_record(client: Client, gateway: Gateway) -> None:
    await client.chat()
    await kept(gateway)
    assert [name async for name in gateway.store.client.scan_iter(match="*:id*")] == []


# Clients and workers that go away -------------------------------------------------------------------------------------


@pytest.mark.holds("prices.md#leaving-early-13")
@pytest.mark.parametrize("document", [CHAT, STREAM], ids=["json", "stream"])
async def test_client_that_lost_its_connection_gets_the_whole_answer_by_its_idempotency_key(
    client: Client, gateway: Gateway, upstream: FakeUpstream, ledger: Ledger, document: dict[str, Any]
) -> None:
    upstream.tamper = lambda reply: msgspec.structs.replace(reply, delay=0.3)
    lost = asyncio.create_task(post(client, document))
    await upstream.wait_started()
    lost.cancel()
    await asyncio.gather(lost, return_exceptions=True)
    answer = await until(lambda: _replayed(client, document))
    assert answer.body
    assert not answer.failed
    await ledger.drain()
    [line] = await charges(ledger)
    assert line.meta["outcome"] == "ok"
    assert len(upstream.seen) == 1
    await proved(ledger)


async def _replayed(client: Client, document: Any) -> Answered | None:
    answer = await post(client, document)
    return answer if answer.replayed else None


async def dead_call(gateway: Gateway, api_key: CreatedKey, *, used: int) -> tuple[Hold, ApiKey]:
    """A call of a worker that died: claimed, admitted, its lease run out after a checkpoint."""
    key = await gateway.auth.authenticate(api_key.text)
    request_id = "req_" + "d" * 32
    digest = request_digest(PATH, msgspec.json.encode(CHAT))
    claim = await gateway.idempotency.claim(key, "order-1", digest=digest, request_id=request_id, model="m1")
    assert isinstance(claim, Claim)
    hold = await gateway.ledger.admit(request_id, key, quote_of(1_000_000, 100, model="m1"))
    hold.used = used
    await gateway.ledger.renew_leases([hold])
    return hold, key


async def let_die(gateway: Gateway, hold: Hold) -> None:
    """Its claim and its lease have run out."""
    client = gateway.store.client
    [record] = await records(gateway)
    await client.hset(record, "until", 1)
    await client.zadd("{a:acme}:rx", {hold.request_id: 1}, xx=True)


@pytest.mark.parametrize("reclaimed", [False, True], ids=["held", "reclaimed"])
@pytest.mark.parametrize("used", [0, 500_000])
async def test_call_of_a_dead_worker_is_undone_and_run_again_for_one_charge(
    client: Client,
    gateway: Gateway,
    api_key: CreatedKey,
    ledger: Ledger,
    accounts: Accounts,
    used: int,
    reclaimed: bool,
) -> None:
    hold, key = await dead_call(gateway, api_key, used=used)
    assert (await post(client)).status == 409
    await let_die(gateway, hold)
    if reclaimed:
        assert await ledger.reclaim("acme") == 1
    answer = await post(client)
    assert (answer.status, answer.replayed) == (200, False)
    await kept(gateway)
    await settle(ledger, hold, 700_000)  # it was only frozen, and comes back
    lines = await charges(ledger)
    found = await ledger.charge_of("acme", answer.headers["x-request-id"])
    assert found is not None
    assert sum(line.amount for line in lines) == -found[1]
    assert [line.kind for line in lines] == (
        [] if not reclaimed else ["reclaim", "refund"] if used else ["reclaim"]
    ) + ["use"]
    assert (await Keys(gateway.store, b"0123456789abcdef").list("acme"))[0].spent == found[1]
    with pytest.raises(Exception, match="settled already"):
        await ledger.admit(hold.request_id, key, quote_of(1, 1, model="m1"))
    await proved(ledger)


async def test_live_lease_keeps_an_idempotency_claim_of_any_age(
    client: Client, gateway: Gateway, api_key: CreatedKey, upstream: FakeUpstream
) -> None:
    hold, _ = await dead_call(gateway, api_key, used=0)
    await let_die(gateway, hold)
    await gateway.ledger.renew_leases([hold])
    assert (await post(client)).status == 409
    assert not upstream.seen


async def test_call_that_was_settled_before_its_worker_died_is_not_charged_again(
    client: Client, gateway: Gateway, api_key: CreatedKey, ledger: Ledger, upstream: FakeUpstream
) -> None:
    hold, _ = await dead_call(gateway, api_key, used=0)
    await settle(ledger, hold, 700_000)
    await let_die(gateway, hold)
    for _ in range(2):
        answer = await post(client)
        assert (answer.status, answer.headers["x-should-retry"]) == (409, "false")
    assert not upstream.seen
    assert len(await charges(ledger)) == 1
    await proved(ledger)


async def test_claim_without_a_hold_expires(client: Client, gateway: Gateway, api_key: CreatedKey) -> None:
    """A worker that died between its claim and its admission."""
    hold, _ = await dead_call(gateway, api_key, used=0)
    await void(gateway.ledger, hold)
    await let_die(gateway, hold)
    assert (await post(client)).status == 200

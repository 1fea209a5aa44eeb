"""Money of realtime sessions: each response is paid once, whatever its client, its upstream or its worker does."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from websockets.exceptions import ConnectionClosed

from gateway.accounts.accounts import Accounts
from gateway.accounts.keys import Keys
from gateway.admin.account_limits import AccountLimits
from gateway.billing.call_record import CallRecord
from gateway.errors import Draining
from gateway.http_server.server import HTTPServer
from gateway.ledger import Ledger
from gateway.ledger.inflight_checkpoint import InflightCheckpoint, read_inflight_checkpoint
from gateway.runtime.gateway import Gateway
from tests.api.conftest import Client, settled
from tests.api.realtime.conftest import RealtimeUpstream, cost, counts, talking
from tests.polling import until

TEN = 10 * 10**9
ENDLESS = "/v1/realtime?model=endless"
EVENTS = 12  # of a response of two words
WORDS = 40


async def audited(ledger: Ledger) -> None:
    """No balance, hold or line is wrong."""
    report = await ledger.audit()
    assert not report.mismatches, report.mismatches


@pytest.mark.parametrize("after", range(EVENTS + 1))
async def test_socket_that_is_cut_after_each_event_is_charged_once(
    client: Client, accounts: Accounts, records: list[CallRecord], ledger: Ledger, after: int
) -> None:
    """What was delivered is charged, at most the whole; without content nothing."""
    async with talking(client, "/v1/realtime?model=slow") as talk:
        await talk.send("response.create")
        heard = [await talk.event() for _ in range(after)]
        talk.wire.transport.abort()
    account = await settled(accounts)
    charged = TEN - account.balance
    assert charged == sum(record.cost for record in records)
    words = sum(event["type"].endswith("transcript.delta") for event in heard)
    assert charged >= words * 1000 * 16 // 4
    assert charged <= cost(20, 0, WORDS, WORDS * 5)
    if after < 3:
        assert len(records) == 1
    await audited(ledger)


@pytest.mark.holds("prices.md#realtime-sessions-6")
@pytest.mark.parametrize("cut", ["close", "abort"])
async def test_upstream_that_is_cut_in_a_response_is_charged_for_what_it_delivered(
    client: Client, vendor: RealtimeUpstream, accounts: Accounts, records: list[CallRecord], cut: str
) -> None:
    async with talking(client) as talk:
        await vendor.begin()
        await vendor.text("x" * 400)
        await talk.until("response.output_text.delta")
        if cut == "close":
            await vendor.sockets[-1].close()
        else:
            vendor.sockets[-1].transport.abort()
        assert (await talk.until("error"))[-1]["error"]["code"] == "upstream_stream_truncated"
        assert await talk.closed() == 1011
    await settled(accounts)
    [record] = records
    assert record.cost == cost(0, 0, 100, 0)
    assert record.usage.estimated and record.status >= 500


@pytest.mark.holds("prices.md#realtime-sessions-6")
async def test_response_that_fails_before_any_content_costs_nothing(
    client: Client, vendor: RealtimeUpstream, accounts: Accounts
) -> None:
    async with talking(client) as talk:
        await vendor.begin()
        await vendor.done(status="failed", **counts(500, 0, 0, 0))
        await talk.until("response.done")
        await vendor.begin("resp_2")
        await talk.until("response.created")
        await vendor.sockets[-1].close()
        assert await talk.closed() == 1011
    assert (await settled(accounts)).balance == TEN


@pytest.mark.holds("prices.md#realtime-sessions-7")
@pytest.mark.parametrize(
    ("usage", "least", "most"),
    [
        ({}, 1, 110),
        ({"input_tokens": 0, "output_tokens": 0}, 1, 110),
        ({"input_tokens": -5, "output_tokens": 10**18}, 1, 110),
        ({"input_tokens": "many", "output_tokens": None}, 1, 110),
        ({"input_tokens": 10**8, "output_tokens": 100}, 100, 6000),
        ({"input_tokens": 1, "output_tokens": 999_999_999}, 100, 32_768),
        ({"input_tokens": 1, "output_tokens": 1}, 100, 110),
    ],
)
async def test_counts_of_a_lying_upstream_are_believed_within_bounds(
    client: Client, vendor: RealtimeUpstream, accounts: Accounts, records: list[CallRecord], usage: dict[str, Any],
    least: int, most: int,
) -> None:  # fmt: skip
    """The response delivers 100 tokens."""
    async with talking(client) as talk:
        await vendor.begin()
        await vendor.text("x" * 400)
        await vendor.say("response.done", response={"id": "resp_1", "status": "completed", "usage": usage})
        await talk.until("response.done")
    await settled(accounts)
    found = records[0].usage
    assert found.estimated
    assert least <= found.tokens_in + found.tokens_out <= most + 110
    assert found.tokens_out >= 100


@pytest.mark.holds("prices.md#realtime-sessions-6")
async def test_lost_usage_is_estimated(
    client: Client, vendor: RealtimeUpstream, accounts: Accounts, records: list[CallRecord]
) -> None:
    async with talking(client) as talk:
        await vendor.begin()
        await vendor.text("x" * 400)
        await vendor.done()
        await talk.until("response.done")
    await settled(accounts)
    assert records[0].cost == cost(0, 0, 100, 0) and records[0].usage.estimated


@pytest.mark.holds("prices.md#realtime-sessions-3")
async def test_money_that_runs_out_in_a_response_ends_it_and_nothing_below_zero_is_charged(
    client: Client, accounts: Accounts, ledger: Ledger, records: list[CallRecord]
) -> None:
    """The hold is extended as the response goes on, until the account has no more."""
    await ledger.credit("acme", -(TEN - 100_000_000), kind="adj")
    async with talking(client, ENDLESS) as talk:
        await talk.send("response.create")
        async with asyncio.timeout(30):
            event = (await talk.until("error"))[-1]
        assert event["error"]["type"] == "insufficient_quota"
        assert await talk.closed() == 1008
    account = await settled(accounts)
    assert 0 <= account.balance < 60_000_000
    assert records[0].cost > 60_000_000
    await audited(ledger)


@pytest.mark.holds("prices.md#realtime-sessions-4")
async def test_money_that_does_not_cover_the_next_response_closes_with_1008(
    client: Client, vendor: RealtimeUpstream, accounts: Accounts, ledger: Ledger
) -> None:
    """The balance is checked after each response."""
    await ledger.credit("acme", -(TEN - 70_000_000), kind="adj")  # a response holds 65,536,000
    async with talking(client) as talk:
        await vendor.begin()
        await vendor.text("hello")
        await vendor.done(**counts(1000, 0, 500, 0))
        assert (await talk.until("error"))[-1]["error"]["type"] == "insufficient_quota"
        assert await talk.closed() == 1008
        await until(lambda: vendor.sockets[-1].close_code is not None)
    account = await settled(accounts)
    assert 0 < account.balance < 70_000_000
    await audited(ledger)


@pytest.mark.holds("prices.md#realtime-sessions-1")
async def test_handshake_holds_the_first_response(client: Client, gateway: Gateway) -> None:
    async with talking(client):
        [call] = gateway.active_calls.calls.values()
        assert call.hold.amount == cost(0, 0, 0, call.model.default_reserve_output)


@pytest.mark.holds("prices.md#realtime-sessions-9")
@pytest.mark.parametrize(("policy", "charged"), [("void", 0), ("drain", 100), ("auto", 100)])
async def test_response_whose_client_leaves_is_not_read_on(
    client: Client, vendor: RealtimeUpstream, gateway: Gateway, accounts: Accounts, policy: str, charged: int
) -> None:
    gateway.catalog.models["rt"] = structs.replace(gateway.catalog.models["rt"], disconnect=policy)  # type: ignore[index]
    gateway.router._groups.clear()
    gateway.router._only.clear()
    async with talking(client) as talk:
        await vendor.begin()
        await vendor.text("x" * 400)
        await talk.until("response.output_text.delta")
        talk.wire.transport.abort()
        await until(lambda: vendor.sockets[-1].close_code is not None)
    assert TEN - (await settled(accounts)).balance == cost(0, 0, charged, 0)


@pytest.mark.holds("prices.md#realtime-sessions-2")
async def test_input_is_held_before_it_is_passed_on(
    client: Client, vendor: RealtimeUpstream, accounts: Accounts, ledger: Ledger
) -> None:
    """A long text makes the next prompt too expensive for the account: the upstream never gets it."""
    await ledger.credit("acme", -(TEN - 80_000_000), kind="adj")
    async with talking(client) as talk:
        content = [{"type": "input_text", "text": "word " * 20_000}]
        await talk.send("conversation.item.create", item={"type": "message", "role": "user", "content": content})
        assert (await talk.until("error"))[-1]["error"]["type"] == "insufficient_quota"
        assert await talk.closed() == 1008
    assert not vendor.received
    assert (await settled(accounts)).balance == 80_000_000


async def test_long_conversation_raises_the_hold(client: Client, vendor: RealtimeUpstream, gateway: Gateway) -> None:
    async with talking(client) as talk:
        [call] = gateway.active_calls.calls.values()
        before = call.hold.amount
        content = [{"type": "input_text", "text": "word " * 10_000}]
        await talk.send("conversation.item.create", item={"type": "message", "role": "user", "content": content})
        await until(lambda: vendor.received)
        assert call.hold.amount >= before + 12_500 * 4000


@pytest.mark.holds("prices.md#realtime-sessions-2")
async def test_audio_raises_the_hold(client: Client, vendor: RealtimeUpstream, gateway: Gateway) -> None:
    async with talking(client) as talk:
        [call] = gateway.active_calls.calls.values()
        before = call.hold.amount
        minute = base64.b64encode(bytes(48_000 * 60)).decode()
        await talk.send("input_audio_buffer.append", audio=minute)
        await until(lambda: vendor.received)
        assert call.hold.amount >= before + 600 * 32_000


@pytest.mark.holds("prices.md#realtime-sessions-8")
async def test_response_of_a_killed_worker_is_in_its_checkpoint(
    client: Client, vendor: RealtimeUpstream, ledger: Ledger, tmp_path: Path, gateway: Gateway
) -> None:
    ledger.checkpoint = InflightCheckpoint(tmp_path / "a.board")
    async with talking(client) as talk:
        await talk.send("conversation.item.create", item={"content": [{"type": "input_text", "text": "w" * 4000}]})
        await until(lambda: vendor.received)
        await vendor.begin()
        await talk.until("response.created")
        assert not read_inflight_checkpoint(tmp_path / "a.board").entries, "nothing was delivered"
        await vendor.text("x" * 400)
        await talk.until("response.output_text.delta")
        [entry] = read_inflight_checkpoint(tmp_path / "a.board").entries
    prompt = 1000 + 30
    assert cost(1000, 0, 100, 0) <= -entry.amount <= cost(prompt, 0, 100, 0)


@pytest.mark.holds("prices.md#realtime-sessions-8")
async def test_audio_of_a_killed_worker_is_charged_at_its_price(
    client: Client, vendor: RealtimeUpstream, ledger: Ledger, tmp_path: Path, gateway: Gateway
) -> None:
    ledger.checkpoint = InflightCheckpoint(tmp_path / "a.board")
    async with talking(client) as talk:
        await vendor.begin()
        await vendor.say(
            "response.output_audio.delta", response_id="resp_1", delta=base64.b64encode(bytes(480_000)).decode()
        )
        await talk.until("response.output_audio.delta")
        [entry] = read_inflight_checkpoint(tmp_path / "a.board").entries
    assert cost(0, 0, 0, 205) <= -entry.amount <= cost(0, 0, 0, 215)


async def test_revoked_key_ends_a_session_within_five_seconds(
    client: Client, keys: Keys, gateway: Gateway, accounts: Accounts, vendor: RealtimeUpstream
) -> None:
    created = await keys.create("acme", name="gone")
    client.headers = {"Authorization": f"Bearer {created.text}"}
    async with talking(client) as talk:
        await keys.revoke(created.id)
        async with asyncio.timeout(5):
            event = (await talk.until("error"))[-1]
            assert event["error"]["code"] == "invalid_api_key"
            assert await talk.closed() == 1008
        await until(lambda: vendor.sockets[-1].close_code is not None)
    assert (await settled(accounts)).balance == TEN


async def test_revocation_whose_message_is_lost_is_found_by_the_renewal(
    client: Client, keys: Keys, gateway: Gateway, accounts: Accounts, monkeypatch: pytest.MonkeyPatch
) -> None:
    created = await keys.create("acme", name="gone")
    client.headers = {"Authorization": f"Bearer {created.text}"}
    monkeypatch.setattr(gateway.active_calls, "revoked", lambda account, key: None)
    async with talking(client, ENDLESS) as talk:
        await talk.send("response.create")
        await talk.until("response.output_audio.delta")
        await keys.revoke(created.id)
        await gateway.active_calls.renew_leases()
        assert await talk.closed() == 1008
    await settled(accounts)


async def test_operator_cancels_a_session(client: Client, gateway: Gateway, accounts: Accounts) -> None:
    async with talking(client, ENDLESS) as talk:
        await talk.send("response.create")
        await talk.until("response.output_audio.delta")
        [name] = gateway.active_calls.calls
        assert gateway.active_calls.cancel(name) is not None
        assert await talk.closed() == 1008
    assert (await settled(accounts)).balance < TEN


async def test_drain_closes_silent_sessions_at_once_and_others_after_their_response(
    client: Client, http_server: HTTPServer, gateway: Gateway, accounts: Accounts, records: list[CallRecord]
) -> None:
    async with talking(client, "/v1/realtime?model=fake") as silent, talking(client, "/v1/realtime?model=slow") as busy:
        await busy.send("response.create")
        await busy.until("response.created")
        draining = asyncio.create_task(http_server.drain(20.0))
        assert await silent.closed() == 1001
        assert (await busy.until("response.done"))[-1]["response"]["status"] == "completed"
        assert await busy.closed() == 1001
        await draining
    await settled(accounts)
    assert max(record.cost for record in records) > 0


async def test_drain_closes_a_session_whose_client_goes_on_sending(client: Client, http_server: HTTPServer) -> None:
    """It is never silent for as long as an idle connection is."""
    audio = base64.b64encode(bytes(480)).decode()
    async with talking(client, "/v1/realtime?model=fake") as talk:
        draining = asyncio.create_task(http_server.drain(20.0))
        with pytest.raises(ConnectionClosed):
            while True:
                await talk.send("input_audio_buffer.append", audio=audio)
                await asyncio.sleep(0)
        assert talk.wire.close_code == 1001
        await draining


async def test_session_that_is_cut_at_the_end_of_a_drain_says_so(
    client: Client, gateway: Gateway, accounts: Accounts
) -> None:
    async with talking(client, ENDLESS) as talk:
        await talk.send("response.create")
        await talk.until("response.output_audio.delta")
        gateway.active_calls.cut_all(Draining())
        assert await talk.closed() == 1001
    assert (await settled(accounts)).balance < TEN


async def test_budget_of_a_session_holds_for_its_responses(
    client: Client, vendor: RealtimeUpstream, gateway: Gateway, accounts: Accounts, records: list[CallRecord]
) -> None:
    await AccountLimits(gateway.store, accounts).change("acme", max_session_cost=100_000_000)
    client.headers = {**client.headers, "session-id": "s-1"}
    async with talking(client) as talk:
        for number in range(6):
            await vendor.begin(f"resp_{number}")
            await vendor.text("x" * 4000, f"resp_{number}")
            await vendor.done(f"resp_{number}", **counts(0, 0, 1000, 0))
        assert (await talk.until("error"))[-1]["error"]["code"] == "session_budget_exceeded"
        assert await talk.closed() == 1008
    await settled(accounts)
    assert 0 < sum(record.cost for record in records) <= 100_000_000


async def test_sessions_opened_and_left_again_and_again_leave_nothing(
    client: Client, http_server: HTTPServer, gateway: Gateway, accounts: Accounts, ledger: Ledger
) -> None:
    """In batches, in each part of a session, by each way to leave."""

    async def once(turn: int) -> None:
        async with talking(client, "/v1/realtime?model=fake") as talk:
            if turn % 3:
                await talk.send("response.create")
            if turn % 3 == 2:
                await talk.until("response.created")
            if turn % 2:
                talk.wire.transport.abort()

    for turn in range(0, 120, 12):
        await asyncio.gather(*(once(turn + at) for at in range(12)))
    assert await until(lambda: not http_server.connections)
    await settled(accounts)
    assert not gateway.active_calls.calls
    await audited(ledger)

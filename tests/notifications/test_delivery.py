"""Events reach the webhook and the mail server, once each, whatever the receiver and the process do meanwhile."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec import structs

from gateway.admin.mail import Delivery as MailDelivery
from gateway.database.engine import Database
from gateway.metrics import Metrics
from gateway.notifications import queue as queues
from gateway.notifications import sender as senders
from gateway.notifications import webhook as webhooks
from gateway.notifications.events import Condition, Event, new_event
from gateway.notifications.owners import AccountOwners
from gateway.notifications.sender import Sender, pause_after
from gateway.notifications.webhook import Webhook
from gateway.store import Store
from tests.admin.services import ROOT
from tests.notifications.conftest import Notifying, settings_of
from tests.notifications.receiver import Receiver
from tests.polling import until


class Outgoing:
    """A mail server; it refuses everything while it has a problem."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, str, str]] = []
        self.problem = ""
        self.is_final = False  # of the problem

    async def send(self, to: str, subject: str, text: str, *, sender: str = "") -> MailDelivery:
        if not self.problem:
            self.sent.append((to, subject, text))
        return MailDelivery(not self.problem, self.problem, self.is_final)


class Sending:
    """A sender to a receiver; `restart` makes another one, as a new process does."""

    def __init__(self, n: Notifying, url: str, tmp_path: Any, **rest: Any) -> None:
        self.n = n
        self.settings = settings_of(tmp_path, url)
        self.rest = {"keep": timedelta(days=3), **rest}
        self.metrics = Metrics()
        self.restart()

    def restart(self) -> None:
        assert self.settings.webhook_url is not None
        webhook = Webhook(self.settings.webhook_url, self.settings.webhook_secrets)
        self.sender = Sender(self.n.queue, self.metrics, webhook=webhook, **self.rest)

    async def until_empty(self, within: float = 10.0) -> None:
        """Send until nothing waits."""

        async def is_empty() -> bool:
            await self.sender.step()
            return (await self.n.queue.counts())[0] == 0

        await until(is_empty, within=within)

    def count(self, *labels: str) -> float:
        return self.metrics._counters.get(("gateway_notifications", labels), 0.0)


async def happen(n: Notifying, number: int = 1, *channels: str) -> list[Event]:
    """New events of some subjects."""
    events = []
    for index in range(number):
        event = new_event("balance.low", {"account": f"a{index}", "balance": "1"}, account="acme")
        condition = Condition("balance.low", f"{event.id}", 1, event.data)
        assert (await n.queue.note([condition], event, channels or ["webhook"])).is_queued
        events.append(event)
    return events


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(senders, "FIRST_PAUSE", 0.01)


@pytest.mark.holds("notifications.md#webhook-1")
async def test_event_is_sent_again_with_the_same_id_after_an_error(notifying, tmp_path) -> None:
    async with notifying() as n, Receiver() as receiver:
        receiver.answers = [500, 302, 429, 200]
        sending = Sending(n, receiver.url, tmp_path)
        [event] = await happen(n)
        await sending.until_empty()
        assert [attempt["id"] for attempt in receiver.attempts] == [event.id] * 4
        [taken] = receiver.taken
        assert (taken["type"], taken["timestamp"], taken["data"]) == (event.type, event.at, event.data)
        assert taken["target"] == "POST /hook?team=a HTTP/1.1"
        assert (
            sending.count("balance.low", "webhook", "sent"),
            sending.count("balance.low", "webhook", "retried"),
        ) == (1, 3)
        assert await n.queue.counts() == (0, 0)


async def test_receiver_that_hangs_delays_its_event_and_is_asked_again(notifying, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(webhooks, "TIMEOUTS", structs.replace(webhooks.TIMEOUTS, first_byte=0.1, total=0.2))
    async with notifying() as n, Receiver() as receiver:
        receiver.answers = [0]
        sending = Sending(n, receiver.url, tmp_path)
        await happen(n, 3)
        await sending.until_empty()
        assert len(receiver.events()) == 3
        assert len(receiver.attempts) == 4


@pytest.mark.holds("notifications.md#delivery-1")
async def test_events_survive_a_receiver_that_is_away_and_a_restart(notifying, tmp_path) -> None:
    async with notifying() as n:
        away = Receiver()
        sending = Sending(n, away.url, tmp_path)
        events = await happen(n, 20)
        for _ in range(4):
            await sending.sender.step()
        [(delivery, _), *_] = await n.queue.waiting(1)
        assert delivery.problem.startswith("Unreachable")
        assert "model provider" not in delivery.problem
        sending.restart()
        async with away as receiver:
            await sending.until_empty()
            assert {event["id"] for event in receiver.events()} == {event.id for event in events}
            assert len(receiver.taken) == 20


@pytest.mark.holds("notifications.md#webhook-5")
async def test_sender_that_dies_after_the_receiver_has_the_event_repeats_its_id(
    notifying, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(queues, "LEASE", 50)
    async with notifying() as n, Receiver() as receiver:
        sending = Sending(n, receiver.url, tmp_path)
        [event] = await happen(n)
        done = n.queue.done

        async def killed(*_: Any, **__: Any) -> None:
            raise asyncio.CancelledError

        monkeypatch.setattr(n.queue, "done", killed)
        with pytest.raises(asyncio.CancelledError):
            await sending.sender.step()
        monkeypatch.setattr(n.queue, "done", done)
        sending.restart()
        await sending.until_empty()
        assert [attempt["id"] for attempt in receiver.attempts] == [event.id] * 2


async def test_two_senders_send_each_event_once(notifying, tmp_path) -> None:
    async with notifying() as n, Receiver() as receiver:
        one, other = (Sending(n, receiver.url, tmp_path) for _ in range(2))
        await happen(n, 60)
        await asyncio.gather(one.until_empty(), other.until_empty())
        assert len(receiver.attempts) == 60


@pytest.mark.holds("notifications.md#delivery-1")
async def test_event_that_is_too_old_is_given_up_and_can_be_sent_again(notifying, tmp_path, caplog) -> None:
    async with notifying() as n, Receiver() as receiver:
        receiver.answers = [500]
        sending = Sending(n, receiver.url, tmp_path, keep=timedelta(0))
        [event] = await happen(n)
        await sending.until_empty()
        [(failed, at)] = await n.queue.failed(10)
        assert (failed.event.id, failed.attempts, failed.problem) == (event.id, 1, "status 500")
        assert abs(datetime.now(UTC).timestamp() - at) < 60
        assert sending.count("balance.low", "webhook", "failed") == 1
        assert "was not delivered" in caplog.text
        assert await n.queue.try_again("msg_other") == 0
        assert await n.queue.try_again(event.id) == 1
        await sending.until_empty()
        assert [taken["id"] for taken in receiver.taken] == [event.id]
        assert await n.queue.counts() == (0, 0)


@pytest.mark.holds("notifications.md#delivery-1")
async def test_receiver_that_is_gone_for_good_is_not_asked_again(notifying, tmp_path) -> None:
    async with notifying() as n, Receiver() as receiver:
        receiver.answers = [410]
        await happen(n)
        await Sending(n, receiver.url, tmp_path).until_empty()
        assert len(receiver.attempts) == 1
        assert (await n.queue.counts())[1] == 1


@pytest.mark.holds("notifications.md#delivery-1")
async def test_wait_that_the_receiver_asks_for_is_obeyed(notifying, tmp_path) -> None:
    async with notifying() as n, Receiver() as receiver:
        receiver.answers, receiver.headers = [503], {"Retry-After": "1000"}
        await happen(n)
        await Sending(n, receiver.url, tmp_path).sender.step()
        [(_, at)] = await n.queue.waiting(1)
        assert 990 < at - datetime.now(UTC).timestamp() < 1010


async def test_message_is_not_sent_without_encryption_to_another_machine(notifying, tmp_path) -> None:
    (tmp_path / "url").write_text("http://192.0.2.1/hook")
    async with notifying() as n:
        await happen(n)
        await Sending(n, f"file:{tmp_path / 'url'}", tmp_path).sender.step()
        [(delivery, _)] = await n.queue.waiting(1)
        assert delivery.problem.startswith("notify.webhook: expected https")
        assert "192.0.2.1" not in delivery.problem


async def next_millisecond(store: Store) -> None:
    """Wait until the clock of the store shows another one."""

    async def shown() -> int:
        seconds, micros = await store.link("").call("TIME")
        return int(seconds) * 1000 + int(micros) // 1000

    before = await shown()

    async def is_over() -> bool:
        return await shown() > before

    await until(is_over)


@pytest.mark.holds("notifications.md#delivery-2")
async def test_full_queue_drops_the_oldest_deliveries_and_counts_them(notifying, monkeypatch) -> None:
    monkeypatch.setattr(queues, "MOST", 5)
    async with notifying() as n:
        for number in range(8):
            await n.world.accounts.create(f"a{number}", balance=1)
            await n.sweep()
            await next_millisecond(n.world.store)  # of two accounts in one, the queue drops either
        kept = [data["account"] for _, data in await n.events()]
        assert sorted(kept) == [f"a{number}" for number in range(3, 8)]
        assert n.metrics._counters["gateway_notifications", ("balance.low", "any", "dropped")] == 3


async def test_event_is_mailed_until_the_server_takes_it(notifying, tmp_path) -> None:
    mail = Outgoing()
    async with notifying() as n, Receiver() as receiver:
        sending = Sending(n, receiver.url, tmp_path, mail=mail)
        mail.problem = "OSError: away"
        [event] = await happen(n, 1, "mail:ops@example.com")
        await sending.sender.step()
        mail.problem = ""
        await sending.until_empty()
        [(to, subject, text)] = mail.sent
        assert (to, subject) == ("ops@example.com", "Balance low: a0")
        assert "balance: 1\n" in text
        assert event.id in text


@pytest.mark.holds("notifications.md#delivery-3")
async def test_owners_get_the_events_of_their_account(services, notifying, tmp_path, sql) -> None:
    mail = Outgoing()
    async with services() as s:
        n = Notifying(s.world, settings_of(tmp_path))
        ann, bob = await s.owner("ann@example.com"), await s.owner("bob@example.com")
        await s.owner("eve@example.com", account="other")
        gone = await s.owner("gone@example.com")
        await s.people.users.disable(ROOT, gone.id)
        owners = AccountOwners(lambda: Database.open(s.database.address), sql)
        sending = Sending(n, "http://127.0.0.1:9/", tmp_path, mail=mail, owners=owners)
        await happen(n, 1, "owners")
        await sending.sender.step()
        channels = sorted(delivery.channel for delivery in await n.deliveries())
        assert channels == sorted([f"owner:{ann.id}", f"owner:{bob.id}"])
        await s.people.personal_data.erase(ROOT, bob.id)
        await sending.until_empty()
        assert [to for to, _, _ in mail.sent] == ["ann@example.com"]
        [(failed, _)] = await n.queue.failed(10)
        assert failed.problem == "the user is disabled or erased"
        assert "@" not in await s.world.text()


async def test_message_that_can_never_be_sent_is_given_up_at_once(services, notifying, tmp_path, sql) -> None:
    mail = Outgoing()
    mail.problem, mail.is_final = "no e-mail is sent to this address", True
    async with services() as s:
        n = Notifying(s.world, settings_of(tmp_path))
        ann = await s.owner("ann@example.com")
        owners = AccountOwners(lambda: Database.open(s.database.address), sql)
        sending = Sending(n, "http://127.0.0.1:9/", tmp_path, mail=mail, owners=owners)
        await happen(n, 1, f"owner:{ann.id}")
        await sending.sender.step()
        [(failed, _)] = await n.queue.failed(10)
        assert failed.problem == mail.problem


async def test_channel_that_is_not_configured_any_more_is_given_up(notifying) -> None:
    async with notifying() as n:
        await happen(n, 1, "webhook", "mail:a@b.c", "owners")
        await Sender(n.queue, Metrics(), keep=timedelta(days=3)).step()
        assert await n.queue.counts() == (0, 3)


def test_pauses_grow_to_an_hour_and_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(senders, "FIRST_PAUSE", 5.0)
    pauses = [[pause_after(attempts) for _ in range(50)] for attempts in (1, 2, 3, 20)]
    for listed, middle in zip(pauses, (5, 15, 45, 3600), strict=True):
        assert all(middle * 0.8 <= pause <= middle * 1.2 for pause in listed)
        assert len(set(listed)) > 10

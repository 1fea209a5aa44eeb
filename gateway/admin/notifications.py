"""What operators do with notifications: a test, the queue, thresholds of accounts. Amounts are nano-units."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from msgspec import Struct

from gateway.accounts.accounts import Accounts
from gateway.admin.actor import Actor
from gateway.admin.audit_event import new_event as new_audit_event
from gateway.admin.mail import Mail, SmtpMail
from gateway.admin.outbox import AuditOutbox
from gateway.admin.times import time_text
from gateway.amounts import MAX_AMOUNT, format_amount
from gateway.config.settings import Settings
from gateway.errors import InvalidValue, NotFound
from gateway.notifications.events import TEST, Delivery, new_event
from gateway.notifications.mailing import message_of
from gateway.notifications.queue import Queue
from gateway.notifications.webhook import Webhook
from gateway.store.links import Links, slot

FIELD = "low"  # in the account's hash


class ChannelResult(Struct, frozen=True):
    """The result of a test event at one channel; `answer` is for people."""

    channel: str
    is_taken: bool
    answer: str


class Threshold(Struct, frozen=True):
    """The balance at which `balance.low` is sent for an account; None: that of the configuration."""

    account: str
    balance_low: int | None

    def json_form(self) -> dict[str, Any]:
        """The JSON document of `gateway notify threshold`."""
        low = self.balance_low
        return {"account": self.account, "balance_low": None if low is None else format_amount(low)}


class NotificationQueue:
    """The queue and the thresholds, in the store."""

    def __init__(self, links: Links, accounts: Accounts, outbox: AuditOutbox) -> None:
        self._links = links
        self._accounts = accounts
        self._outbox = outbox
        self._queue = Queue(links)

    async def list(self, actor: Actor, *, most: int) -> list[dict[str, Any]]:
        """Deliveries that wait, the next one first, then those that failed, the last one first; of each at most `most`.

        Needs the scope `read`. The forms are those of `gateway notify list`.
        """
        actor.require("read")
        waiting, failed = await self._queue.waiting(most), await self._queue.failed(most)
        return [
            *(_form(delivery, "waiting", next_attempt=at) for delivery, at in waiting),
            *(_form(delivery, "failed", failed=at) for delivery, at in failed),
        ]

    async def retry(self, actor: Actor, event_id: str = "") -> int:
        """Queue the failed deliveries of an event, or all of them, again; needs the scope `config`.

        NotFound if no delivery of that event has failed.
        """
        actor.require("config")
        count = await self._queue.try_again(event_id)
        if event_id and not count:
            raise NotFound(f"no delivery of event {event_id!r} has failed")
        return count

    async def threshold(self, actor: Actor, account: str) -> Threshold:
        """The threshold of an account; needs the scope `read`, or an owner. NotFound."""
        if not actor.owns(account):
            actor.require("read", account)
        await self._accounts.show(account)
        found = await self._links.link(slot(account)).call("HGET", slot(account), FIELD)
        return Threshold(account, int(found) if found is not None else None)

    async def set_threshold(self, actor: Actor, account: str, amount: int | None) -> Threshold:
        """Set the threshold of an account, 0 for none; None removes it, so that the configuration's counts.

        Needs the scope `accounts`, or an owner. NotFound; InvalidValue for an impossible amount.
        """
        if not actor.owns(account):
            actor.require("accounts", account)
        if amount is not None and not 0 <= amount <= MAX_AMOUNT:
            raise InvalidValue(f"a threshold of {format_amount(amount)} is not possible")
        await self._accounts.show(account)  # accounts are never deleted, so it still exists below
        call, name = self._links.link(slot(account)).call, slot(account)
        found = await call("HGET", name, FIELD)
        await (call("HDEL", name, FIELD) if amount is None else call("HSET", name, FIELD, amount))
        before, after = Threshold(account, int(found) if found is not None else None), Threshold(account, amount)
        event = new_audit_event(
            actor,
            "accounts.threshold",
            f"account:{account}",
            account=account,
            before={"balance_low": before.json_form()["balance_low"]},
            after={"balance_low": after.json_form()["balance_low"]},
        )
        await self._outbox.add(event)
        return after


async def send_test(actor: Actor, settings: Settings, *, mail: Mail | None = None) -> list[ChannelResult]:
    """Send an event of the type `test` to the webhook and to `mail_to` now; needs the scope `config`.

    InvalidValue if neither is configured. A failure is a result.
    """
    actor.require("config")
    notify, url = settings.notify, settings.webhook_url
    if url is None and not notify.mail_to:
        raise InvalidValue("no channel is configured: set webhook or mail_to in [notify]")
    event = new_event(TEST, {"message": "This is a test."})
    results = []
    if url is not None:
        webhook = Webhook(url, settings.webhook_secrets)
        try:
            attempt = await webhook.send(event)
        finally:
            await webhook.close()
        answer = attempt.problem or f"status {attempt.status}"
        results.append(ChannelResult("webhook", attempt.is_taken, answer))
    mail = mail or SmtpMail(settings)
    for address in notify.mail_to:
        sent = await mail.send(address, *message_of(event), sender=actor.name)
        results.append(ChannelResult(f"mail:{address}", sent.is_sent, sent.problem or "the mail server took it"))
    return results


def _form(
    delivery: Delivery, state: str, *, next_attempt: float | None = None, failed: float | None = None
) -> dict[str, Any]:
    event = delivery.event
    return {
        "event": event.id,
        "type": event.type,
        "at": event.at,
        "account": event.account,
        "channel": delivery.channel,
        "state": state,
        "attempts": delivery.attempts,
        "next_attempt": _text(next_attempt),
        "failed": _text(failed),
        "problem": delivery.problem,
    }


def _text(seconds: float | None) -> str | None:
    return None if seconds is None else time_text(datetime.fromtimestamp(seconds, UTC))

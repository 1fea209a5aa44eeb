"""Delivers what is in the queue, with growing pauses after failures, until an event is too old."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Protocol

from msgspec import structs

from gateway.errors import DatabaseRefused, DatabaseUnavailable
from gateway.ledger.gather_all import gather_bounded
from gateway.log import gateway_log
from gateway.metrics import Metrics
from gateway.notifications.events import Delivery, Event
from gateway.notifications.mailing import Mail, message_of
from gateway.notifications.queue import Queue
from gateway.notifications.webhook import Attempt

TOGETHER = 8  # deliveries at once
FIRST_PAUSE, LONGEST_PAUSE = 5.0, 3600.0  # seconds before another attempt; each pause is three times the one before
JITTER = 0.2  # of a pause, so that deliveries that failed together are not repeated together
UNCONFIGURED = "the channel is not in the configuration any more"


class Receiver(Protocol):
    """What takes events."""

    async def send(self, event: Event) -> Attempt: ...


class OwnerLookup(Protocol):
    """Who owns an account."""

    async def of(self, account: str) -> list[str]: ...
    async def email(self, user_id: str) -> str: ...


class Sender:
    """The channels of one configuration; one that is None is not configured."""

    def __init__(
        self,
        queue: Queue,
        metrics: Metrics,
        *,
        keep: timedelta,
        webhook: Receiver | None = None,
        mail: Mail | None = None,
        owners: OwnerLookup | None = None,
    ) -> None:
        self._queue = queue
        self._metrics = metrics
        self._keep = keep
        self._webhook = webhook
        self._mail = mail
        self._owners = owners

    async def step(self) -> bool:
        """Deliver some of what is due; False if nothing is. StoreUnavailable."""
        claimed = await self._queue.claim(TOGETHER)
        await gather_bounded(map(self._deliver, claimed), TOGETHER)
        waiting, _ = await self._queue.counts()
        self._metrics.set("gateway_notifications_waiting", (), float(waiting))
        return bool(claimed)

    async def _deliver(self, delivery: Delivery) -> None:
        if delivery.channel == "owners":
            await self._address(delivery)
            return
        await self._finish(delivery, await self._attempt(delivery))

    async def _address(self, delivery: Delivery) -> None:
        """Replace a delivery to the owners by one to each of them."""
        if self._owners is None:
            await self._finish(delivery, Attempt(problem=UNCONFIGURED, is_final=True))
            return
        try:
            owners = await self._owners.of(delivery.event.account)
        except (DatabaseUnavailable, DatabaseRefused) as error:
            await self._finish(delivery, Attempt(problem=error.message))
            return
        dropped = await self._queue.done(delivery, instead=[f"owner:{owner}" for owner in owners])
        if dropped:
            gateway_log.error("the queue of events is full: %d old deliveries were dropped", dropped)
            self._metrics.inc("gateway_notifications", (delivery.event.type, "any", "dropped"), dropped)

    async def _attempt(self, delivery: Delivery) -> Attempt:
        kind, _, name = delivery.channel.partition(":")
        if kind == "webhook" and self._webhook is not None:
            return await self._webhook.send(delivery.event)
        if kind == "mail" and self._mail is not None:
            return await self._send_mail(self._mail, name, delivery.event)
        if kind == "owner" and self._mail is not None and self._owners is not None:
            try:
                address = await self._owners.email(name)
            except (DatabaseUnavailable, DatabaseRefused) as error:
                return Attempt(problem=error.message)
            if not address:
                return Attempt(problem="the user is disabled or erased", is_final=True)
            return await self._send_mail(self._mail, address, delivery.event)
        return Attempt(problem=UNCONFIGURED, is_final=True)

    async def _send_mail(self, mail: Mail, address: str, event: Event) -> Attempt:
        sent = await mail.send(address, *message_of(event))
        return Attempt() if sent.is_sent else Attempt(problem=sent.problem, is_final=sent.is_final)

    async def _finish(self, delivery: Delivery, attempt: Attempt) -> None:
        event = delivery.event
        if attempt.is_taken:
            await self._queue.done(delivery)
            self._count(delivery, "sent")
            return
        tried = structs.replace(delivery, attempts=delivery.attempts + 1, problem=attempt.problem[:500])
        pause = max(pause_after(tried.attempts), attempt.retry_after)
        if attempt.is_final or _age(event) + timedelta(seconds=pause) > self._keep:
            await self._queue.fail(tried)
            self._count(delivery, "failed")
            gateway_log.error(
                "the event %s (%s) was not delivered by %s in %d attempts: %s",
                event.id, event.type, delivery.kind, tried.attempts, tried.problem,
            )  # fmt: skip
            return
        await self._queue.retry(tried, after=pause)
        self._count(delivery, "retried")
        if tried.attempts == 1:
            gateway_log.warning(
                "the event %s (%s) is not delivered by %s yet: %s", event.id, event.type, delivery.kind, tried.problem
            )

    def _count(self, delivery: Delivery, result: str) -> None:
        self._metrics.inc("gateway_notifications", (delivery.event.type, delivery.kind, result))


def pause_after(attempts: int) -> float:
    """Seconds until the next attempt after so many failed ones."""
    pause: float = min(FIRST_PAUSE * 3 ** min(attempts - 1, 10), LONGEST_PAUSE)
    return pause * random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311 - no secret


def _age(event: Event) -> timedelta:
    return datetime.now(UTC) - datetime.fromisoformat(event.at)

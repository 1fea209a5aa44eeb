"""Compares conditions with their states in the store, and queues an event for each crossing."""

from __future__ import annotations

from collections.abc import Iterable

from gateway.config.notify_settings import ACCOUNT_KINDS, NotifySettings
from gateway.log import gateway_log
from gateway.metrics import Metrics
from gateway.notifications.events import Condition, data_of, groups_of, new_event
from gateway.notifications.queue import Queue, State

#: Seconds that a condition must not hold before its next crossing is an event again, for those that come and go.
RESTS = {"circuit.opened": 300.0, "credential.refused": 300.0, "importer.behind": 300.0}

#: Types whose level is a number: one more is an event, and one less is none.
COUNTS = frozenset({"settlement.set_aside"})


class Notifier:
    """The events of one configuration."""

    def __init__(self, queue: Queue, settings: NotifySettings, metrics: Metrics) -> None:
        self.kinds = settings.kinds
        self._queue = queue
        self._settings = settings
        self._metrics = metrics

    async def report(self, conditions: Iterable[Condition]) -> int:
        """Note these conditions; returns the number of new events. StoreUnavailable."""
        by_type: dict[str, list[Condition]] = {}
        for condition in conditions:
            if condition.type in self.kinds:
                by_type.setdefault(condition.type, []).append(condition)
        events = 0
        for type_, listed in by_type.items():
            states = await self._queue.states(type_, [condition.subject for condition in listed])
            pairs = zip(listed, states, strict=True)
            crossings = [condition for condition, state in pairs if await self._crosses(condition, state)]
            for group in groups_of(crossings):
                events += await self._raise(group)
        return events

    async def _crosses(self, condition: Condition, state: State) -> bool:
        """Whether it begins to hold, as far as its state says; one that ends is noted."""
        if condition.level:
            if state.holds and state.mark == condition.mark and state.level >= condition.level:
                if condition.type in COUNTS and state.level > condition.level:
                    await self._queue.lower(condition)
                return False
            return True
        if state.level and not _still_holds(condition, state):
            await self._queue.clear(condition.type, condition.subject, rest=RESTS.get(condition.type, 0.0))
        return False

    async def _raise(self, group: list[Condition]) -> bool:
        while group:
            first = group[0]
            event = new_event(first.type, data_of(group), account=first.account)
            noted = await self._queue.note(group, event, self._channels(first))
            if noted.dropped:
                gateway_log.error("the queue of events is full: %d old deliveries were dropped", noted.dropped)
                self._metrics.inc("gateway_notifications", (first.type, "any", "dropped"), noted.dropped)
            if noted.is_queued:
                more = f" and {len(group) - 1} more" if len(group) > 1 else ""
                gateway_log.info("event %s: %s %s%s", event.id, first.type, first.subject, more)
                return True
            group = noted.crossings  # the others are in an event of another machine
        return False

    def _channels(self, condition: Condition) -> list[str]:
        settings = self._settings
        channels = ["webhook"] if condition.type in settings.webhook_kinds else []
        if condition.type in settings.mail_kinds:
            channels += [f"mail:{address}" for address in settings.mail_to]
        if condition.type in settings.owner_kinds and condition.type in ACCOUNT_KINDS:
            channels.append("owners")
        return channels


def _still_holds(condition: Condition, state: State) -> bool:
    """Whether the value is not above the one at the crossing: a balance has to rise."""
    return condition.value is not None and state.value is not None and condition.value <= state.value

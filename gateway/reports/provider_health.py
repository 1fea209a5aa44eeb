"""How the targets do: what the workers say of their circuits, and what the history says of their calls."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec import Struct

from gateway.admin.actor import Actor
from gateway.admin.audit_event import new_event
from gateway.admin.models import circuit_keys, health_forms
from gateway.admin.outbox import AuditOutbox
from gateway.config.settings import Settings
from gateway.errors import NotFound
from gateway.history.histogram import Times, durations, first_tokens
from gateway.history.usage_sums import ERRORS
from gateway.reports.reports import ReportQuery, Reports
from gateway.routing.circuit_breaker import CircuitKey
from gateway.routing.circuit_registry import EXPLAINED
from gateway.routing.circuit_sync import CircuitEvent, read_circuit_events, request_probe
from gateway.store import Store

RANGE = timedelta(hours=24)


class Performance(Struct, frozen=True):
    """The finished calls of a model with a provider in the last day; `failed` are the errors of reports."""

    calls: int
    failed: int
    duration: Times | None
    first_token: Times | None


class Target(Struct, frozen=True):
    """One target with one credential; `form` is that of `gateway models --health`."""

    form: dict[str, Any]
    reason: str
    performance: Performance | None


async def target_forms(actor: Actor, settings: Settings, store: Store) -> list[dict[str, Any]]:
    """Every target of every model, as `gateway models --health` has it; needs the scope `read`."""
    actor.require("read")
    return list(health_forms(settings, await read_circuit_events(store), time.time()))


async def provider_forms(actor: Actor, settings: Settings, store: Store, provider: str) -> list[dict[str, Any]]:
    """`target_forms` of one provider."""
    return [form for form in await target_forms(actor, settings, store) if form["provider"] == provider]


class OpenCircuit(Struct, frozen=True):
    """Something that is not called: a target, a credential of a provider, or, with credential 0, all of it."""

    provider: str
    credential: int  # from 1; 0: all
    model: str  # as the provider calls it; empty: all
    cause: str
    reason: str
    until: datetime
    is_due: bool  # the next call tries it


def open_circuits(settings: Settings, events: Iterable[CircuitEvent]) -> list[OpenCircuit]:
    """The open circuits of these providers, each once: whole providers and credentials first."""
    now, found = time.time(), dict[tuple[str, int, str], OpenCircuit]()
    for event in events:
        key = (event.provider, event.key.number, event.model)
        until = datetime.fromtimestamp(event.at + event.seconds, UTC)
        if event.provider not in settings.providers or (key in found and found[key].until >= until):
            continue
        reason = EXPLAINED.get(event.cause, event.cause)
        found[key] = OpenCircuit(*key, event.cause, reason, until, event.left(now) <= 0)
    return sorted(found.values(), key=lambda one: (one.model != "", one.provider, one.credential, one.model))


async def with_performance(actor: Actor, reports: Reports, forms: Sequence[dict[str, Any]]) -> list[Target]:
    """These targets, with what their calls were like."""
    done = await _performance(actor, reports, sorted({form["model"] for form in forms}))
    return [
        Target(form, EXPLAINED.get(form["cause"], form["cause"]), done.get((form["provider"], form["model"])))
        for form in forms
    ]


async def probe(
    actor: Actor, settings: Settings, store: Store, outbox: AuditOutbox, *, provider: str, credential: int, model: str
) -> bool:
    """Let the next call try a target that is not used; False if it is in use.

    `model` is as the provider calls it, and `credential` counts from 1. Needs the scope `config` of the site; NotFound.
    """
    actor.require("config")
    keys = circuit_keys(provider, credential - 1, model)
    known = health_forms(settings, [], 0.0)
    if not any(
        (form["provider"], form["credential"], form["upstream_model"]) == (provider, credential, model)
        for form in known
    ):
        raise NotFound("The configuration has no such target")
    due = await request_probe(store, keys)
    if due:
        name = str(CircuitKey(provider, credential - 1, model))
        after = {"causes": sorted({event.cause for event in due})}
        await outbox.add(new_event(actor, "targets.probe", f"target:{name}", after=after))
    return bool(due)


async def _performance(actor: Actor, reports: Reports, models: Sequence[str]) -> dict[tuple[str, str], Performance]:
    if not models:
        return {}
    now = datetime.now(UTC)
    query = ReportQuery(since=now - RANGE, until=now, group_by=["provider", "model"], filters={"model": models})
    return {
        (row.labels[0], row.labels[1]): Performance(
            row.sums["calls"], row.sums[ERRORS], durations(row.sums), first_tokens(row.sums)
        )
        for row in (await reports.report(actor, query)).rows
    }

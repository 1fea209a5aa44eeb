"""Findings that began or ended, as the consoles of all machines share them in the store.

A hash has what needs an operator now, so that all consoles know since when, and a console that starts later, too. The
console that adds or removes a field adds the alert to a stream of the newest `KEPT`.
"""

from __future__ import annotations

import contextlib

import msgspec
from msgspec import Struct

from gateway.attention.finding import Finding, Severity
from gateway.store import Store

OPEN = "attention:open"
STREAM = "attention:alerts"
KEPT = 100


class OpenFinding(Struct, frozen=True):
    """A finding as the hash has it; `since` is in Unix seconds."""

    since: float
    severity: Severity
    text: str
    page: str


class Alert(Struct, frozen=True):
    """A finding that began, or ended, at `at` in Unix seconds."""

    id: str
    at: float
    began: bool
    severity: Severity
    text: str
    page: str


_finding = msgspec.json.Decoder(OpenFinding)
_alert = msgspec.json.Decoder(Alert)


async def read_open(store: Store) -> dict[str, OpenFinding]:
    """The findings that some console has reported, by id; GatewayError."""
    found: dict[str, OpenFinding] = {}
    for name, text in (await store.link(OPEN).call("HGETALL", OPEN)).items():
        with contextlib.suppress(ValueError):  # of another release
            found[name.decode(errors="replace")] = _finding.decode(text)
    return found


async def report_begun(store: Store, finding: Finding) -> None:
    """Report a finding that the hash does not have."""
    known = OpenFinding(finding.since, finding.severity, finding.text, finding.page)
    if await store.link(OPEN).call("HSETNX", OPEN, finding.id, msgspec.json.encode(known)):
        await _add(store, Alert(finding.id, finding.since, True, finding.severity, finding.text, finding.page))


async def report_ended(store: Store, id_: str, known: OpenFinding, at: float) -> None:
    """Report that a finding has ended."""
    if await store.link(OPEN).call("HDEL", OPEN, id_):
        await _add(store, Alert(id_, at, False, known.severity, known.text, known.page))


async def read_alerts(store: Store) -> list[Alert]:
    """The newest alerts, the newest first; GatewayError."""
    found = []
    for _, fields in await store.link(STREAM).call("XREVRANGE", STREAM, "+", "-", "COUNT", KEPT):
        with contextlib.suppress(ValueError, IndexError):
            found.append(_alert.decode(fields[1]))
    return found


async def _add(store: Store, alert: Alert) -> None:
    await store.link(STREAM).call("XADD", STREAM, "MAXLEN", KEPT, "*", "a", msgspec.json.encode(alert))

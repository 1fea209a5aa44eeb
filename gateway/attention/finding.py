"""One thing that needs an operator, and what it is found from."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from typing import Literal

from msgspec import Struct

from gateway.admin.machines import Machine
from gateway.config.settings import Settings
from gateway.routing.circuit_sync import CircuitEvent

#: `fault`: calls or money are affected now. `notice`: they will be, or are less protected.
Severity = Literal["fault", "notice"]


class Finding(Struct, frozen=True):
    """One thing; `id` names it while it lasts, on all machines. `page` is a path of the console."""

    id: str
    severity: Severity
    text: str  # a sentence
    page: str
    runbook: str  # the section of docs/runbook.md
    after: float = 0.0  # seconds that it must last before it is shown
    since: float = 0.0  # Unix seconds; set by the watch


class ExpiringToken(Struct, frozen=True):
    """An admin token that ends soon; `at` is in Unix seconds."""

    name: str
    at: float


class AuditFindings(Struct, frozen=True):
    """What the last audit of an account, or of all (""), has found; `at` is in Unix seconds."""

    account: str
    mismatches: int
    at: float


class Observed(Struct, frozen=True, kw_only=True):
    """What is known at one moment. What could not be read is as it was before."""

    settings: Settings
    today: date
    machines: list[Machine]
    circuits: list[CircuitEvent]
    store_answers: bool = True
    database_answers: bool = True
    tokens: list[ExpiringToken] = []
    superseded: int = 0  # lines that the store has lost, and that nobody has decided about
    audits: list[AuditFindings] = []

    def named(self, machine: Machine) -> str:
        """Which machine, for a sentence; empty if there is only one."""
        return f" on {machine.name}" if len(self.machines) > 1 else ""


def listed(names: Iterable[str], most: int = 3) -> str:
    """The first names as a text."""
    found = sorted(names)
    more = f" and {len(found) - most} more" if len(found) > most else ""
    return ", ".join(found[:most]) + more


def counted(number: int, noun: str) -> str:
    """A number with its noun."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"

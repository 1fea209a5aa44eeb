"""The e-mail of an event."""

from __future__ import annotations

from typing import Any, Protocol

from gateway.notifications.events import Event


class Sent(Protocol):
    """Whether a message was taken by the server, why not, and whether another attempt cannot succeed either."""

    @property
    def is_sent(self) -> bool: ...
    @property
    def problem(self) -> str: ...
    @property
    def is_final(self) -> bool: ...


class Mail(Protocol):
    """Sends messages; never fails."""

    async def send(self, to: str, subject: str, text: str) -> Sent: ...


SUBJECTS = {
    "balance.low": "Balance low: {account}",
    "balance.exhausted": "Balance exhausted: {account}",
    "key.expiring": "API keys expire soon: {account}",
    "budget.80": "80 % of a budget used: {account}",
    "budget.100": "Budget used up: {account}",
    "circuit.opened": "Model provider fails: {provider}",
    "credential.refused": "Model provider refuses its credential: {provider}",
    "settlement.set_aside": "Settlements were set aside",
    "importer.behind": "The history in the database is behind",
    "test": "Test of the notifications",
}
INTRODUCTIONS = {
    "balance.low": "The balance of the account is at or below its threshold.",
    "balance.exhausted": "The balance of the account does not cover its calls any more; they are refused.",
    "key.expiring": "API keys of the account expire soon. Calls with them are refused then.",
    "budget.80": "80 % or more of the budget is used.",
    "budget.100": "The budget is used up; calls are refused.",
    "circuit.opened": "Calls to the model provider keep failing. The gateway does not call it for some time.",
    "credential.refused": "The model provider refuses the gateway's credential, or its prepaid credit is gone.",
    "settlement.set_aside": "The store refused settlements. `gateway refused list` shows them.",
    "importer.behind": "Ledger lines are not copied to the database. The log of the importer says why.",
    "test": "This is a test. There is nothing to do.",
}


def message_of(event: Event) -> tuple[str, str]:
    """Subject and text."""
    subject = SUBJECTS.get(event.type, event.type).format_map(_Known(event.data))
    facts = "\n".join(f"{name}: {_shown(value)}" for name, value in event.data.items())
    introduction = INTRODUCTIONS.get(event.type, event.type)
    return subject, f"{introduction}\n\n{facts}\n\ntime: {event.at}\nevent: {event.type} {event.id}\n"


class _Known(dict[str, Any]):
    def __missing__(self, key: str) -> str:
        return "-"


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "-"
    return "-" if value is None else " ".join(str(value).split())

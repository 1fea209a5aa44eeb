"""API keys as records: what is stored of a key, read from its hash."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Struct, structs

from gateway.accounts.accounts import time_text
from gateway.accounts.key_scopes import Scopes, read_scopes
from gateway.accounts.key_settings import AMOUNTS
from gateway.accounts.stored_fields import StoredFields
from gateway.amounts import format_amount
from gateway.ledger.periods import Every, period_of

SHOWN_AMOUNTS = ("spent", "period_spent", *AMOUNTS)


class KeyRecord(Struct, frozen=True):
    """A key without its secret; amounts in nano-units."""

    id: str
    account: str
    name: str
    last4: str
    state: str  # active, disabled, revoked, expired, unreadable
    created: datetime
    expires: datetime | None
    rpm: int | None
    tpm: int | None
    concurrency: int | None
    models: list[str] | None
    budget: int | None
    spent: int
    show_cost: bool
    every: str | None = None  # the period of the budget: month, week, day
    period_spent: int | None = None  # what counts against the budget; None without a budget
    max_cost: int | None = None
    max_session_cost: int | None = None
    endpoints: list[str] | None = None
    addresses: list[str] | None = None
    last_used: datetime | None = None  # at most a minute before the last call; None: not used since it is noted
    user: str | None = None  # the id of the member who has it; None for a service key
    unreadable: Sequence[str] = ()  # the stored fields that cannot be read

    def json_form(self) -> dict[str, Any]:
        """The JSON document of the command line."""
        form = structs.asdict(self)
        show_cost = form.pop("show_cost")
        del form["unreadable"]  # the state says so
        return {
            **form,
            "created": time_text(self.created),
            "expires": time_text(self.expires) if self.expires else None,
            **{name: format_amount(form[name]) for name in SHOWN_AMOUNTS if form[name] is not None},
            "last_used": time_text(self.last_used) if self.last_used else None,
            "response_headers": ["cost"] if show_cost else [],
        }


class CreatedKey(Struct, frozen=True):
    """A new key; the only object with its text."""

    text: str
    id: str
    account: str
    name: str

    def __repr__(self) -> str:
        return f"NewKey(text='***', id={self.id!r}, account={self.account!r}, name={self.name!r})"

    def json_form(self) -> dict[str, Any]:
        """The JSON document of `keys create --json`."""
        return {"key": self.text, "id": self.id, "account": self.account, "name": self.name}


class Rotated(Struct, frozen=True):
    """A rotation: the new key, and the old one, which expires."""

    new: CreatedKey
    old: KeyRecord


def key_record(account: str, key_id: str, fields: StoredFields, now: int) -> KeyRecord:
    """The key of a stored hash; `now` is the store's time in seconds.

    A field that cannot be read is as if absent, and the state says so.
    """
    scopes, budget = fields.read("scopes", read_scopes, Scopes()), fields.number("cap")
    spent, base = fields.number("spent") or 0, fields.number("base") or 0
    every = fields.read("every", every_of, None)
    in_period = every is None or fields.get("period") == period_of(every, datetime.fromtimestamp(now, UTC))
    record = KeyRecord(
        key_id,
        account,
        fields.get("name"),
        fields.get("last4"),
        "",
        fields.moment("created") or datetime.fromtimestamp(0, UTC),
        fields.moment("exp"),
        fields.number("rpm"),
        fields.number("tpm"),
        fields.number("conc"),
        fields["models"].strip("\n").split("\n") if "models" in fields else None,
        budget,
        spent,
        "cost" in fields,
        every,
        None if budget is None else spent - base if in_period else 0,
        fields.number("max"),
        fields.number("smax"),
        list(scopes.endpoints) or None,
        [str(network) for network in scopes.addresses] or None,
        fields.moment("used"),
        fields.get("user") or None,
    )
    state, expires = fields.state(), record.expires
    expired = state == "active" and expires is not None and expires.timestamp() <= now
    return structs.replace(record, state="expired" if expired else state, unreadable=fields.unreadable)


def is_unused(key: KeyRecord, since: datetime) -> bool:
    """Whether it is an active key that was made before `since` and not used since then."""
    return key.state == "active" and (key.last_used or key.created) < since


def every_of(text: str) -> Every:
    """A stored period; msgspec.ValidationError if it is none."""
    every: Every = msgspec.convert(text, Every)
    return every


def period_spent(fields: dict[str, str], now: datetime) -> int:
    """What counts against the budget in these stored fields: the spending of its period, or all without periods."""
    if "every" in fields:
        every: Every = msgspec.convert(fields["every"], Every)
        if fields.get("period") != period_of(every, now):
            return 0
    return int(fields.get("spent", "0")) - int(fields.get("base", "0"))

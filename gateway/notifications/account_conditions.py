"""Which events an account and its keys give cause for: balances, budgets and expiries as the store has them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Struct

from gateway.accounts.accounts import time_text
from gateway.accounts.key_record import period_spent
from gateway.amounts import format_amount
from gateway.ledger.periods import Every, period_of
from gateway.notifications.events import Condition

ACCOUNT_FIELDS = ("bal", "floor", "low", "mcap", "month", "mspent")
KEY_FIELDS = ("state", "name", "created", "exp", "cap", "spent", "every", "period", "base")
DAY = 86_400  # seconds
NOTICES = ((1, 2), (7, 1))  # days before a key expires, and the level of the notice
BUDGETS = (("budget.80", 80), ("budget.100", 100))


class AccountFacts(Struct, frozen=True):
    """The fields of an account's hash."""

    name: str
    fields: dict[str, str]
    is_short: bool = False  # its balance did not cover a call

    @property
    def balance(self) -> int:
        """Nano-units."""
        return int(self.fields["bal"])

    @property
    def available(self) -> int:
        """What calls may still cost in the end, in nano-units: the balance above the floor, with what is held."""
        return self.balance - int(self.fields.get("floor", "0"))


class KeyFacts(Struct, frozen=True):
    """The fields of a key's hash."""

    id: str
    fields: dict[str, str]


def account_conditions(account: AccountFacts, *, low: int, now: int) -> Iterator[Condition]:
    """The conditions of an account; `low` is the threshold of accounts without one, `now` Unix seconds."""
    own = int(account.fields.get("low", low))
    available = account.available
    shown = {
        "account": account.name,
        "balance": format_amount(account.balance),
        "available": format_amount(available),
    }
    yield Condition(
        "balance.low",
        account.name,
        int(own > 0 and available <= own),
        {**shown, "threshold": format_amount(own)},
        account=account.name,
        value=available,
    )
    yield Condition(
        "balance.exhausted",
        account.name,
        int(account.is_short or available <= 0),
        shown,
        account=account.name,
        value=available,
    )
    if "mcap" in account.fields:
        period = _period("month", now)
        spent = int(account.fields.get("mspent", "0")) if account.fields.get("month") == period else 0
        data: dict[str, Any] = {
            "account": account.name,
            "key": None,
            "name": None,
            "period": period,
            "count": 0,
            "keys": [],
        }
        yield from _budget(account.name, account.name, int(account.fields["mcap"]), spent, period, data)


def key_conditions(account: str, key: KeyFacts, *, now: int) -> Iterator[Condition]:
    """The conditions of a key; none for a key without expiry and budget."""
    fields, is_active = key.fields, key.fields.get("state") == "active"
    shown: dict[str, Any] = {
        "account": account,
        "key": key.id,
        "name": fields.get("name", ""),
        "count": 1,
        "keys": [key.id],
    }
    if "exp" in fields:
        expires = int(fields["exp"])
        level = _notice(expires, int(fields.get("created", "0")), now) if is_active else 0
        expiry = {"expires": time_text(datetime.fromtimestamp(expires, UTC)), "days": 1 if level > 1 else 7}
        yield Condition("key.expiring", key.id, level, shown | expiry, account=account, mark=str(expires), of_key=True)
    if "cap" in fields:
        period = _period(fields["every"], now) if "every" in fields else ""
        spent = period_spent(fields, datetime.fromtimestamp(now, UTC)) if is_active else 0
        budget = shown | {"period": period or None}
        yield from _budget(account, key.id, int(fields["cap"]), spent, period, budget, of_key=True)


def _period(every: str, now: int) -> str:
    return period_of(msgspec.convert(every, Every), datetime.fromtimestamp(now, UTC))


def _notice(expires: int, created: int, now: int) -> int:
    """The level of the notice that is due; 0 for none. A key that lives shorter than a notice gets none of it."""
    left = expires - now
    if left <= 0:
        return 0
    return next((level for days, level in NOTICES if left <= days * DAY < expires - created), 0)


def _budget(
    account: str, subject: str, most: int, spent: int, period: str, data: dict[str, Any], *, of_key: bool = False
) -> Iterator[Condition]:
    shown = {**data, "budget": format_amount(most), "spent": format_amount(spent)}
    for type_, share in BUDGETS:
        holds = spent * 100 >= most * share
        yield Condition(type_, subject, int(holds), shown, account=account, mark=f"{most}/{period}", of_key=of_key)

"""Accounts: their group, their state, and their own permissions beside those of the group.

Every operation on an account is here; the ledger makes every change of a balance. Sharp edge: when a method returns,
its change is in the store, but it survives a crash of the store only if `Store.unconfirmed` reports nothing; the
commands call it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, Protocol

from msgspec import Struct, structs

from gateway.accounts.stored_fields import StoredFields
from gateway.amounts import MAX_AMOUNT, format_amount
from gateway.errors import AlreadyExists, InvalidValue, NotFound
from gateway.ledger.account_terms import read_own_prices
from gateway.ledger.gather_all import batches, gather_bounded
from gateway.ledger.listing.names import account_names
from gateway.ledger.paging import all_pairs, first_pairs
from gateway.ledger.periods import period_of
from gateway.ledger.scripts import load_script
from gateway.store.links import Links, slot

if TYPE_CHECKING:
    from gateway.ledger import Credited, Ledger

NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}", re.ASCII)
OPERATION = re.compile(r"[\x21-\x7e]{1,128}", re.ASCII)
MODEL = re.compile(r"[^\x00-\x1f\x7f]{1,256}")
FIELDS = (
    "group", "state", "bal", "held", "created", "floor", "rpm", "tpm", "conc", "mcap", "month", "mspent", "smax",
    "pe",
)  # fmt: skip
AT_ONCE = 500  # reads in flight
MAX_NOTE = 500  # characters
_SET_STATE = load_script("set_state")
CHANGED = "gateway:revoked"  # channel: "account:key id" of a revoked key, "account:*" of a disabled account


class Account(Struct, frozen=True):
    """An account at one moment; amounts in nano-units."""

    name: str
    group: str
    state: str  # active, disabled, unreadable
    balance: int
    held: int
    allowed: list[str]
    denied: list[str]
    created: datetime
    floor: int = 0  # the lowest balance that calls may leave; negative for a credit line
    rpm: int | None = None  # limits of its own, beside those of its group
    tpm: int | None = None
    concurrency: int | None = None
    monthly: int | None = None  # the cap of a calendar month in UTC
    month_spent: int | None = None  # what calls were charged this month; known only for an account with a cap
    max_session_cost: int | None = None  # what the calls of one session may cost in a day
    prices: dict[str, dict[str, str]] = {}  # its own prices by model, see `own_price_form`
    unreadable: Sequence[str] = ()  # the stored fields that cannot be read

    @property
    def available(self) -> int:
        """What calls may still hold, in nano-units; never negative."""
        lowest = self.floor
        if self.monthly is not None:
            lowest = max(lowest, self.balance + (self.month_spent or 0) - self.monthly)
        return max(0, self.balance - self.held - lowest)

    def json_form(self) -> dict[str, Any]:
        """The JSON document of the command line."""
        form = structs.asdict(self)
        del form["unreadable"]  # the state says so
        for name in ("balance", "held", "floor", "monthly", "month_spent", "max_session_cost"):
            form[name] = format_amount(form[name]) if form[name] is not None else None
        return {**form, "created": time_text(self.created), "prices": dict(sorted(self.prices.items()))}


class Accounts:
    """The operations on accounts."""

    def __init__(self, links: Links, ledger: Ledger) -> None:
        self._links = links
        self._ledger = ledger

    async def create(self, name: str, *, group: str = "default", balance: int = 0) -> Account:
        """Create an account; AlreadyExists, InvalidValue."""
        check_name(name, "account")
        check_name(group, "group")
        if not 0 <= balance <= MAX_AMOUNT:
            raise InvalidValue(f"an account cannot open with {format_amount(balance)}")
        if not await self._ledger.open(name, group, balance=balance):
            raise AlreadyExists(f"account {name!r} exists already")
        return await self.show(name)

    async def show(self, name: str) -> Account:
        """One account; NotFound if there is none."""
        account = await self._read(name)
        if account is None:
            raise NotFound(f"no account {name!r}")
        return account

    async def page(self, *, after: str = "", containing: str = "", limit: int) -> list[Account]:
        """At most `limit` accounts by name, those behind the name `after` whose names have the text `containing`.

        A text may read all names, a portion at a time; of the accounts, those that are returned.
        """
        found: list[Account] = []
        async for names in account_names(self._links).pages(after=after, size=AT_ONCE if containing else limit):
            for some in batches((name for name in names if containing in name), limit):
                found += filter(None, await gather_bounded(map(self._read, some)))
                if len(found) >= limit:
                    return found[:limit]
        return found

    async def list(self) -> list[Account]:
        """All accounts by name."""
        found = await gather_bounded(map(self._read, await self._ledger.accounts()), AT_ONCE)
        return [account for account in found if account is not None]

    async def disable(self, name: str) -> Account:
        """Refuse every further call of the account, and cut its running calls."""
        await self.show(name)  # accounts are never deleted, so it still exists below
        await set_state(self._links, name, slot(name), "disabled")
        account = await self.show(name)
        await self._links.link(slot(name)).call("PUBLISH", CHANGED, f"{name}:*")
        return account

    async def enable(self, name: str) -> Account:
        """Undo `disable`."""
        return await self._set(name, "state", "active")

    async def move(self, name: str, group: str) -> Account:
        """Move the account to another group, from the next call on."""
        check_name(group, "group")
        return await self._set(name, "group", group)

    async def allow(self, name: str, models: Iterable[str]) -> Account:
        """Allow models to the account, also against its group; undoes `deny`."""
        return await self._rule(name, models, "+")

    async def deny(self, name: str, models: Iterable[str]) -> Account:
        """Deny models to the account, also against its group; undoes `allow`."""
        return await self._rule(name, models, "-")

    async def credit(
        self,
        name: str,
        amount: int,
        *,
        operation: str | None = None,
        note: str = "",
        allow_negative: bool = False,
        force: bool = False,
    ) -> Credited:
        """Add `amount` nano units to the balance; a repeated operation id changes nothing. `note`: in the ledger line.

        A debit takes only free money; `force` also takes what running calls hold, and what is below the floor.
        """
        if amount == 0:
            raise InvalidValue("an amount of 0 changes nothing")
        if amount < 0 and not allow_negative:
            raise InvalidValue(f"{format_amount(amount)} would take money away; say --allow-negative if that is meant")
        if operation is not None and not OPERATION.fullmatch(operation):
            raise InvalidValue("an operation id is 1 to 128 printable ASCII characters without spaces")
        check_note(note)
        check_name(name, "account")
        kind: Literal["topup", "adj"] = "topup" if amount > 0 else "adj"
        credited = await self._ledger.credit(name, amount, kind=kind, operation=operation, note=note, force=force)
        match credited.status:
            case "unknown":
                raise NotFound(f"no account {name!r}")
            case "clash":
                raise InvalidValue(f"operation {operation!r} was already used, for {format_amount(credited.amount)}")
            case "cap":
                raise InvalidValue(f"the balance cannot pass {format_amount(MAX_AMOUNT)}")
            case "short":
                free = format_amount(credited.amount)
                raise InvalidValue(
                    f"only {free} is free: the rest is held by running calls or spent; say --force to take more"
                )
        return credited

    async def _read(self, name: str) -> Account | None:
        if not NAME.fullmatch(name):
            return None
        link = self._links.link(slot(name))
        # Three futures, and no coroutine: a list of all accounts would make a task for each.
        values, clock, page = await asyncio.gather(
            link.call("HMGET", slot(name), *FIELDS), link.call("TIME"), first_pairs(link, slot(name), match="m:*")
        )
        fields = StoredFields(zip(map(str.encode, FIELDS), values, strict=True))
        if "bal" not in fields:
            return None
        prices = (await read_own_prices(self._links, name))[2] if "pe" in fields else {}
        found = await all_pairs(page, link, slot(name), match="m:*")
        return _account(name, fields, found, prices, datetime.fromtimestamp(int(clock[0]), UTC))

    async def unreadable_fields(self, name: str, now: datetime) -> Sequence[str]:
        """The stored fields that cannot be read, `unreadable` of `show`, with one command; NotFound."""
        if not NAME.fullmatch(name):
            raise NotFound(f"no account {name!r}")
        values = await self._links.link(slot(name)).call("HMGET", slot(name), *FIELDS)
        fields = StoredFields(zip(map(str.encode, FIELDS), values, strict=True))
        if "bal" not in fields:
            raise NotFound(f"no account {name!r}")
        return _account(name, fields, {}, {}, now).unreadable

    async def _set(self, name: str, *fields: str) -> Account:
        await self.show(name)  # accounts are never deleted, so it still exists below
        await self._links.link(slot(name)).call("HSET", slot(name), *fields)
        return await self.show(name)

    async def _rule(self, name: str, models: Iterable[str], rule: str) -> Account:
        fields: list[str] = []
        for model in models:
            check_model(model)
            fields += (f"m:{model}", rule)
        return await (self._set(name, *fields) if fields else self.show(name))


async def set_state(links: Links, account: str, name: str, state: str, *, only: str = "") -> bool:
    """Set the state of an account or of one of its keys in the hash `name`; works on a full store, too.

    `only`: the state that is changed; False if the hash has another one.
    """
    return bool(await links.link(slot(account)).eval(_SET_STATE, [name], [state, only] if only else [state]))


def check_name(name: str, what: str) -> None:
    """InvalidValue for a name that is not safe inside a Redis key."""
    if not NAME.fullmatch(name):
        raise InvalidValue(
            f"{name!r} is no {what} name: lower-case letters, digits and . _ - up to 63, letter or digit first"
        )


def check_note(note: str) -> None:
    """InvalidValue for a note that is too long, or cannot be shown."""
    if len(note) > MAX_NOTE or not note.isprintable():
        raise InvalidValue(f"a note is at most {MAX_NOTE} printable characters")


def check_model(model: str) -> None:
    """InvalidValue for what is no model name."""
    if not MODEL.fullmatch(model):
        raise InvalidValue(f"{model!r} is no model name")


def _account(
    name: str, fields: StoredFields, found: dict[bytes, bytes], prices: dict[str, dict[str, str]], now: datetime
) -> Account:
    """The account of its stored fields and of its rules."""
    rules = {model[2:].decode(errors="replace"): rule for model, rule in found.items()}
    account = Account(
        name,
        fields.get("group"),
        "",
        fields.number("bal") or 0,
        fields.number("held") or 0,
        sorted(model for model, rule in rules.items() if rule == b"+"),
        sorted(model for model, rule in rules.items() if rule == b"-"),
        fields.moment("created") or datetime.fromtimestamp(0, UTC),
        fields.number("floor") or 0,
        fields.number("rpm"),
        fields.number("tpm"),
        fields.number("conc"),
        fields.number("mcap"),
        _month_spent(fields, now),
        fields.number("smax"),
        prices,
    )
    return structs.replace(account, state=fields.state(), unreadable=fields.unreadable)


def _month_spent(fields: StoredFields, now: datetime) -> int | None:
    """What calls were charged this month; None without a cap."""
    if "mcap" not in fields:
        return None
    return (fields.number("mspent") or 0) if fields.get("month") == period_of("month", now) else 0


def time_text(moment: datetime) -> str:
    """RFC 3339 in UTC."""
    return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


class Directory(Protocol):
    """The names of accounts, as the services over people read them from the store."""

    async def require(self, account: str) -> None:
        """NotFound if there is no such account."""


class StoreDirectory:
    """The accounts of a store."""

    def __init__(self, links: Links) -> None:
        self._links = links

    async def require(self, account: str) -> None:
        """NotFound if there is no such account."""
        if not NAME.fullmatch(account) or not await self._links.link(slot(account)).call("EXISTS", slot(account)):
            raise NotFound(f"There is no account {account!r}")

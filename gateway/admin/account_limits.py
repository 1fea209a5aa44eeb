"""Limits of an account: credit line, rate limits and a monthly cap. Amounts are nano-units."""

from __future__ import annotations

from collections.abc import Collection
from typing import TypedDict, Unpack

from gateway.accounts.accounts import NAME, Account, Accounts
from gateway.accounts.key_settings import MAX_LIMIT
from gateway.amounts import MAX_AMOUNT, format_amount
from gateway.errors import InvalidValue, NotFound
from gateway.ledger.periods import charged_in
from gateway.ledger.scripts import load_script
from gateway.store.links import Links, slot

OK, SHORT = 0, 1  # codes of limit.lua
#: The fields in the store.
FIELDS = {
    "floor": "floor",
    "rpm": "rpm",
    "tpm": "tpm",
    "concurrency": "conc",
    "monthly": "mcap",
    "max_session_cost": "smax",
}


class Limits(TypedDict, total=False):
    """The limits to set; an absent or None one stays as it is."""

    floor: int | None  # the lowest balance; negative for a credit line
    rpm: int | None
    tpm: int | None
    concurrency: int | None
    monthly: int | None  # the most that calls are charged in a calendar month in UTC
    max_session_cost: int | None  # the most that the calls of one session may cost in a day


class AccountLimits:
    """Sets and removes limits of accounts."""

    def __init__(self, links: Links, accounts: Accounts) -> None:
        self._links = links
        self._accounts = accounts
        self._limit, self._count = load_script("limit"), load_script("count")

    async def change(self, account: str, *, clear: Collection[str] = (), **limits: Unpack[Limits]) -> Account:
        """Set `limits` and remove those named by `clear`; all or none is changed.

        The limits hold for the next call. A new cap counts what was charged before in this month, as far as its ledger
        lines are in the store. NotFound: no such account. InvalidValue: a limit is out of its bounds, or running calls
        hold money below the new floor.
        """
        fields = _fields(limits, clear)
        if not NAME.fullmatch(account):
            raise NotFound(f"no account {account!r}")
        name = slot(account)
        link = self._links.link(name)
        code, text, month = await link.eval(self._limit, [name], fields)
        if code == SHORT:
            most = format_amount(int(text))
            raise InvalidValue(f"the floor cannot be above {most} now: running calls hold the rest of the balance")
        if code != OK:
            raise NotFound(f"no account {account!r}")
        if text:
            until, period = text.decode(), month.decode()
            charged = await charged_in(self._links, account, period, until=until)
            await link.eval(self._count, [name], [period, until, charged])
        return await self._accounts.show(account)


def _fields(limits: Limits, clear: Collection[str]) -> list[str | int]:
    wanted: dict[str, int] = {name: value for name, value in limits.items() if isinstance(value, int)}
    for name in clear:
        if name not in FIELDS:
            raise InvalidValue(f"{name!r} is no limit of an account; known: {', '.join(FIELDS)}")
        if name in wanted:
            raise InvalidValue(f"{name} cannot be set and cleared at once")
    for name in ("rpm", "tpm", "concurrency"):
        if name in wanted and not 1 <= wanted[name] <= MAX_LIMIT:
            raise InvalidValue(f"{name} must lie between 1 and {MAX_LIMIT}")
    if not -MAX_AMOUNT <= wanted.get("floor", 0) <= MAX_AMOUNT:
        raise InvalidValue(f"a floor of {format_amount(wanted['floor'])} is not possible")
    if not 0 <= wanted.get("monthly", 0) <= MAX_AMOUNT:
        raise InvalidValue(f"a cap of {format_amount(wanted['monthly'])} is not possible")
    if not 0 < wanted.get("max_session_cost", 1) <= MAX_AMOUNT:
        raise InvalidValue(f"a session cost of {format_amount(wanted['max_session_cost'])} is not possible")
    pairs: list[str | int] = []
    for name, value in wanted.items():
        pairs += (FIELDS[name], value)
    for name in clear:
        pairs += (FIELDS[name], "")
    return pairs

"""Looks at accounts and keys: at those that were used soon after, and at all of them in a sweep.

The hints may be lost; the sweep finds every crossing within `PASS` seconds, twice that after the death of the machine
that swept. One machine sweeps at a time.
"""

from __future__ import annotations

import asyncio
import math
import secrets
import time
from collections.abc import Collection, Iterable
from typing import Any

from gateway.config.notify_settings import NotifySettings
from gateway.errors import GatewayError
from gateway.ledger.gather_all import batches, outcomes_bounded
from gateway.ledger.import_hints import SHORT
from gateway.ledger.listing.names import ACCOUNTS
from gateway.ledger.paging import scan_set
from gateway.notifications.account_conditions import (
    ACCOUNT_FIELDS,
    KEY_FIELDS,
    AccountFacts,
    KeyFacts,
    account_conditions,
    key_conditions,
)
from gateway.notifications.events import Condition
from gateway.notifications.notifier import Notifier
from gateway.store.links import Links, slot

PASS = 240.0  # seconds
STEP = 1.0  # seconds between two steps
PAGE = 200  # accounts in a step, or more if a pass would take too long otherwise
AT_ONCE = 200  # reads in flight
HINTS = 500  # accounts with hints in a step
MOST_HINTS = 100_000  # that are remembered; the sweep finds others
AGAIN = 5.0  # seconds between two looks at a busy account
MOST_KEYS = 100  # keys of an account that are read for a hint; the sweep reads all
KEY_KINDS = frozenset({"key.expiring", "budget.80", "budget.100"})
LEASE = "notify:sweep"  # of the machine that sweeps


class AccountWatch:
    """The accounts of one store."""

    def __init__(self, links: Links, notifier: Notifier, settings: NotifySettings) -> None:
        self._links = links
        self._notifier = notifier
        self._low = settings.balance_low
        self._has_keys = bool(KEY_KINDS & settings.kinds)
        self._hinted: dict[str, None] = {}
        self._looked: dict[str, float] = {}  # monotonic; accounts that were looked at within `AGAIN`
        self._me = secrets.token_hex(8)
        self._cursor: bytes | str = "0"
        self._is_sweeping = False
        self._next_pass = -math.inf
        self._page = PAGE

    def touch(self, accounts: Iterable[str]) -> None:
        """Look at these accounts soon."""
        for account in accounts:
            if len(self._hinted) < MOST_HINTS:
                self._hinted[account] = None

    async def step(self) -> None:
        """Look at what is due; call it every `STEP` seconds. StoreUnavailable."""
        short = [name.decode() for name in await self._links.link(SHORT).call("SPOP", SHORT, HINTS)]
        if short:
            await self._look(short, short=frozenset(short), most_keys=MOST_KEYS)
        if hinted := self._due():
            await self._look(hinted, most_keys=MOST_KEYS)
        await self._sweep()

    def _due(self) -> list[str]:
        """Accounts with hints that were not looked at just now."""
        now = time.monotonic()
        self._looked = {account: at for account, at in self._looked.items() if now - at < AGAIN}
        due = [account for account in self._hinted if account not in self._looked][:HINTS]
        for account in due:
            del self._hinted[account]
            self._looked[account] = now
        return due

    async def _sweep(self) -> None:
        """One page of the index of accounts, if a pass is under way or due."""
        link = self._links.link(ACCOUNTS)
        if not self._is_sweeping:
            if time.monotonic() < self._next_pass:
                return
            self._next_pass = time.monotonic() + PASS
            mine = await self._links.link(LEASE).call("SET", LEASE, self._me, "NX", "PX", int(PASS * 950))
            if mine is None:
                return
            self._page = max(PAGE, math.ceil(await link.call("SCARD", ACCOUNTS) * 2 * STEP / PASS))
            self._is_sweeping, self._cursor = True, "0"
        cursor, page = await link.call("SSCAN", ACCOUNTS, self._cursor, "COUNT", self._page)
        await self._look(sorted({name.decode() for name in page}))
        self._cursor = cursor  # only now: a step that failed is repeated
        self._is_sweeping = cursor != b"0"

    async def _look(self, accounts: list[str], *, short: Collection[str] = (), most_keys: float = math.inf) -> None:
        seconds, _ = await self._links.link(ACCOUNTS).call("TIME")
        now = int(seconds)
        conditions: list[Condition] = []
        for page in batches(accounts, AT_ONCE):
            for name, fields in zip(page, await self._read(page, ACCOUNT_FIELDS), strict=True):
                if "bal" in fields:
                    facts = AccountFacts(name, fields, name in short)
                    conditions += _readable(account_conditions(facts, low=self._low, now=now))
            if self._has_keys:
                for account, key in await self._keys(page, most_keys):
                    conditions += _readable(key_conditions(account, key, now=now))
        await self._notifier.report(conditions)

    async def _keys(self, accounts: list[str], most: float) -> list[tuple[str, KeyFacts]]:
        if most < math.inf:
            counts = await self._all(accounts, lambda account: ("SCARD", f"{slot(account)}:ks"))
            accounts = [account for account, count in zip(accounts, counts, strict=True) if (count or 0) <= most]
        found: list[tuple[str, KeyFacts]] = []
        for account in accounts:
            try:
                ids = sorted(await scan_set(self._links.link(slot(account)), f"{slot(account)}:ks"))
            except GatewayError:
                continue  # its server is away, or it is damaged, which the audit reports
            for page in batches(ids, AT_ONCE):
                fields = await self._read([account] * len(page), KEY_FIELDS, [f":k:{key_id}" for key_id in page])
                found += [(account, KeyFacts(id_, values)) for id_, values in zip(page, fields, strict=True)]
        return found

    async def _read(
        self, accounts: list[str], names: tuple[str, ...], ends: list[str] | None = None
    ) -> list[dict[str, str]]:
        """The fields of hashes of accounts; an account whose server is away has none."""
        calls = (
            self._links.link(slot(account)).call("HMGET", slot(account) + end, *names)
            for account, end in zip(accounts, ends or [""] * len(accounts), strict=True)
        )
        return [
            {
                name: value.decode(errors="replace")
                for name, value in zip(names, values or (), strict=False)
                if value is not None
            }
            for values in await _gathered(calls)
        ]

    async def _all(self, accounts: list[str], command: Any) -> list[Any]:
        return await _gathered(self._links.link(slot(account)).call(*command(account)) for account in accounts)


async def _gathered(calls: Iterable[asyncio.Future[Any]]) -> list[Any]:
    """The replies; None for one that failed because a server is away, or an account damaged."""
    replies = await outcomes_bounded(calls)
    for reply in replies:
        if isinstance(reply, BaseException) and not isinstance(reply, GatewayError):
            raise reply
    return [None if isinstance(reply, BaseException) else reply for reply in replies]


def _readable(conditions: Iterable[Condition]) -> list[Condition]:
    """The conditions; none of an account or key whose fields are damaged, which the audit reports."""
    try:
        return list(conditions)
    except ValueError:
        return []

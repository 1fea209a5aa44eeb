"""The audit of the store's ledger, which remembers how many accounts there are."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from gateway.accounts.accounts import Accounts
from gateway.accounts.keys import Keys
from gateway.admin.store_services import StoreServices
from gateway.errors import NotFound, StoreUnavailable
from gateway.ledger import AuditReport, Ledger
from gateway.ledger.auditing.pages import Page, PageAuditors
from gateway.ledger.auditing.report import Mismatch
from gateway.ledger.gather_all import Progress, gather_bounded, unwatched
from gateway.store import Store
from gateway.store.connection import RedisReplyError

KEYS_AT_ONCE = 1000  # of an account, of which 100 are read at the same time
ACCOUNTS_AT_ONCE = 50  # with all of their keys: 5,000 commands at most


async def audit_ledger(
    store: StoreServices,
    account: str | None,
    *,
    expect_accounts: int | None = None,
    archives: Sequence[Path] = (),
    warn: Callable[[str], None],
    progress: Progress = unwatched,
    processes: PageAuditors | None = None,
) -> AuditReport:
    """Compare the ledger of an account, or of all, with the balances; NotFound for an unknown account.

    `expect_accounts`: the least number of accounts of the store; by default the largest that was seen from this data
    directory.
    """
    if account is not None:
        if not await store.ledger.has_traces(account):
            await store.accounts.show(account)
        report = await store.ledger.audit(account, archives=archives)
        key_ids: Sequence[str] = ()
        with suppress(StoreUnavailable, RedisReplyError):  # the report says so already
            key_ids = await store.keys.ids(account)
        report.add(await unreadable_fields(store.store, {account: key_ids}))
        return report
    known = store.known_accounts
    expected = known.read() if expect_accounts is None else expect_accounts
    report = await store.ledger.audit(
        archives=archives,
        expected=expected,
        progress=progress,
        fields=partial(unreadable_fields, store.store),
        processes=processes,
    )
    try:
        if expect_accounts is None:
            known.raise_to(report.accounts)
        elif report.accounts >= expected and not report.unreachable:
            known.write(report.accounts)
    except OSError as error:
        warn(f"the number of accounts cannot be remembered: {error}")
    return report


async def unreadable_fields(store: Store, accounts: Page) -> AuditReport:
    """The fields of accounts and keys that cannot be read: calls may be refused for them."""
    now = await _time_of(store)
    audit = _FieldAudit(Accounts(store, Ledger(store, {})), Keys(store, b""), now)
    report = AuditReport()
    for found in await gather_bounded((audit.unreadable_of(*one) for one in accounts.items()), ACCOUNTS_AT_ONCE):
        report.mismatches += found
    return report


async def _time_of(store: Store) -> int:
    """The seconds of the first server that answers; of this machine if none does."""
    for link in store.links:
        with suppress(StoreUnavailable):
            return int((await link.call("TIME"))[0])
    return int(time.time())


class _FieldAudit:
    def __init__(self, accounts: Accounts, keys: Keys, now: int) -> None:
        self._accounts, self._keys, self._now = accounts, keys, now

    async def unreadable_of(self, account: str, ids: Sequence[str]) -> list[Mismatch]:
        found: list[Mismatch] = []
        with suppress(NotFound, StoreUnavailable, RedisReplyError):  # the report says so already
            moment = datetime.fromtimestamp(self._now, UTC)
            if names := await self._accounts.unreadable_fields(account, moment):
                found.append(Mismatch(account, "fields", "readable", _unreadable(names)))
            for start in range(0, len(ids), KEYS_AT_ONCE):
                for key in await self._keys.read(account, ids[start : start + KEYS_AT_ONCE], now=self._now):
                    if key.unreadable:
                        found.append(Mismatch(account, f"fields {key.id}", "readable", _unreadable(key.unreadable)))
        return found


def _unreadable(names: Iterable[str]) -> str:
    return f"unreadable: {', '.join(names)}"

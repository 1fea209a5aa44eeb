"""The audit of the store's ledger, which remembers how many accounts there are."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from gateway.admin.store_services import StoreServices
from gateway.errors import NotFound, StoreUnavailable
from gateway.ledger import AuditReport
from gateway.ledger.audit_report import Mismatch
from gateway.ledger.gather_all import Progress, counted, gather_bounded, unwatched
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
) -> AuditReport:
    """Compare the ledger of an account, or of all, with the balances; NotFound for an unknown account.

    `expect_accounts`: the least number of accounts of the store; by default the largest that was seen from this data
    directory.
    """
    if account is not None:
        if not await store.ledger.has_traces(account):
            await store.accounts.show(account)
        report = await store.ledger.audit(account, archives=archives)
        await _name_unreadable_fields(store, [account], report)
        return report
    known = store.known_accounts
    expected = known.read() if expect_accounts is None else expect_accounts
    report = await store.ledger.audit(archives=archives, expected=expected, progress=progress)
    names = counted(await store.ledger.accounts(), "accounts read", progress)
    await _name_unreadable_fields(store, names, report)
    try:
        if expect_accounts is None:
            known.raise_to(report.accounts)
        elif report.accounts >= expected and not report.unreachable:
            known.write(report.accounts)
    except OSError as error:
        warn(f"the number of accounts cannot be remembered: {error}")
    return report


async def _name_unreadable_fields(store: StoreServices, accounts: Iterable[str], report: AuditReport) -> None:
    """Add the fields of accounts and keys that cannot be read: calls may be refused for them."""
    now = await _time_of(store)
    for found in await gather_bounded((_unreadable_of(store, account, now) for account in accounts), ACCOUNTS_AT_ONCE):
        report.mismatches += found


async def _time_of(store: StoreServices) -> int:
    """The seconds of the first server that answers; of this machine if none does."""
    for link in store.store.links:
        with suppress(StoreUnavailable):
            return int((await link.call("TIME"))[0])
    return int(time.time())


async def _unreadable_of(store: StoreServices, account: str, now: int) -> list[Mismatch]:
    found: list[Mismatch] = []
    with suppress(NotFound, StoreUnavailable, RedisReplyError):  # the report says so already
        if names := await store.accounts.unreadable_fields(account, datetime.fromtimestamp(now, UTC)):
            found.append(Mismatch(account, "fields", "readable", _unreadable(names)))
        ids = await store.keys.ids(account)
        for start in range(0, len(ids), KEYS_AT_ONCE):
            for key in await store.keys.read(account, ids[start : start + KEYS_AT_ONCE], now=now):
                if key.unreadable:
                    found.append(Mismatch(account, f"fields {key.id}", "readable", _unreadable(key.unreadable)))
    return found


def _unreadable(names: Iterable[str]) -> str:
    return f"unreadable: {', '.join(names)}"

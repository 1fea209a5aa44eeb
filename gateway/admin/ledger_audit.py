"""The audit of the store's ledger, which remembers how many accounts there are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from gateway.admin.refusals import existing_account
from gateway.admin.store_services import StoreServices
from gateway.ledger import AuditReport


async def audit_ledger(
    store: StoreServices,
    account: str | None,
    *,
    expect_accounts: int | None = None,
    archives: Sequence[Path] = (),
    warn: Callable[[str], None],
) -> AuditReport:
    """Compare the ledger of an account, or of all, with the balances; NotFound for an unknown account.

    `expect_accounts`: the least number of accounts of the store; by default the largest that was seen from this data
    directory.
    """
    if account is not None:
        if not await store.ledger.has_traces(account):
            await existing_account(store.accounts, account)
        return await store.ledger.audit(account, archives=archives)
    known = store.known_accounts
    expected = known.read() if expect_accounts is None else expect_accounts
    report = await store.ledger.audit(archives=archives, expected=expected)
    try:
        if expect_accounts is None:
            known.raise_to(report.accounts)
        elif report.accounts >= expected and not report.unreachable:
            known.write(report.accounts)
    except OSError as error:
        warn(f"the number of accounts cannot be remembered: {error}")
    return report

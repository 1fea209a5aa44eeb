"""An audit of many accounts, page by page: here, or in other processes, one page in each of them at a time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, Literal, Protocol

from gateway.ledger.auditing.report import AuditReport
from gateway.ledger.gather_all import Progress, batches, gather_rolling

#: What is audited of an account: its ledger in the store, the ledger and whether its fields can be read, its lines in
#: the database.
Part = Literal["ledger", "store", "history"]
#: The accounts of a page, each with the ids of its keys that a scan of the store found; for the database without them.
Page = Mapping[str, Sequence[str]]

PAGE: Final = 100  # accounts: some 20 ms of a process
MANY: Final = 2_000  # accounts from which other processes are worth their start, about half a second for each
#: What `Progress` is told that is done.
WORK: Final[Mapping[Part, str]] = {
    "ledger": "accounts audited",
    "store": "accounts audited",
    "history": "histories audited",
}

AuditPage = Callable[[Page], Awaitable[AuditReport]]


class PageAuditors(Protocol):
    """Processes that audit pages."""

    @property
    def at_once(self) -> int:
        """How many there are."""

    async def run(self, part: Part, page: Page) -> AuditReport | None:
        """The report on a page; None if it could not be made there."""


async def in_pages(
    accounts: Page,
    part: Part,
    here: AuditPage,
    *,
    processes: PageAuditors | None,
    progress: Progress,
) -> AuditReport:
    """The report on all accounts. Many are audited by `processes`; a page that fails there is audited `here`."""
    report, done = AuditReport(), 0
    auditors = processes if len(accounts) >= MANY else None

    async def one(page: Page) -> AuditReport:
        nonlocal done
        found = await auditors.run(part, page) if auditors is not None else None
        if found is None:
            found = await here(page)
        done += len(page)
        progress(WORK[part], done, len(accounts))
        return found

    progress(WORK[part], 0, len(accounts))
    pages = (dict(some) for some in batches(accounts.items(), PAGE))
    for found in await gather_rolling(map(one, pages), auditors.at_once if auditors is not None else 1):
        report.add(found)
    return report

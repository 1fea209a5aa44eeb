"""Audits a whole store: every account that its index names, and every account of which any key exists.

Rules about the store, beside those of `account`:

- `account`: an account that the index names has keys in the store.
- `index`: an account that has keys in the store is in the index.
- `order`: what lists the accounts has the names of the set of them; its account is `*`.
- `accounts`: there are at least as many accounts as are expected; its account is `*`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypedDict

from msgspec import Struct

from gateway.errors import StoreUnavailable
from gateway.ledger.archive import ArchiveProof, prove
from gateway.ledger.archive_checkpoint import ArchiveCheckpoint, read_archive_checkpoint
from gateway.ledger.auditing.account import AccountAudit
from gateway.ledger.auditing.pages import AuditPage, Page, PageAuditors, in_pages
from gateway.ledger.auditing.report import STORE, AuditReport, Mismatch
from gateway.ledger.gather_all import Progress, gather_bounded, unwatched
from gateway.ledger.listing.names import ACCOUNTS, account_names
from gateway.ledger.paging import scan_pages, scan_set
from gateway.ledger.scripts import Scripts
from gateway.store.connection import RedisReplyError
from gateway.store.link import RedisLink
from gateway.store.links import Links, slot

# Accounts audited at the same time. The store runs their scripts one after the other before it serves another client.
# With 200 keys in each account that client waited 50 to 80 ms, and with 100 accounts at the same time 230 to 270 ms.
AT_ONCE = 16
PAGE = 1000  # names per SCAN: some 0.3 ms of Redis's time
# Of an account's keys these are neither many nor short-lived: its own hash; its ledger, its set of keys, its keys.
PATTERNS = ("{a:*}", "{a:*}:[kl][:gs]*")


class Scanned(Struct):
    """What the store holds."""

    key_ids: dict[str, set[str]] = {}  # by account; every account that has any key in the store is in it
    unreachable: list[str] = []  # servers


class AuditOptions(TypedDict, total=False):
    """The optional arguments of `audit_store`."""

    archives: Sequence[Path]
    expected: int
    progress: Progress
    fields: AuditPage | None
    processes: PageAuditors | None


async def audit_store(
    links: Links,
    scripts: Scripts,
    account: str | None = None,
    *,
    archives: Sequence[Path] = (),
    expected: int = 0,
    progress: Progress = unwatched,
    fields: AuditPage | None = None,
    processes: PageAuditors | None = None,
) -> AuditReport:
    """The report on one account, or on all; `expected` is the least number of accounts of the whole store.

    The report names accounts and servers that are unreachable; the others are audited. `fields` finds those of a page
    that cannot be read. `processes` audits many accounts without archives.
    """
    report = AuditReport()
    scanned = await _scan(links) if account is None else Scanned()
    report.unreachable += scanned.unreachable
    # Read after the scan: an account is put into the index before it gets its first key.
    indexed = {account} if account is not None else await scan_set(links.link(ACCOUNTS), ACCOUNTS)
    names = sorted(indexed | scanned.key_ids.keys())
    checkpoints = await _checkpoints(links, names, report) if archives else {}
    proofs = await asyncio.to_thread(prove, archives, checkpoints) if archives else None
    page = {name: sorted(scanned.key_ids.get(name, ())) for name in names if name in checkpoints or not archives}
    report.add(
        await in_pages(
            page,
            "ledger" if fields is None else "store",
            StorePages(links, scripts, proofs=proofs, fields=fields).audit,
            processes=None if archives else processes,
            progress=progress,
        )
    )
    for name in sorted(scanned.key_ids.keys() - indexed):
        report.mismatches.append(Mismatch(name, "index", "in the index of accounts", "missing from it"))
    if account is None:
        report.add_order(STORE, await account_names(links).differences())
    if account is None and report.accounts < expected and not report.unreachable:
        report.mismatches.append(Mismatch(STORE, "accounts", f"{expected} or more", str(report.accounts)))
    return report


class StorePages:
    """Audits pages of accounts; with `proofs` also their archives, with `fields` also what it finds."""

    def __init__(
        self,
        links: Links,
        scripts: Scripts,
        *,
        proofs: Mapping[str, ArchiveProof] | None = None,
        fields: AuditPage | None = None,
    ) -> None:
        self._accounts = AccountAudit(links, scripts)
        self._proofs = proofs
        self._fields = fields

    async def audit(self, page: Page) -> AuditReport:
        """The report on some accounts."""
        report = AuditReport()
        for part in await gather_bounded((self._audit(*one) for one in page.items()), AT_ONCE):
            report.add(part)
        if self._fields is not None:
            report.add(await self._fields(page))
        return report

    async def _audit(self, account: str, key_ids: Sequence[str]) -> AuditReport:
        proof = None
        if self._proofs is not None:
            proof = self._proofs.get(account, ArchiveProof(ArchiveCheckpoint(), 0))
        try:
            return await self._accounts.audit(account, key_ids=key_ids, proof=proof)
        except StoreUnavailable:
            return AuditReport(unreachable=[account])


async def has_traces(links: Links, account: str) -> bool:
    """Whether the store knows the account: by its index, its hash, its ledger or its keys."""
    key = slot(account)
    if await links.link(ACCOUNTS).call("SISMEMBER", ACCOUNTS, account):
        return True
    return bool(await links.link(key).call("EXISTS", key, f"{key}:lg", f"{key}:ks"))


async def _scan(links: Links) -> Scanned:
    """Every account of which a key exists on any server."""
    scanned = Scanned()
    for link in links.links:
        try:
            for pattern in PATTERNS:
                await _scan_server(link, pattern, scanned.key_ids)
        except StoreUnavailable:
            scanned.unreachable.append(f"server {link.address}")
    return scanned


async def _scan_server(link: RedisLink, pattern: str, key_ids: dict[str, set[str]]) -> None:
    async for page in scan_pages(link, "SCAN", match=pattern, count=PAGE):
        for key in page:
            name, _, rest = key.decode(errors="replace").removeprefix("{a:").partition("}")
            found = key_ids.setdefault(name, set())
            if rest.startswith(":k:"):
                found.add(rest.removeprefix(":k:"))


async def _checkpoints(links: Links, accounts: Iterable[str], report: AuditReport) -> dict[str, ArchiveCheckpoint]:
    checkpoints = {}
    for name in accounts:
        try:
            checkpoints[name] = await read_archive_checkpoint(links, name)
        except StoreUnavailable:
            report.unreachable.append(name)
        except (RedisReplyError, ValueError, LookupError):
            report.mismatches.append(Mismatch(name, "unreadable", "an archive checkpoint", "unreadable"))
    return checkpoints

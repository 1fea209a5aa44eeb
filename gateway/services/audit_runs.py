"""Audits over the network: one at a time, for a limited time. The database part has a thread of its own."""

from __future__ import annotations

import asyncio

from gateway.admin.store_services import StoreServices
from gateway.attention.audit_findings import remember_audit
from gateway.database.engine import Database
from gateway.errors import Conflict, Unavailable
from gateway.history.audit import audit_history
from gateway.history.sql_thread import SqlThread
from gateway.ledger import AuditReport
from gateway.log import gateway_log
from gateway.services.ledger_audit import audit_ledger

LONGEST = 300.0  # seconds


class AuditRuns:
    """Runs audits."""

    def __init__(self) -> None:
        self._is_running = False

    async def run(self, store: StoreServices, database: Database, account: str | None) -> AuditReport:
        """Audit the store and the database, one account or all; Conflict while another audit runs."""
        if self._is_running:
            raise Conflict("An audit is running already", retry_after=5.0)
        self._is_running = True
        try:
            async with asyncio.timeout(LONGEST):
                report = await audit_ledger(store, account, warn=gateway_log.warning)
                report.add(await _audit_database(store, database, account))
                await remember_audit(store.store, account, report)
                return report
        except TimeoutError:
            raise Unavailable("The audit takes too long here; run gateway audit") from None
        finally:
            self._is_running = False


async def _audit_database(store: StoreServices, database: Database, account: str | None) -> AuditReport:
    sql = SqlThread()
    try:
        return await audit_history(store.store, database, sql, account)
    finally:
        await asyncio.to_thread(sql.close)  # it waits for a query that is still running

"""The ledger: holds, charges and balances of all accounts, exact to the nano-unit. Start reading at `ledger.Ledger`."""

from gateway.ledger.archive import ArchiveError
from gateway.ledger.audit_report import AuditReport, Mismatch
from gateway.ledger.dry_run import DryRun, Refusal
from gateway.ledger.hold import Hold
from gateway.ledger.journal import Journal
from gateway.ledger.ledger import Credited, LeaseState, Ledger
from gateway.ledger.limits import GroupLimits, RateState
from gateway.ledger.line import LedgerLine

__all__ = [
    "ArchiveError",
    "AuditReport",
    "Credited",
    "DryRun",
    "GroupLimits",
    "Hold",
    "Journal",
    "LeaseState",
    "Ledger",
    "LedgerLine",
    "Mismatch",
    "RateState",
    "Refusal",
]

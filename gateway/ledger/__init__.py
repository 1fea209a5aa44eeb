"""The ledger: what every call may cost and did cost, exact to the nano-unit. Start reading at `ledger.Ledger`."""

from gateway.ledger.archive import ArchiveFault
from gateway.ledger.audit import AuditReport, Mismatch
from gateway.ledger.call import Ask, Hold, Outcome, Settled
from gateway.ledger.compaction import Compacted
from gateway.ledger.dry_run import Refusal, Verdict
from gateway.ledger.journal import Journal
from gateway.ledger.ledger import Beat, Credited, Ledger
from gateway.ledger.limits import GroupLimits, RateState
from gateway.ledger.line import LedgerLine

__all__ = [
    "ArchiveFault",
    "Ask",
    "AuditReport",
    "Beat",
    "Compacted",
    "Credited",
    "GroupLimits",
    "Hold",
    "Journal",
    "Ledger",
    "LedgerLine",
    "Mismatch",
    "Outcome",
    "RateState",
    "Refusal",
    "Settled",
    "Verdict",
]

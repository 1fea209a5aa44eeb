"""The ledger: what every call may cost and did cost, exact to the nano-unit. Start reading at `ledger.Ledger`."""

from gateway.ledger.audit import AuditReport, Mismatch
from gateway.ledger.call import Ask, Hold, Outcome, Settled
from gateway.ledger.journal import Journal
from gateway.ledger.ledger import Beat, Credited, Ledger
from gateway.ledger.limits import GroupLimits, RateState
from gateway.ledger.line import LedgerLine

__all__ = [
    "Ask",
    "AuditReport",
    "Beat",
    "Credited",
    "GroupLimits",
    "Hold",
    "Journal",
    "Ledger",
    "LedgerLine",
    "Mismatch",
    "Outcome",
    "RateState",
    "Settled",
]

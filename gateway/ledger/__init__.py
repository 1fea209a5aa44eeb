"""The ledger: holds, charges and balances of all accounts, exact to the nano-unit. Start reading at `ledger.Ledger`."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gateway.ledger.archive import ArchiveError as ArchiveError
    from gateway.ledger.auditing.report import AuditReport as AuditReport
    from gateway.ledger.auditing.report import Mismatch as Mismatch
    from gateway.ledger.dry_run import DryRun as DryRun
    from gateway.ledger.dry_run import Refusal as Refusal
    from gateway.ledger.hold import Hold as Hold
    from gateway.ledger.journal import Journal as Journal
    from gateway.ledger.ledger import Credited as Credited
    from gateway.ledger.ledger import LeaseState as LeaseState
    from gateway.ledger.ledger import Ledger as Ledger
    from gateway.ledger.limits import GroupLimits as GroupLimits
    from gateway.ledger.limits import RateState as RateState
    from gateway.ledger.line import LedgerLine as LedgerLine

# The module of each name, imported when the name is asked for: a command that needs one module of this package does not
# load the forty others.
_HOME = {
    "ArchiveError": "archive",
    "AuditReport": "auditing.report",
    "Credited": "ledger",
    "DryRun": "dry_run",
    "GroupLimits": "limits",
    "Hold": "hold",
    "Journal": "journal",
    "LeaseState": "ledger",
    "Ledger": "ledger",
    "LedgerLine": "line",
    "Mismatch": "auditing.report",
    "RateState": "limits",
    "Refusal": "dry_run",
}
__all__ = list(_HOME)


def __getattr__(name: str) -> Any:
    """Import a name at its first use (PEP 562)."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    return value

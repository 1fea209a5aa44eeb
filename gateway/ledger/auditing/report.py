"""The `gateway audit` document. Amounts are nano-units, and decimal texts in its printed forms."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from gateway.amounts import format_amount

STORE = "*"  # the account of a finding about the whole store
SHOWN = 3  # names in a finding


class Mismatch(Struct, frozen=True):
    """A rule that failed, with the expected and the found value; the account `*` is the whole store."""

    account: str
    rule: str
    expected: str
    found: str


class LateLine(Struct, frozen=True):
    """A call whose hold was lost before it was settled; its charge may have passed the floor."""

    account: str
    request_id: str
    line: int  # its number
    amount: int


class Uncollected(Struct, frozen=True):
    """What the calls of an account cost beyond what could be charged: the operator's loss."""

    account: str
    lines: int
    amount: int


class Overdrawn(Struct, frozen=True):
    """An account that lacks money for its holds or its floor, as late lines or lines of older versions explain."""

    account: str
    amount: int  # what it lacks


class Superseded(Struct, frozen=True):
    """A line that the store has lost, and that is neither booked again nor acknowledged."""

    id: int  # in the database
    account: str
    line: int  # the number that it had
    kind: str
    request_id: str  # or the operation
    amount: int
    at: str  # when it was booked


class LostChange(Struct, frozen=True):
    """A change of a key or an account that the store has lost, and that was not repeated by itself."""

    at: str
    action: str
    object: str
    account: str


class AuditReport(Struct):
    """What an audit found. Late, uncollected and overdrawn calls and busy accounts are no faults."""

    accounts: int = 0
    lines: int = 0
    history_lines: int = 0  # lines of the database that were checked
    recomputed: int = 0  # calls whose cost was computed again from their usage and price
    not_recomputed: int = 0  # calls whose lines have no usage or are of an older version, or whose price is missing
    left_lines: int = 0  # lines that left the store, without those of archives that were given
    mismatches: list[Mismatch] = []
    unreachable: list[str] = []  # accounts, or servers, that were not audited because the server is unreachable
    moving: list[str] = []  # accounts that changed during each attempt to compare their holds and keys
    late: list[LateLine] = []
    uncollected: list[Uncollected] = []
    overdrawn: list[Overdrawn] = []
    superseded: list[Superseded] = []  # the first ones
    superseded_lines: int = 0  # all of them
    changes: list[LostChange] = []  # the newest ones
    lost_changes: int = 0  # all of them

    @property
    def clean(self) -> bool:
        """Whether everything was reached, no rule failed, and nothing that the store has lost is open."""
        return not (self.mismatches or self.unreachable or self.superseded_lines or self.lost_changes)

    def add_order(self, account: str, names: list[str]) -> None:
        """Add the finding that an order differs from its set by these names; without names there is none."""
        if names:
            found = ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
            self.mismatches.append(Mismatch(account, "order", "the names of the set", f"not of both: {found}"))

    def add(self, other: AuditReport) -> None:
        """Add the report of a part."""
        for name in self.__struct_fields__:
            if found := getattr(other, name):
                mine = getattr(self, name)
                mine += found  # a list grows in place: 100,000 parts are added
                setattr(self, name, mine)

    def json_form(self) -> dict[str, Any]:
        """The document of the command line."""
        form: dict[str, Any] = msgspec.to_builtins(self)
        for name in ("late", "uncollected", "overdrawn", "superseded"):
            for row in form[name]:
                row["amount"] = format_amount(row["amount"])
        return form

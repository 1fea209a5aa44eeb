"""The `gateway audit` document. Amounts are nano-units, and decimal texts in its printed forms."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from gateway.amounts import format_amount


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


class AuditReport(Struct):
    """What an audit found. Only mismatches and unreachable accounts are faults."""

    accounts: int = 0
    lines: int = 0
    history_lines: int = 0  # lines of the database that were checked
    recomputed: int = 0  # calls whose cost was computed again from their usage and price
    not_recomputed: int = 0  # calls whose price is not stored, or whose lines have no usage or are of an older version
    mismatches: list[Mismatch] = []
    unreachable: list[str] = []  # accounts, or servers, that were not audited because the server is unreachable
    moving: list[str] = []  # accounts that changed during each attempt to compare their holds and keys
    late: list[LateLine] = []
    uncollected: list[Uncollected] = []
    overdrawn: list[Overdrawn] = []

    @property
    def clean(self) -> bool:
        """Whether everything was reached and no rule failed."""
        return not self.mismatches and not self.unreachable

    def add(self, other: AuditReport) -> None:
        """Add the report of a part."""
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def json_form(self) -> dict[str, Any]:
        """The document of the command line."""
        form: dict[str, Any] = msgspec.to_builtins(self)
        for name in ("late", "uncollected", "overdrawn"):
            for row in form[name]:
                row["amount"] = format_amount(row["amount"])
        return form

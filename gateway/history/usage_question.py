"""What a key asks about usage, from the worker that has the request to the process that has the database."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from gateway.ledger.line import LedgerLine


class UsageQuestion(Struct, frozen=True, array_like=True):
    """Sums from `since` to before `until`, times in microseconds since 1970; `group_by` was checked."""

    account: str
    key: str  # the id of the key that asks
    user: str  # only this user's calls; empty: those of the whole account
    since: int
    until: int
    group_by: Sequence[str]
    currency: str | None  # of the amounts, for the document
    session: str = ""  # only the calls of this session; empty: of all


class ReceiptQuestion(Struct, frozen=True, array_like=True):
    """One call of a key, for its receipt after the store has forgotten it."""

    account: str
    key: str  # the id of the key that asks
    request_id: str


class SettledCall(Struct, frozen=True, array_like=True):
    """The last line of a call, and the charge of all its lines, in nano-units."""

    line: LedgerLine
    cost: int


class UsageHistory(Protocol):
    """Answers them."""

    async def usage(self, question: UsageQuestion) -> bytes:
        """The JSON document; InvalidValue, ConcurrencyLimited, Unavailable."""

    async def receipt(self, question: ReceiptQuestion) -> SettledCall | None:
        """The call; None if the key has no such settled call. ConcurrencyLimited, Unavailable."""

"""What is known after a round: each call as its caller, its upstream and the ledger saw it."""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct

from gateway.ledger import Hold, LedgerLine
from tests.money.cases import Case, Round
from tests.money.upstreams import Truth


class SessionState(NamedTuple):
    """What the calls of a session have spent and hold, in nano-units."""

    spent: int
    held: int


class Balance(NamedTuple):
    """An account at one moment, in nano-units."""

    balance: int
    floor: int
    held: int
    month: str  # of the cap; empty without one
    spent: int  # in that month
    sessions: dict[str, SessionState]  # by id, those with a budget


class Seen(Struct):
    """One call; `hold` is None for a refused one."""

    case: Case
    truth: Truth
    request_id: str = ""
    size: int = 0  # bytes of the request
    hold: Hold | None = None  # as it is at the end
    granted: int = 0  # by the admission
    status: int = 0  # 0: none was received
    words: int = 0  # of content that the caller received
    left: bool = False  # the caller left before the end
    whole: bool = False  # the caller received the whole answer
    lines: list[LedgerLine] = []


class KeyState(NamedTuple):
    """A key at the end of a round."""

    budget: int | None
    spent: int
    held: int


class Outcome(Struct):
    """A round and everything that was seen of it."""

    round: Round
    calls: list[Seen]
    samples: list[Balance]
    end: Balance
    lines: list[LedgerLine]
    keys: dict[str, KeyState]
    holds: int  # that are left
    markers: dict[str, int]  # charge by request id, from the markers
    audit: list[str]  # mismatches

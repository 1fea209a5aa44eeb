"""The life of one call in the ledger: an Ask is admitted as a Hold, an Outcome settles it, Settled says what happened.

Amounts are nano currency units (1e-9), never negative here; times are Redis's own microseconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from gateway.billing.usage import Usage

if TYPE_CHECKING:
    from gateway.ledger.api_key import ApiKey
    from gateway.ledger.limits import RateState


class Ask(Struct, frozen=True):
    """What a call wants before it may start."""

    request_id: str
    key: ApiKey
    model: str
    model_groups: frozenset[str]  # groups that may use the model
    hold: int  # the worst cost
    tokens: int = 0  # estimate of all tokens, charged to the token limits until the true count is known
    price_version: str = ""  # frozen here: the call is billed at it whatever happens to prices meanwhile


class Hold(Struct):
    """Money and limits set aside for a call that runs; `amount` grows by `Ledger.extend`, `used` by the relay."""

    request_id: str
    key: ApiKey
    model: str
    amount: int
    group: str
    rates: RateState | None
    admitted_at: int
    tokens: int = 0
    price_version: str = ""
    used: int = 0  # cost so far; `Ledger.beat` stores it, and a reclaimed hold is charged just this


class Outcome(Struct, frozen=True):
    """What a call came to."""

    amount: int
    provider: str = ""
    model: str = ""  # the upstream's name of it
    usage: Usage | None = None
    tokens: int = 0  # true total, which corrects the token limits
    estimated: bool = False
    attempts: int = 1
    outcome: str = ""  # "ok", an error code, "client_closed"
    served_model: str = ""  # public name of the fallback that served; empty where the model asked for did


class Settled(Struct, frozen=True):
    """How a settlement ended: what was charged in the end, and the balance after it.

    status: settled · duplicate (it was done before) · late (the hold was gone) · amended (only the difference to a
    reclaim was charged) · journaled (the store is away; the journal will bring it there) · refused (there is no such
    account; the journal keeps the entry for the operator) · void.
    """

    status: str
    amount: int
    balance: int | None = None


class LineMeta(Struct, omit_defaults=True):
    """What a ledger line tells beside its amount."""

    key: str
    model: str
    provider: str = ""
    upstream: str = ""
    usage: Usage | None = None  # its counts that are not zero
    estimated: bool = False
    attempts: int = 0
    outcome: str = ""
    price: str = ""
    hold: int = 0
    clamped: bool = False
    reclaimed: bool = False
    served_model: str = ""  # as in Outcome


_encoder = msgspec.json.Encoder()


def hold_note(ask: Ask) -> bytes:
    """Meta of the line that a reclaim of this hold would write."""
    return _encoder.encode(
        LineMeta(ask.key.id, ask.model, price=ask.price_version, hold=ask.hold, estimated=True, reclaimed=True)
    )


def line_meta(hold: Hold, outcome: Outcome, *, clamped: bool) -> str:
    """Meta of the settled line."""
    meta = LineMeta(
        hold.key.id,
        hold.model,
        provider=outcome.provider,
        upstream=outcome.model,
        usage=outcome.usage,
        estimated=outcome.estimated or clamped,
        attempts=outcome.attempts,
        outcome=outcome.outcome,
        price=hold.price_version,
        hold=hold.amount,
        clamped=clamped,
        served_model=outcome.served_model,
    )
    return _encoder.encode(meta).decode()

"""Money and limits that are set aside for a running call."""

from __future__ import annotations

from msgspec import Struct

from gateway.ledger.api_key import ApiKey
from gateway.ledger.limits import RateState


class Hold(Struct):
    """What an admission set aside; amounts are nano currency units (1e-9), never negative."""

    request_id: str
    key: ApiKey
    model: str
    amount: int  # grows by `Ledger.extend`
    rates: RateState | None
    admitted_at: int  # µs, Redis time
    price_version: str = ""
    price_factor: str = ""  # decimal text of the factor of the price; empty for 1
    used: int = 0  # cost so far; `Ledger.renew_leases` stores it, and a reclaimed hold is charged this amount

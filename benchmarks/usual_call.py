"""A usual chat call for benchmarks that use the ledger without a gateway: its quote and its record."""

from __future__ import annotations

import random

from gateway.billing.call_record import CallRecord
from gateway.billing.price import Price
from gateway.billing.quote import Quote
from gateway.billing.usage import Usage
from gateway.ledger.api_key import ApiKey

PEPPER = b"benchmark pepper, not a secret"
BALANCE = 9 * 10**15
USAGE = Usage(in_text=812, in_cached=100, out_text=204, out_reasoning=30)
PRICE = Price(version="0123456789abcdef", input=250_000, cached_input=25_000, output=2_000_000)
QUOTE = Quote("gpt-5-mini", frozenset({"default"}), PRICE, USAGE, USAGE, hold=1_000_000, tokens=1500)


def record_of(key: ApiKey, request_id: str, seconds: float) -> CallRecord:
    """The record of a usual chat call."""
    return CallRecord(
        request_id=request_id,
        endpoint="chat",
        account=key.account,
        key=key.id,
        model=QUOTE.model,
        provider="openai",
        outcome="ok",
        status=200,
        usage=USAGE,
        tokens_in=USAGE.tokens_in,
        tokens_out=USAGE.tokens_out,
        cost=random.randrange(100_000, 900_000),
        attempts=1,
        duration=seconds,
        first_token=seconds / 4,
        stream=True,
        served_model=QUOTE.model,
        upstream_model="gpt-5-mini-2025-08-07",
    )

"""Quotes and records of calls for tests of the ledger, and settlements that are waited for."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from gateway.billing.call_record import CallRecord
from gateway.billing.price import Price
from gateway.billing.quote import Quote
from gateway.billing.usage import Usage
from gateway.errors.attempt_answer import AttemptAnswer
from gateway.ledger import Hold, Ledger
from gateway.ledger.checkpoint_record import encode_stream

EVERYONE = frozenset({"default"})


def quote_of(
    hold: int = 1000,
    tokens: int = 10,
    *,
    model: str = "m",
    groups: frozenset[str] = EVERYONE,
    version: str = "",
    session: str = "",
) -> Quote:
    """A quote of that hold in nano-units; of the price it has only the version."""
    usage = Usage()
    return Quote(model, groups, Price(version=version), usage, usage, hold=hold, tokens=tokens, session=session)


def record_of(
    cost: int,
    *,
    tokens: int = 0,
    usage: Usage | None = None,
    provider: str = "",
    outcome: str = "",
    attempts: int = 1,
    served_model: str = "",
    upstream_model: str = "",
    session: str = "",
) -> CallRecord:
    """A record of that cost in nano-units; `tokens` are of text in, where no usage is given."""
    usage = Usage(in_text=tokens) if usage is None else usage
    return CallRecord(
        request_id="",
        endpoint="",
        account="",
        key="",
        model="",
        provider=provider,
        outcome=outcome,
        status=200,
        usage=usage,
        tokens_in=usage.tokens_in,
        tokens_out=usage.tokens_out,
        cost=cost,
        attempts=attempts,
        duration=0.0,
        first_token=None,
        stream=False,
        served_model=served_model,
        upstream_model=upstream_model,
        session=session,
    )


def stream_of(
    hold: Hold,
    price: Price,
    prompt: Usage,
    *,
    provider: str = "",
    upstream: str = "",
    attempts: int = 0,
    served_model: str = "",
    service_tier: str | None = None,
    factor: float = 1.0,
    endpoint: str = "",
    cost_price: Price | None = None,
    answers: tuple[AttemptAnswer, ...] | None = None,
) -> bytes:
    """The stored form of a stream of that hold, at that price."""
    return encode_stream(
        hold,
        structs.replace(quote_of(), price=price, prompt=prompt),
        provider=provider,
        upstream=upstream,
        attempts=attempts,
        served_model=served_model,
        service_tier=service_tier,
        factor=factor,
        endpoint=endpoint,
        cost_price=cost_price,
        answers=answers,
    )


async def book(ledger: Ledger, hold: Hold, record: CallRecord | None) -> None:
    """Book the record and wait until all that was booked has come to its end."""
    ledger.book(hold, record)
    await ledger.drain()


async def settle(ledger: Ledger, hold: Hold, cost: int, **fields: Any) -> None:
    """Book a record of that cost and wait."""
    await book(ledger, hold, record_of(cost, **fields))


async def void(ledger: Ledger, hold: Hold) -> None:
    """Book a void and wait."""
    await book(ledger, hold, None)

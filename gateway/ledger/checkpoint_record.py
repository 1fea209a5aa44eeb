"""A call that delivers, as its slot in the checkpoint file stores it, and the settlement made of it after a crash.

The stored form is one msgpack array: account, request_id, key_id, and a nested array of the time of the admission (µs,
Redis time), the meta of the ledger line, the usage of the prompt, the price, the service tier, and the model's tokens
per estimated token. The meta may have the cost price of the target, too, what earlier attempts answered, and the seam
of a stream that two targets gave. A call that has delivered nothing yet has nil in place of the nested array. Sharp
edge: only the delivered units of the answer are known. The upstream's own count is lost with the worker.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import structs

from gateway.amounts import MAX_AMOUNT, NANO
from gateway.billing.call_record import Joined
from gateway.billing.price import Price
from gateway.billing.quote import Quote
from gateway.billing.usage import Usage, tokens_of
from gateway.errors.attempt_answer import AttemptAnswer
from gateway.ledger.entry import Entry
from gateway.ledger.hold import Hold
from gateway.ledger.line_meta import LineMeta

DIED = "worker_died"  # the outcome of a call whose worker died

#: Bytes of a record with the answers of attempts or a cost price; a longer one goes without, for it might not fit its
#: slot.
MOST_WITH_EXTRAS = 900


class _StreamMeta(LineMeta):
    """The meta with what the upstream's tokens cost the operator, which the version before this one skips."""

    cost_price: Price | None = None


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(
    tuple[str, str, str, tuple[int, _StreamMeta, Usage, Price, str | None, float] | None]
)


def encode_admitted(account: str, request_id: str, key_id: str) -> bytes:
    """The stored form of a call that has delivered nothing yet."""
    return _encoder.encode((account, request_id, key_id, None))


def encode_stream(
    hold: Hold,
    quote: Quote,
    *,
    provider: str,
    upstream: str,
    attempts: int,
    served_model: str,
    service_tier: str | None,
    factor: float,
    endpoint: str = "",
    cost_price: Price | None = None,
    answers: tuple[AttemptAnswer, ...] | None = None,
    joined: Joined | None = None,
) -> bytes:
    """The stored form of a stream that delivers; `served_model` is empty if the requested model serves.

    `cost_price` is what the operator pays; None without one. `answers` are None if the first attempt serves. `joined`
    is the seam behind which the last attempt serves.
    """
    meta = LineMeta(
        hold.key.id,
        hold.model,
        provider=provider,
        upstream=upstream,
        estimated=True,
        attempts=attempts,
        outcome=DIED,
        price=hold.price_version,
        hold=hold.amount,
        served_model=served_model,
        endpoint=endpoint,
        service_tier=service_tier or "",
        user=hold.key.user,
        tags=quote.tags,
        price_factor=hold.price_factor,
        session=quote.session,
    )
    price = _of_stream(quote.price, quote.prompt)
    if price.factor != NANO:
        price = _without_factor(price, service_tier)
    names = (hold.key.account, hold.request_id, hold.key.id)
    charge = (hold.admitted_at, meta, quote.prompt, price, service_tier, factor)
    if cost_price is None and answers is None and joined is None:
        return _encoder.encode((*names, charge))
    of_stream = None if cost_price is None else _of_stream(cost_price, quote.prompt)
    # In the order of what is left out first.
    extras: dict[str, Any] = {"answers": answers, "cost_price": of_stream, "joined": joined}
    while extras:
        extra = structs.replace(_StreamMeta(**structs.asdict(meta)), **extras)
        body = _encoder.encode((*names, (charge[0], extra, *charge[2:])))
        if len(body) <= MOST_WITH_EXTRAS:
            return body
        del extras[next(iter(extras))]
    return _encoder.encode((*names, charge))


def _of_stream(price: Price, prompt: Usage) -> Price:
    """The price for this prompt without the parts that streams do not use."""
    return structs.replace(price.at(prompt.tokens_in), tiers=(), per_image={}, held=None)


def _without_factor(price: Price, service_tier: str | None) -> Price:
    """The price with its factor in the multiplier of the tier, because the version before this one knows no factors."""
    top, bottom = price.service_tier_multiplier.get(service_tier or "", (1, 1))
    multiplier = {service_tier or "": (top * price.factor, bottom * NANO)}
    return structs.replace(price, service_tier_multiplier=multiplier, factor=NANO)


def read_checkpoint(body: bytes, units: int) -> tuple[str, str, Entry | None]:
    """Account, request_id, and the settlement after `units` delivered units; None if the call has delivered nothing.

    It is charged like any stream that was cut. Other bytes raise msgspec's ValueErrors.
    """
    account, request_id, key_id, charge = _decoder.decode(body)
    if charge is None:
        return account, request_id, None
    at, meta, prompt, price, service_tier, factor = charge
    usage = structs.replace(prompt, out_text=tokens_of(units, factor=factor), estimated=False)
    amount = min(price.cost(usage, service_tier=service_tier), MAX_AMOUNT)
    paid = None if meta.cost_price is None else meta.cost_price.cost(usage, service_tier=service_tier)
    text = msgspec.json.encode(structs.replace(meta, usage=usage, upstream_cost=paid, cost_price=None)).decode()
    return (
        account,
        request_id,
        Entry(account, request_id, key_id, "use", -amount, usage.tokens_in + usage.tokens_out, at, text),
    )

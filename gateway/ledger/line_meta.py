"""The meta of a ledger line: JSON with the keys of `LineMeta`; values equal to a default are left out."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import msgspec
from msgspec import Struct, structs

from gateway.amounts import NANO, format_amount
from gateway.billing.call_record import CallRecord, Joined
from gateway.billing.quote import Quote
from gateway.billing.usage import Usage
from gateway.errors.attempt_answer import AttemptAnswer
from gateway.ledger.api_key import ApiKey
from gateway.ledger.hold import Hold
from gateway.schemas.answer_surrogates import encode_whole


class LineMeta(Struct, omit_defaults=True):
    """The stored keys, in their stored order; amounts are nano currency units (1e-9)."""

    key: str
    model: str  # the requested model
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
    served_model: str = ""  # the fallback that served; empty if the requested model did
    endpoint: str = ""
    service_tier: str = ""  # the tier that is charged
    duration_ms: int = 0
    first_token_ms: int = 0
    user: str = ""  # the id of the user who has the key
    tags: Mapping[str, str] | None = None
    price_factor: str = ""  # decimal text of the factor of the price; empty for 1
    upstream_cost: int | None = None  # what the operator pays; None if the target has no cost price
    answers: tuple[AttemptAnswer, ...] | None = None  # of each attempt; None if the outcome says as much
    hooks: Mapping[str, str] | None = None  # what came of the hooks of its model, by name
    session: str = ""  # the id of the session; absent where there is none, and in lines of older versions
    joined: Joined | None = None  # the seam of an answer that two targets gave


ABANDONED = "abandoned"  # the outcome of a call whose client left before the reply of its admission
#: Outcomes that are no errors, for reports, pages and the performance of targets. An outcome is `ok`, the code of an
#: error, or one of a few other ends of a call: the caller got an answer, or left before its beginning or end. Lines of
#: old versions have no outcome.
NO_ERRORS = ("ok", "client_closed", "replayed", ABANDONED, "")

_encoder = msgspec.json.Encoder()


class _Held(Struct):
    """The part of a stored meta that the settlement of an entry reads; entries of older versions may lack it."""

    model: str = ""
    hold: int = 0


_decoder = msgspec.json.Decoder(_Held)


def reclaim_meta(key: ApiKey, quote: Quote) -> str:
    """Meta of the line that a reclaim of the quote's hold writes."""
    hold, price = quote.hold, quote.price
    if not hold or quote.tags:
        of_call = _reclaim_meta(key.id, key.user, quote.model, price.version, price.factor, hold, quote.tags)
    else:
        before, after = _around_hold(key.id, key.user, quote.model, price.version, price.factor)
        of_call = f"{before}{hold}{after}"
    # Ids of sessions need no escapes.
    return f'{of_call[:-1]},"session":"{quote.session}"}}' if quote.session else of_call


def _reclaim_meta(
    key_id: str,
    user: str,
    model: str,
    version: str,
    factor: int,
    hold: int,
    tags: Mapping[str, str] | None = None,
) -> str:
    meta = LineMeta(key_id, model, price=version, hold=hold, estimated=True, reclaimed=True, user=user, tags=tags)
    if factor != NANO:
        meta.price_factor = format_amount(factor)
    return _encoded(meta)


@lru_cache(maxsize=8192)
def _around_hold(key_id: str, user: str, model: str, version: str, factor: int) -> tuple[str, str]:
    """The parts of a reclaim's meta before and after the amount of the hold, which alone differs between two calls."""
    before, name, after = _reclaim_meta(key_id, user, model, version, factor, 1).rpartition('"hold":1')
    return before + name[:-1], after


def superseded_meta(key: ApiKey, model: str) -> bytes:
    """Meta of the line that refunds a dead call after another call claimed its Idempotency-Key."""
    return _encoder.encode(LineMeta(key.id, model, outcome="superseded", user=key.user))


def released_meta(hold: Hold) -> str:
    """Meta of the line of a call that was abandoned before its worker knew that it was admitted."""
    model = hold.model.encode(errors="replace").decode()  # it may be the reason why the admission was not sent
    key = hold.key
    meta = LineMeta(key.id, model, price=hold.price_version, hold=hold.amount, outcome=ABANDONED, user=key.user)
    meta.price_factor = hold.price_factor
    return _encoded(meta)


def model_of(meta: str) -> str:
    """The requested model in a stored meta; empty if it has none."""
    return _read(meta).model


def held_in(meta: str) -> int:
    """The amount of the hold in a stored meta, for an entry that does not carry it; 0 if it has none."""
    return _read(meta).hold


def _read(meta: str) -> _Held:
    try:
        return _decoder.decode(meta) if meta else _Held()
    except (msgspec.MsgspecError, UnicodeEncodeError):  # an entry of a journal that was damaged or edited
        return _Held()


def settled_meta(hold: Hold, record: CallRecord, *, clamped: bool) -> str:
    """Meta of the line that settles a call."""
    usage = record.usage
    meta = LineMeta(  # by position: by name it takes 0.5 µs more
        hold.key.id,
        hold.model,
        record.provider,
        record.upstream_model,
        structs.replace(usage, estimated=False) if usage.estimated else usage,  # `estimated` is a separate key
        usage.estimated or clamped,
        record.attempts,
        record.outcome,
        hold.price_version,
        hold.amount,
        clamped,
        False,  # not reclaimed
        record.served_model if record.served_model != hold.model else "",
        record.endpoint,
        record.service_tier or "",
        int(record.duration * 1000),
        int(record.first_token * 1000) if record.first_token else 0,
        hold.key.user,
        record.tags,
        hold.price_factor,
        record.upstream_cost,
        record.answers,
        record.hooks,
        record.session,
        record.joined,
    )
    return _encoded(meta)


def _encoded(meta: LineMeta) -> str:
    try:
        return _encoder.encode(meta).decode()
    except UnicodeEncodeError:  # a lone surrogate in a name that a plugin gave
        return encode_whole(meta).decode()

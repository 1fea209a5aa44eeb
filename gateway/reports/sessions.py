"""Sessions of an account: what each cost, how much of its input came from a prompt cache, and what that saved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import pairwise

import msgspec
from msgspec import Struct, structs

from gateway.billing.itemised_cost import itemised_cost
from gateway.billing.price import Price
from gateway.billing.usage import Usage
from gateway.history.session_list import SessionLine


class _Meta(Struct):
    """The part of a line's meta that says what was used, and at which price."""

    usage: Usage | None = None
    price: str = ""
    price_factor: str = "1"
    service_tier: str | None = None


_decoder = msgspec.json.Decoder(_Meta)


class Session(Struct, frozen=True, kw_only=True):
    """One session; times in microseconds since 1970, amounts in nano-units.

    `saved`: what the input that came from a cache would have cost more. `pause`: the longest one between two calls.
    """

    id: str
    first: int
    last: int
    calls: int
    cost: int
    models: Sequence[str]
    tokens_in: int
    tokens_cached: int
    tokens_out: int
    pause: int
    saved: int


def by_session(lines: Sequence[SessionLine]) -> list[list[SessionLine]]:
    """The lines of each session, the session that was used last first."""
    found: dict[str, list[SessionLine]] = {}
    for line in lines:
        found.setdefault(line.session, []).append(line)
    return list(found.values())


def price_versions(lines: Sequence[SessionLine]) -> set[str]:
    """The price tables that are needed to say what a cache saved."""
    return {_meta(line).price for line in lines} - {""}


def session_of(lines: Sequence[SessionLine], prices: Mapping[str, Price]) -> Session:
    """The session of these lines, which are all of it and the newest first; `prices` by version."""
    calls = [line for line in lines if line.is_call]
    used = [meta for meta in map(_meta, calls) if meta.usage is not None]
    usages = [meta.usage for meta in used if meta.usage is not None]
    pauses = [later.at - earlier.at for later, earlier in pairwise(calls)]
    return Session(
        id=lines[0].session,
        first=lines[-1].at,
        last=lines[0].at,
        calls=len(calls),
        cost=-sum(line.amount for line in lines),
        models=sorted({line.model for line in calls} - {""}),
        tokens_in=sum(usage.tokens_in for usage in usages),
        tokens_cached=sum(usage.in_cached for usage in usages),
        tokens_out=sum(usage.tokens_out for usage in usages),
        pause=max(pauses, default=0),
        saved=sum(_saved(meta, prices) for meta in used),
    )


def _saved(meta: _Meta, prices: Mapping[str, Price]) -> int:
    """What the cached input of a call would have cost more; 0 without its price."""
    usage, price = meta.usage, prices.get(meta.price)
    if price is None or usage is None or not usage.in_cached:
        return 0
    uncached = structs.replace(usage, in_text=usage.in_text + usage.in_cached, in_cached=0)
    tier, factor = meta.service_tier or None, Fraction(meta.price_factor)
    whole, paid = (itemised_cost(price, one, service_tier=tier, price_factor=factor).cost for one in (uncached, usage))
    return whole - paid


def _meta(line: SessionLine) -> _Meta:
    try:
        return _decoder.decode(line.meta) if line.meta else _Meta()
    except msgspec.MsgspecError:
        return _Meta()  # of another version

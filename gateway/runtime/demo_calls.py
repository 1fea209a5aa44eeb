"""The invented calls of `gateway serve --demo`: some days of an account, with the usage and the prices of its models.

Each call has the tag `demo=true`. Their number follows the hour of the day and the weekday.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta

import msgspec
from msgspec import Struct

from gateway.amounts import NANO, format_amount
from gateway.billing.price import Price
from gateway.billing.usage import ImageCount, Usage
from gateway.config.settings import Settings
from gateway.ledger.backdated import PastLine
from gateway.ledger.line_meta import LineMeta

DAYS = 7
TAGS = {"demo": "true"}
NOTE = "demo data"
LATEST = timedelta(minutes=2)  # before now, so that no invented call is later than a real one
FAILURES = ("upstream_timeout", "upstream_error", "rate_limit_exceeded")
FAILED = 0.02  # of the calls
CHATS = ("fake-chat", "fake-writer")
LEFT = 0.01  # of the chats, whose client leaves early
LONG_PROMPT = Usage(in_text=96_400, out_text=1_850)  # of one chat, which costs more than expected
LONG_PROMPT_BEFORE = timedelta(hours=20)
HOURS = (1, 1, 1, 1, 1, 2, 3, 5, 8, 10, 10, 9, 7, 9, 10, 10, 9, 7, 5, 4, 3, 3, 2, 1)  # the weights of the hours in UTC

_encoder = msgspec.json.Encoder()


class Caller(Struct, frozen=True):
    """A key with its habits. `models`: weights by model; `a_day`: calls on an average day."""

    key: str
    user: str
    team: str
    a_day: int
    models: Mapping[str, int]


class _Call(Struct, frozen=True):
    at: datetime
    caller: Caller
    model: str
    usage: Usage
    outcome: str = "ok"


def lines_of(
    settings: Settings, group: str, callers: Sequence[Caller], *, opening: int, now: datetime, seed: str
) -> list[PastLine]:
    """The lines of an account of this group; `opening` is its balance in nano-units.

    A credit at their end brings the balance back to it. `seed` decides about everything that is random.
    """
    chance = random.Random(seed)  # noqa: S311 - nothing secret
    factor = settings.groups[group].price_factor
    calls = sorted((call for caller in callers for call in _calls_of(caller, now, chance)), key=lambda call: call.at)
    begin = now - timedelta(days=DAYS, hours=1)
    note = _encoder.encode({"note": NOTE}).decode()
    lines = [PastLine(_ms(begin), "open", "open", opening, note)]
    lines += (_line(settings, factor, call, chance) for call in calls)
    credit = -sum(line.amount for line in lines[1:])
    return [*lines, PastLine(_ms(now - LATEST), f"op_{chance.randbytes(16).hex()}", "topup", credit, note)]


def prices_of(settings: Settings) -> list[Price]:
    """The list prices that the lines name."""
    return [_price(settings, name) for name in settings.models]


def _calls_of(caller: Caller, now: datetime, chance: random.Random) -> Iterator[_Call]:
    models, weights = list(caller.models), list(caller.models.values())
    for hours in range(DAYS * 24, 0, -1):
        begin = now - timedelta(hours=hours)
        expected = caller.a_day * HOURS[begin.hour] / sum(HOURS) * (0.4 if begin.weekday() >= 5 else 1.2)
        for _ in range(int(expected + chance.random())):
            at = min(begin + timedelta(seconds=chance.uniform(0, 3600)), now - LATEST * 2)
            [model] = chance.choices(models, weights)
            if chance.random() < FAILED:
                yield _Call(at, caller, model, Usage(requests=0), chance.choice(FAILURES))
            else:
                left = model in CHATS and chance.random() < LEFT
                yield _Call(at, caller, model, _USAGES[model](chance), "client_closed" if left else "ok")
    if caller.user and "fake-chat" in caller.models:
        yield _Call(now - LONG_PROMPT_BEFORE, caller, "fake-chat", LONG_PROMPT)


def _line(settings: Settings, factor: int, call: _Call, chance: random.Random) -> PastLine:
    price, caller, usage = _price(settings, call.model), call.caller, call.usage
    is_billed = usage.requests > 0
    cost = price.times(factor).cost(usage) if is_billed else 0
    milliseconds = int(chance.uniform(180, 400) + usage.tokens_out * chance.uniform(6, 14))
    is_chat = call.model in CHATS and is_billed
    meta = LineMeta(
        key=caller.key,
        model=call.model,
        provider="fake",
        upstream=call.model,
        usage=usage,
        attempts=1 if is_billed else 2,
        outcome=call.outcome,
        price=price.version,
        hold=2 * cost + 1_000_000,
        endpoint=settings.models[call.model].endpoints[0],
        duration_ms=30_000 if call.outcome == "upstream_timeout" else milliseconds,
        first_token_ms=int(chance.uniform(90, 400)) if is_chat else 0,
        user=caller.user,
        tags={**TAGS, "team": caller.team},
        price_factor=format_amount(factor) if factor != NANO else "",
    )
    text = _encoder.encode(meta).decode()
    request_id = f"req_{chance.randbytes(16).hex()}"
    return PastLine(_ms(call.at), request_id, "use", -cost, text, key=caller.key, user=caller.user)


def _price(settings: Settings, model: str) -> Price:
    prices = settings.models[model].price
    return Price.of(prices[0] if prices else None)


def _ms(at: datetime) -> int:
    return int(at.astimezone(UTC).timestamp() * 1000)


def _chat(chance: random.Random) -> Usage:
    prompt = int(chance.lognormvariate(7.0, 0.8))
    cached = prompt // 2 if chance.random() < 0.3 else 0  # half of the prompt comes from the provider's cache
    return Usage(in_text=prompt - cached, in_cached=cached, out_text=int(chance.lognormvariate(5.5, 0.7)))


_USAGES: Mapping[str, Callable[[random.Random], Usage]] = {
    "fake-chat": _chat,
    "fake-writer": _chat,
    "fake-embedding": lambda chance: Usage(in_text=chance.randint(200, 6_000)),
    "fake-image": lambda chance: Usage(
        images=ImageCount(1, "1024x1024", chance.choice(("low", "low", "medium", "high")))
    ),
    "fake-speech": lambda chance: Usage(characters=chance.randint(80, 900)),
    "fake-transcription": lambda chance: Usage(audio_seconds_in=float(chance.randint(20, 900))),
}

"""The invented requests of `gateway serve --demo`: what the keys of an account ask for in some days.

Their number follows the hour of the day and the weekday.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta

from msgspec import Struct

from gateway.billing.usage import ImageCount, Usage

DAYS = 7
LATEST = timedelta(minutes=2)  # before now, so that no invented call is later than a real one
FAILURES = ("upstream_timeout", "upstream_error", "slow_down")
FAILED = 50  # of so many calls of a key one fails
CHATS = ("fake-chat", "fake-writer")
LEFT = 100  # of so many calls of a key one has a client that leaves early, if it is a chat
LONG_PROMPT = Usage(in_text=96_400, out_text=1_850)  # of one chat, which costs more than expected
LONG_PROMPT_BEFORE = timedelta(hours=20)
BURSTS_BEFORE = (timedelta(days=5, hours=3), timedelta(days=2, hours=1), timedelta(hours=5))  # of a key with a limit
MISTAKES_BEFORE = (timedelta(days=3, hours=4), timedelta(hours=8))
HOURS = (1, 1, 1, 1, 1, 2, 3, 5, 8, 10, 10, 9, 7, 9, 10, 10, 9, 7, 5, 4, 3, 3, 2, 1)  # the weights of the hours in UTC


class Caller(Struct, frozen=True):
    """A key with its habits. `models`: weights by model; `a_day`: calls on an average day; `rpm`: its limit or 0."""

    key: str
    user: str
    team: str
    a_day: int
    models: Mapping[str, int]
    rpm: int = 0
    makes_mistakes: bool = False


class Request(Struct, frozen=True):
    """A request, with what it uses if it is admitted."""

    at: datetime
    caller: Caller
    model: str  # "" for a name that no model has
    usage: Usage
    outcome: str = "ok"


def requests_of(caller: Caller, now: datetime, chance: random.Random) -> Iterator[Request]:
    """The requests of a key, in no order.

    A call fails by its number and not by chance, so that each past has failed calls.
    """
    number = 0
    models, weights = list(caller.models), list(caller.models.values())
    for hours in range(DAYS * 24, 0, -1):
        begin = now - timedelta(hours=hours)
        expected = caller.a_day * HOURS[begin.hour] / sum(HOURS) * (0.4 if begin.weekday() >= 5 else 1.2)
        for _ in range(int(expected + chance.random())):
            at = min(begin + timedelta(seconds=chance.uniform(0, 3600)), now - LATEST * 2)
            [model] = chance.choices(models, weights)
            number += 1
            if number % FAILED == FAILED // 2:
                yield Request(at, caller, model, Usage(requests=0), chance.choice(FAILURES))
            else:
                left = model in CHATS and number % LEFT == LEFT // 2
                yield Request(at, caller, model, _USAGES[model](chance), "client_closed" if left else "ok")
    if caller.user and "fake-chat" in caller.models:
        yield Request(now - LONG_PROMPT_BEFORE, caller, "fake-chat", LONG_PROMPT)
    yield from _bursts(caller, now, chance)
    if caller.makes_mistakes:
        yield from (Request(now - before, caller, "", Usage(requests=0)) for before in MISTAKES_BEFORE)


def _bursts(caller: Caller, now: datetime, chance: random.Random) -> Iterator[Request]:
    """Some seconds with more requests than the key may send in a minute."""
    for before in BURSTS_BEFORE if caller.rpm else ():
        for _ in range(caller.rpm + chance.randint(2, 6)):
            at = now - before + timedelta(seconds=chance.uniform(0, 4))
            yield Request(at, caller, "fake-chat", _chat(chance))


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

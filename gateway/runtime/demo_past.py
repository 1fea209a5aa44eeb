"""The invented past of an account of `gateway serve --demo`: its ledger lines, and its refused requests.

The past is one that the gateway could have written. A request is refused where the limit of its key or the balance
refuses it; then it has no ledger line, and is counted like a refusal of a worker. A call that failed at its upstream
in two attempts has a line of the amount 0, and some calls are served by the second attempt. Each call has the tag
`demo=true`.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

import msgspec
from msgspec import Struct

from gateway.amounts import NANO, format_amount
from gateway.billing.price import Price
from gateway.billing.price_terms import OwnPrice
from gateway.config.settings import Settings
from gateway.errors import BalanceExhausted, ModelNotPermitted, RequestRateLimited
from gateway.errors.attempt_answer import AttemptAnswer
from gateway.ledger.backdated import PastLine
from gateway.ledger.line_meta import LineMeta
from gateway.ledger.refusal_counts import HOUR, RefusalBatch
from gateway.runtime.demo_calls import CHATS, DAYS, LATEST, Caller, Request, requests_of

TAGS = {"demo": "true"}
NOTE = "demo data"
OWN_PRICES_FOR = timedelta(days=4)  # for so long the account has its own prices
CREDIT = 5 * NANO  # what the operator gives to an account that has run dry
CREDIT_AFTER = timedelta(hours=8)  # after the first refused request
CENT = NANO // 100
MINUTE = 60_000  # milliseconds
RETRIED = 40  # of so many calls of a chat model one is served by the second attempt
FAILED_AFTER = 60  # milliseconds that the first attempt of such a call takes
PAUSE = 100  # milliseconds between two attempts

#: What the two attempts of a failed call answered, by the outcome, each with its HTTP status.
FAILED = {
    "upstream_timeout": (("upstream_error", 500), ("upstream_timeout", 0)),
    "upstream_error": (("upstream_error", 502), ("upstream_error", 502)),
    "slow_down": (("slow_down", 429), ("slow_down", 429)),
}

_encoder = msgspec.json.Encoder()
_NOTE = _encoder.encode({"note": NOTE}).decode()


class Terms(Struct, frozen=True):
    """What an account is asked to pay: by its group, and for the last `OWN_PRICES_FOR` by prices of its own."""

    group: str
    own: Mapping[str, OwnPrice] = {}  # by model


class Past(Struct, frozen=True):
    """The ledger lines of an account, and its refused requests."""

    lines: list[PastLine]
    refusals: list[RefusalBatch]


class _Quoted(Struct, frozen=True):
    """A request of a model with the cost that it has if it is admitted."""

    request: Request
    price: Price
    cost: int

    @property
    def hold(self) -> int:
        return 2 * self.cost + 1_000_000


def past_of(
    settings: Settings,
    account: str,
    terms: Terms,
    callers: Sequence[Caller],
    *,
    balance: int,
    runs_dry: bool,
    now: datetime,
) -> Past:
    """The past of an account whose balance is `balance` nano-units at its end, after a credit.

    An account that runs dry has opened with less than its requests cost. The same arguments make the same past.
    """
    chance = random.Random(account)  # noqa: S311 - nothing secret
    requests = sorted((one for caller in callers for one in requests_of(caller, now, chance)), key=lambda one: one.at)
    quoted = [_quoted(settings, terms, request, now) for request in requests]
    opening = sum(one.cost for one in quoted) * 3 // 5 // CENT * CENT if runs_dry else balance
    walk = _Walk(settings, account, chance, opening, now - timedelta(days=DAYS, hours=1))
    for one in quoted:
        walk.take(one)
    walk.credit(now - LATEST, balance - walk.balance)
    return Past(walk.lines, walk.batches())


def prices_of(settings: Settings, own: Mapping[str, OwnPrice]) -> list[Price]:
    """The list prices, and the own prices of an account, as far as lines name them."""
    return [
        *(_price(settings, OwnPrice(), model) for model in settings.models),
        *(_price(settings, price, model) for model, price in own.items()),
    ]


class _Walk:
    """Goes through the requests in the order of time, as the admission would have."""

    def __init__(self, settings: Settings, account: str, chance: random.Random, opening: int, begin: datetime) -> None:
        self._settings = settings
        self._account = account
        self._chance = chance
        self._levels: dict[str, tuple[float, datetime]] = {}  # of the limits of keys
        self._refusals: dict[int, dict[tuple[int, str, str, str, str], int]] = {}  # by minute
        self._credit_at: datetime | None = None
        self._chats = 0  # that were served
        self.balance = opening
        self.lines = [PastLine(_ms(begin), "open", "open", opening, _NOTE)]

    def take(self, one: _Quoted) -> None:
        """Add the line of an admitted request, or count the refusal."""
        request = one.request
        if self._credit_at is not None and request.at >= self._credit_at:
            self.credit(self._credit_at, CREDIT)
            self._credit_at = None
        if not request.model:
            self._refuse(request, ModelNotPermitted.default_code)
        elif not self._is_within_limit(request):
            self._refuse(request, RequestRateLimited.default_code)
        elif one.hold > self.balance:
            self._refuse(request, BalanceExhausted.default_code)
            self._credit_at = self._credit_at or request.at + CREDIT_AFTER
        else:
            self._pour(request)
            self.balance -= one.cost
            is_chat = request.model in CHATS and request.usage.requests > 0
            self._chats += is_chat
            is_retried = is_chat and self._chats % RETRIED == 0
            self.lines.append(_line(self._settings, one, self._chance, is_retried=is_retried))

    def credit(self, at: datetime, amount: int) -> None:
        """Add a credit by the operator."""
        self.balance += amount
        self.lines.append(PastLine(_ms(at), f"op_{self._chance.randbytes(16).hex()}", "topup", amount, _NOTE))

    def batches(self) -> list[RefusalBatch]:
        """The refusals as a worker sends them: the counts of a minute together."""
        return [
            RefusalBatch(self._chance.randbytes(8).hex(), [(*label, requests) for label, requests in counts.items()])
            for _, counts in sorted(self._refusals.items())
        ]

    def _is_within_limit(self, request: Request) -> bool:
        return not request.caller.rpm or self._level(request) + 1 <= request.caller.rpm

    def _pour(self, request: Request) -> None:
        self._levels[request.caller.key] = self._level(request) + 1, request.at

    def _level(self, request: Request) -> float:
        """The requests of the key that count, as `bucket.lua` counts them."""
        level, before = self._levels.get(request.caller.key, (0.0, request.at))
        return max(0.0, level - (request.at - before).total_seconds() * request.caller.rpm / 60)

    def _refuse(self, request: Request, code: str) -> None:
        milliseconds = _ms(request.at)
        label = (milliseconds // 1000 // HOUR, self._account, request.caller.key, request.model, code)
        counts = self._refusals.setdefault(milliseconds // MINUTE, {})
        counts[label] = counts.get(label, 0) + 1


def _quoted(settings: Settings, terms: Terms, request: Request, now: datetime) -> _Quoted:
    if not request.model:
        return _Quoted(request, Price(), 0)
    listed = OwnPrice(settings.groups[terms.group].price_factor)
    own = terms.own.get(request.model, listed) if request.at >= now - OWN_PRICES_FOR else listed
    price = _price(settings, own, request.model)
    return _Quoted(request, price, price.cost(request.usage) if request.usage.requests else 0)


def _price(settings: Settings, own: OwnPrice, model: str) -> Price:
    prices = settings.models[model].price
    return own.of(prices[0] if prices else None)


def _line(settings: Settings, one: _Quoted, chance: random.Random, *, is_retried: bool) -> PastLine:
    request, caller, usage = one.request, one.request.caller, one.request.usage
    is_served = usage.requests > 0
    milliseconds = int(chance.uniform(180, 400) + usage.tokens_out * chance.uniform(6, 14))
    is_chat = request.model in CHATS and is_served
    first_token = int(chance.uniform(90, 400)) if is_chat else 0
    if is_retried:
        milliseconds, first_token = (time + FAILED_AFTER + PAUSE for time in (milliseconds, first_token))
    if request.outcome == "upstream_timeout":
        milliseconds = 30_000
    meta = LineMeta(
        key=caller.key,
        model=request.model,
        provider="fake",
        upstream=request.model,
        usage=usage,
        attempts=1 if is_served and not is_retried else 2,
        outcome=request.outcome,
        price=one.price.version,
        hold=one.hold,
        endpoint=settings.models[request.model].endpoints[0],
        duration_ms=milliseconds,
        first_token_ms=first_token,
        user=caller.user,
        tags={**TAGS, "team": caller.team},
        price_factor=format_amount(one.price.factor) if one.price.factor != NANO else "",
        answers=_answers(request, milliseconds) if is_retried or not is_served else None,
    )
    text = _encoder.encode(meta).decode()
    request_id = f"req_{chance.randbytes(16).hex()}"
    return PastLine(_ms(request.at), request_id, "use", -one.cost, text, key=caller.key, user=caller.user)


def _answers(request: Request, milliseconds: int) -> tuple[AttemptAnswer, ...]:
    """What the two attempts of the call answered."""
    codes = FAILED.get(request.outcome, (("upstream_error", 502), (request.outcome, 200)))
    times = FAILED_AFTER, milliseconds - FAILED_AFTER - PAUSE
    return tuple(AttemptAnswer("fake", request.model, *code, time) for code, time in zip(codes, times, strict=True))


def _ms(at: datetime) -> int:
    return int(at.astimezone(UTC).timestamp() * 1000)

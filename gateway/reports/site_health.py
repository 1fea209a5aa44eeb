"""How the whole site does in a range: calls, times, failures, refusals and money, from the sums over all accounts.

What is read depends on the models, providers and hours, and not on the number of accounts or calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct
from sqlalchemy.engine import Connection

from gateway.admin.actor import Actor
from gateway.admin.times import from_micros, to_micros
from gateway.admin.transactions import Transactions
from gateway.history.calendar import HOUR
from gateway.history.histogram import Times, durations, first_tokens
from gateway.history.refusals import RefusalQuery, site_refusals
from gateway.history.site_money import Movement, read_movements
from gateway.history.usage_sums import ERRORS, Period, Sums, UsageQuery, read_usage, together
from gateway.ledger.line_meta import NO_ERRORS

MOST_CAUSES = 8


class Point(Struct, frozen=True):
    """The calls of one period."""

    start: datetime
    calls: int
    failed: int
    first_token: Times | None


class Served(Struct, frozen=True):
    """The calls of a provider, or of all."""

    calls: int
    failed: int
    duration: Times | None
    first_token: Times | None


class Cause(Struct, frozen=True):
    """Calls with one outcome, or requests that were refused with one code."""

    code: str
    count: int


class SiteHealth(Struct, frozen=True):
    """From `since` to before `until`, in whole hours; amounts are nano-units."""

    since: datetime
    until: datetime
    period: Period
    served: Served
    points: list[Point]
    providers: dict[str, Served]
    failures: list[Cause]  # the most frequent ones
    refusals: list[Cause]
    refused: int
    charged: int
    uncollected: int
    upstream_cost: int
    upstream_cost_known: int  # calls
    movements: list[Movement]

    @property
    def margin(self) -> int:
        """What was charged, less what is known of its cost."""
        return self.charged - self.upstream_cost

    @property
    def credits(self) -> int:
        """What was added to accounts."""
        return sum(one.credits for one in self.movements)

    @property
    def debits(self) -> int:
        """What was taken from accounts, apart from calls."""
        return sum(one.debits for one in self.movements)


class ProviderHealth(Struct, frozen=True):
    """The calls of one provider in a range."""

    since: datetime
    until: datetime
    period: Period
    served: Served
    points: list[Point]
    models: dict[str, Served]
    failures: list[Cause]


async def site_health(
    actor: Actor, transactions: Transactions, since: datetime, until: datetime, period: Period
) -> SiteHealth:
    """The figures of the site; needs the scope `read`."""
    actor.require("read")
    return await transactions.read(_read_site, *_hours(since, until), period)


async def provider_health(
    actor: Actor, transactions: Transactions, provider: str, since: datetime, until: datetime, period: Period
) -> ProviderHealth:
    """The figures of a provider; needs the scope `read`."""
    actor.require("read")
    return await transactions.read(_read_provider, *_hours(since, until), period, provider)


def _hours(since: datetime, until: datetime) -> tuple[int, int]:
    return to_micros(since) // HOUR * HOUR, -(-to_micros(until) // HOUR) * HOUR


def _read_site(connection: Connection, since: int, until: int, period: Period) -> SiteHealth:
    by_outcome = read_usage(connection, UsageQuery(since=since, until=until, dimensions=("outcome",)))
    by_provider = read_usage(connection, UsageQuery(since=since, until=until, dimensions=("provider",)))
    total = _together([row.sums for row in by_outcome])
    refused = site_refusals(connection, RefusalQuery(since=from_micros(since), until=from_micros(until)))
    return SiteHealth(
        since=from_micros(since),
        until=from_micros(until),
        period=period,
        served=_served(total),
        points=_points(connection, since, until, period),
        providers={row.labels[0]: _served(row.sums) for row in by_provider if row.labels[0]},
        failures=_causes({row.labels[0]: row.sums["calls"] for row in by_outcome if row.labels[0] not in NO_ERRORS}),
        refusals=_causes(refused),
        refused=sum(refused.values()),
        charged=total["cost"],
        uncollected=total["uncollected"],
        upstream_cost=total["upstream_cost"],
        upstream_cost_known=total["upstream_cost_known"],
        movements=read_movements(connection, since, until),
    )


def _read_provider(connection: Connection, since: int, until: int, period: Period, provider: str) -> ProviderHealth:
    filters = {"provider": [provider]}
    by_outcome = read_usage(connection, UsageQuery(since=since, until=until, dimensions=("outcome",), filters=filters))
    by_model = read_usage(connection, UsageQuery(since=since, until=until, dimensions=("model",), filters=filters))
    return ProviderHealth(
        since=from_micros(since),
        until=from_micros(until),
        period=period,
        served=_served(_together([row.sums for row in by_outcome])),
        points=_points(connection, since, until, period, filters),
        models={row.labels[0]: _served(row.sums) for row in by_model},
        failures=_causes({row.labels[0]: row.sums["calls"] for row in by_outcome if row.labels[0] not in NO_ERRORS}),
    )


def _points(
    connection: Connection, since: int, until: int, period: Period, filters: dict[str, list[str]] | None = None
) -> list[Point]:
    """A point for each period, also for those without a call."""
    query = UsageQuery(since=since, until=until, period=period, filters=filters or {})
    found = {row.period: row.sums for row in read_usage(connection, query)}
    length = HOUR if period == "hour" else 24 * HOUR
    starts = range(since // length * length, until, length)
    sums = ((start, found.get(start, Sums())) for start in starts)
    return [Point(from_micros(start), one["calls"], one[ERRORS], first_tokens(one)) for start, one in sums]


def _served(sums: Sums) -> Served:
    return Served(sums["calls"], sums[ERRORS], durations(sums), first_tokens(sums))


def _together(sums: Sequence[Sums]) -> Sums:
    found = Sums()
    for one in sums:
        for name, value in one.items():
            found[name] = together(name, found[name], value)
    return found


def _causes(found: dict[str, int]) -> list[Cause]:
    """The most frequent ones, and all others as one."""
    ranked = sorted(found.items(), key=lambda pair: (-pair[1], pair[0]))
    causes = [Cause(code, count) for code, count in ranked[:MOST_CAUSES]]
    rest = sum(count for _, count in ranked[MOST_CAUSES:])
    return [*causes, *([Cause("others", rest)] if rest else [])]

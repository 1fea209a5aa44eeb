"""Usage reports: sums of calls, tokens, money and times for any range, grouped by any of several dimensions.

::

    query = ReportQuery(since=…, until=…, group_by=["account", "day"], filters={"model": ["m"]})
    report = await Reports(transactions).report(actor, query)
    report.json_form()

An operator sees everything, a token its account, an owner the accounts that they own. A member sees only their own
usage of an account. Ranges are whole hours in UTC, with tags whole days: a range is extended to them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

import sqlalchemy as sa
from msgspec import Struct, structs
from sqlalchemy.engine import Connection

from gateway.admin.actor import Actor
from gateway.admin.times import from_micros, to_micros
from gateway.admin.transactions import Transactions
from gateway.database.people_tables import users
from gateway.errors import Forbidden, InvalidValue
from gateway.history.calendar import DAY, HOUR
from gateway.history.largest_usage import Largest, has_largest, read_largest
from gateway.history.session_sums import read_sessions
from gateway.history.usage_sums import (
    DIMENSIONS,
    MOST_ROWS,
    PERIODS,
    TAGGED,
    TooManyRows,
    UsageQuery,
    UsageRow,
    read_usage,
    too_many_rows,
)
from gateway.reports.usage_report import Report

MOST_VALUES = 500  # of one filter
LONGEST = 100 * 366 * 24 * HOUR
AT_ONCE = 500  # users looked up in one query
SESSION = "session"  # a filter that the sums do not have: then the lines of the sessions are read


class ReportQuery(Struct, frozen=True, kw_only=True):
    """From `since` to before `until`; `group_by` has dimensions and at most one of hour, day and month.

    A report of more than `most` rows is refused.
    """

    since: datetime
    until: datetime
    group_by: Sequence[str] = ()
    filters: Mapping[str, Sequence[str]] = {}  # permitted values by dimension
    margin: bool = False  # with what the calls cost the operator
    most: int = MOST_ROWS


class Reports:
    """Reads reports from the sums in the database."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def report(self, actor: Actor, query: ReportQuery, *, limit: int | None = None) -> Report:
        """The report as far as the actor may see it; InvalidValue for a query that is not possible.

        With a `limit` it has so many of the most expensive rows, and the sums of the others.
        """
        if limit is not None:
            return await self._limited(actor, query, limit)
        usage = _usage_query(query)
        filters = restricted(actor, usage.filters)
        if query.margin:
            _require_margin(actor)
        filters = {name: values for name, values in filters.items() if name != SESSION}
        usage = structs.replace(usage, filters=filters)
        rows, emails = await self._transactions.read(_read, usage, query.filters.get(SESSION, ()))
        return Report(
            since=from_micros(usage.since),
            until=from_micros(usage.until),
            dimensions=usage.dimensions,
            period=usage.period,
            rows=rows,
            emails=emails,
            margin=query.margin,
        )

    async def _limited(self, actor: Actor, query: ReportQuery, limit: int) -> Report:
        """`largest`; InvalidValue where there is none."""
        try:
            return await self.largest(actor, query, limit)
        except TooManyRows:
            text = "A limit needs groups, and goes with none of hour, day, month, tag and session"
            raise InvalidValue(text, param="limit") from None

    async def largest(self, actor: Actor, query: ReportQuery, rows: int) -> Report:
        """The most expensive rows, with the sums of the others; TooManyRows for periods, tags and sessions."""
        usage = _usage_query(query)
        usage = structs.replace(usage, filters=restricted(actor, usage.filters))
        if query.margin:
            _require_margin(actor)
        if SESSION in query.filters or not has_largest(usage):
            raise too_many_rows(query.most)
        found, emails = await self._transactions.read(_read_largest, usage, rows)
        return Report(
            since=from_micros(usage.since),
            until=from_micros(usage.until),
            dimensions=usage.dimensions,
            period=None,
            rows=found.rows,
            emails=emails,
            margin=query.margin,
            others=found.others,
        )


def restricted(actor: Actor, filters: Mapping[str, Sequence[str]]) -> Mapping[str, Sequence[str]]:
    """The filters, with those that keep the actor to what they may see; Forbidden if that is not what was asked for."""
    asked = list(filters.get("account", ()))
    if actor.kind != "user" or actor.may("read"):
        accounts = asked or ([actor.account] if actor.account else [])
        if not all(actor.may("read", account) for account in accounts or [""]):
            raise Forbidden("This needs the scope 'read'")
        return {**filters, "account": accounts} if accounts else filters
    accounts = asked or [name for name in actor.memberships if actor.owns(name)] or list(actor.memberships)
    if not accounts or not all(account in actor.memberships for account in accounts):
        raise Forbidden("This needs an account that you belong to")
    if all(actor.owns(account) for account in accounts):
        return {**filters, "account": accounts}
    if list(filters.get("user", [actor.id])) != [actor.id]:
        raise Forbidden("This needs an owner of the account")
    return {**filters, "account": accounts, "user": [actor.id]}


def _require_margin(actor: Actor) -> None:
    if not actor.may("read"):
        raise Forbidden("A margin report needs the scope 'read' for the site")


def _usage_query(query: ReportQuery) -> UsageQuery:
    by_tag = "tag" in query.group_by or "tag" in query.filters
    whole = DAY if by_tag else HOUR
    since = to_micros(query.since) // whole * whole
    until = -(-to_micros(query.until) // whole) * whole
    if not since < until <= since + LONGEST:
        raise InvalidValue("The range must end after its beginning, and at most a hundred years later", param="to")
    known = (*DIMENSIONS, *PERIODS)
    for name in query.group_by:
        if name not in known:
            raise InvalidValue(f"{name!r} is nothing to group by; known: {', '.join(known)}", param="group_by")
    periods = [period for period in PERIODS if period in query.group_by]
    if len(periods) > 1 or len(set(query.group_by)) < len(query.group_by):
        raise InvalidValue("Group by at most one of hour, day and month, and by nothing twice", param="group_by")
    for name, values in query.filters.items():
        if name not in (*DIMENSIONS, SESSION):
            known_filters = ", ".join((*DIMENSIONS, SESSION))
            raise InvalidValue(f"{name!r} is nothing to filter by; known: {known_filters}", param=name)
        if not 0 < len(values) <= MOST_VALUES:
            raise InvalidValue(f"A filter has 1 to {MOST_VALUES} values", param=name)
    if by_tag and SESSION in query.filters:
        raise InvalidValue("With sessions, neither group nor filter by tag", param="tag")
    if by_tag and not {*query.group_by, *query.filters} <= {*TAGGED, "day", "month"}:
        beside = ", ".join(sorted(TAGGED - {"tag"}))
        raise InvalidValue(f"With tags, group and filter by {beside}, day and month only", param="group_by")
    if "tag" not in query.group_by and len({value.partition("=")[0] for value in query.filters.get("tag", ())}) > 1:
        # The sums are by tag, and do not know which calls have two of them.
        raise InvalidValue("A call with several tags would count several times: name one, or group by tag", param="tag")
    return UsageQuery(
        since=since,
        until=until,
        dimensions=tuple(name for name in query.group_by if name not in PERIODS),
        period=periods[0] if periods else None,
        filters=query.filters,
        most=query.most,
    )


def _read(connection: Connection, query: UsageQuery, sessions: Sequence[str]) -> tuple[list[UsageRow], dict[str, str]]:
    rows = read_sessions(connection, query, sessions) if sessions else read_usage(connection, query)
    return rows, _emails_of(connection, query, rows)


def _emails_of(connection: Connection, query: UsageQuery, rows: Sequence[UsageRow]) -> dict[str, str]:
    if "user" not in query.dimensions:
        return {}
    place = query.dimensions.index("user")
    return _emails(connection, sorted({row.labels[place] for row in rows}))


def _read_largest(connection: Connection, query: UsageQuery, rows: int) -> tuple[Largest, dict[str, str]]:
    found = read_largest(connection, query, rows)
    return found, _emails_of(connection, query, found.rows)


def _emails(connection: Connection, ids: Sequence[str]) -> dict[str, str]:
    """The e-mail by user id. A person who was erased has none."""
    found: dict[str, str] = {}
    for start in range(0, len(ids), AT_ONCE):
        query = sa.select(users.c.id, users.c.email).where(users.c.id.in_(ids[start : start + AT_ONCE]))
        found |= {row.id: row.email for row in connection.execute(query)}
    return found

"""What reports cost over a large history: fills a database by SQL alone, then times each report and page.

    python benchmarks/micro_reports.py                        # 10,000,000 lines in SQLite, in a temporary folder
    python benchmarks/micro_reports.py --postgres URL         # in an empty PostgreSQL database
    python benchmarks/micro_reports.py --file FILE            # in this SQLite file, which is kept
    python benchmarks/micro_reports.py --accounts 1000 --models 8 --days 365
    python benchmarks/micro_reports.py --rows 1000000 --accounts 4 --keys 25 --models 8 --days 30

Each time is the best and the worst of five, with everything that `gateway report --json` does after it has opened the
database. The CPU is that of this process: all of SQLite's, and none of PostgreSQL's. A database that has lines already
is only read. Ten million rows take several minutes and 8 GB of disk.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import sqlalchemy as sa

from gateway.admin.times import from_micros
from gateway.billing.usage import Usage
from gateway.database.address import DatabaseAddress, postgres_address
from gateway.database.engine import Database
from gateway.database.tables import (
    DURATION_CELLS,
    FIRST_TOKEN_CELLS,
    MAXIMA,
    MEASURES,
    ROLLUPS,
    TIMES_MS,
    USER,
    import_state,
    ledger_lines,
    usage_daily,
    usage_hourly,
    usage_monthly,
    usage_site_daily,
    usage_site_hourly,
)
from gateway.history.calendar import DAY, HOUR, month_of, next_month
from gateway.history.call_pages import CallFilter, read_calls
from gateway.history.call_search import CallSearch, search_calls
from gateway.history.import_state import ImportState
from gateway.history.month_lines import read_month
from gateway.history.reader import read_newest_lines, read_request
from gateway.history.usage_sums import UsageQuery, read_usage
from gateway.ledger.line_meta import LineMeta
from gateway.reports.usage_report import Report

RARE = 50_000  # calls of an account
STEP = 500_000  # lines filled in one transaction
COST = 1234  # nano-units of each call
TIMES = 5


class Site(msgspec.Struct, frozen=True):
    """The size of the history; it ends with the last whole day."""

    rows: int
    accounts: int
    models: int
    days: int
    keys: int  # of an account, each with a user; one more makes a call in `RARE`

    @property
    def end(self) -> int:
        """The first moment after it, in microseconds."""
        return time.time_ns() // 1000 // DAY * DAY

    @property
    def start(self) -> int:
        """Its first moment."""
        return self.end - self.days * DAY


def fill(database: Database, site: Site) -> None:
    """Write lines and sums as if the calls had been made at an even rate."""
    is_sqlite = database.address.file is not None
    turn = f"i / {site.accounts}"
    series = "(SELECT generate_series({0}, {1}) AS i)"
    key = f"""CASE WHEN {turn} % {RARE} = {RARE // 2} THEN 'rare-' || (i % {site.accounts})
        ELSE 'key-' || (i % {site.accounts}) || '-' || ({turn} / {site.models} % {site.keys}) END"""
    request, hash_, no = "md5(CAST(i AS TEXT))", r"'\x00'", "FALSE"
    if is_sqlite:
        series = "(WITH RECURSIVE s(i) AS (SELECT {0} UNION ALL SELECT i + 1 FROM s WHERE i < {1}) SELECT i FROM s)"
        request, hash_, no = "hex(i * 2654435761 % 4294967296)", "x'00'", "0"  # not in the order of the lines
    each = site.days * DAY // site.rows
    at = f"{site.start} + CAST(i AS BIGINT) * {each}"
    values = f"""'big-' || (i % {site.accounts}), {turn} + 1, '1-' || i, {at}, {request}, 'use', -{COST},
        10000000000 - ({turn} + 1) * {COST}, 0, {no}, '{meta()}', {hash_}, {key},
        'model-' || (({turn}) % {site.models}), '', 'openai', 'chat', 'ok', {no}, 1, 912, 234,
        100 + i * 7 % 5000, 20 + i * 3 % 900, 'of-' || {key}"""
    names = ", ".join(column.name for column in ledger_lines.columns if column.name in FILLED)
    for index in ledger_lines.indexes:  # made again afterwards: faster than to fill them in random order
        index.drop(database.engine)
    for first in range(0, site.rows, STEP):
        numbers = series.format(first, min(first + STEP, site.rows) - 1)
        query = f"INSERT INTO ledger_lines ({names}) SELECT {values} FROM {numbers} AS numbers"
        with database.writing() as connection:
            connection.exec_driver_sql(query if is_sqlite else query.replace("%", "%%"))
    for index in ledger_lines.indexes:
        index.create(database.engine)
    for table, period in ((usage_hourly, HOUR), (usage_daily, DAY), (usage_site_daily, DAY), (usage_site_hourly, HOUR)):
        fill_sums(database, table, period)
    fill_months(database, site)
    fill_states(database, site)
    with database.writing() as connection:
        connection.exec_driver_sql("ANALYZE")


FILLED = (
    "account", "seq", "stream_id", "at", "request_id", "kind", "amount", "balance", "uncollected", "late", "meta",
    "hash", "key_id", "model", "served_model", "provider", "endpoint", "outcome", "estimated", "attempts",
    "tokens_in", "tokens_out", "duration_ms", "first_token_ms", "user_id",
)  # fmt: skip


def meta() -> str:
    """The meta of each line; its size is that of a usual chat."""
    usage = Usage(in_text=912, out_text=234)
    line = LineMeta("key", "model", "openai", "gpt-4.1", usage, attempts=1, outcome="ok", price="0123456789ab")
    return msgspec.json.encode(line).decode()


def cells(column: sa.ColumnElement[int], names: tuple[str, ...], bounds: tuple[int, ...]) -> dict[str, object]:
    """The sums of a histogram's cells."""
    edges = (-1, *bounds, 10**9)
    inside = [sa.and_(column > low, column <= high) for low, high in pairwise(edges)]
    return {name: sa.func.sum(sa.case((one, 1), else_=0)) for name, one in zip(names, inside, strict=True)}


def fill_sums(database: Database, table: sa.Table, period: int) -> None:
    """The sums of the lines, by SQL."""
    lines, total = ledger_lines.c, sa.func.sum
    start = lines.at - lines.at % period
    labels = [lines[column.name] for column in list(table.primary_key.columns)[1:]]
    sums = {
        "calls": sa.func.count(),
        "cost": -total(lines.amount),
        "in_text": total(lines.tokens_in),
        "out_text": total(lines.tokens_out),
        "duration_ms": total(lines.duration_ms),
        "streams": sa.func.count(),
        "first_token_ms": total(lines.first_token_ms),
        **cells(lines.duration_ms, DURATION_CELLS, TIMES_MS),
        **cells(lines.first_token_ms, FIRST_TOKEN_CELLS, TIMES_MS),
        "duration_max_ms": sa.func.max(lines.duration_ms),
        "first_token_max_ms": sa.func.max(lines.first_token_ms),
    }
    user = {USER: sa.func.max(lines[USER])} if USER in table.columns else {}
    values = [sums.get(name, sa.literal_column("0")) for name in MEASURES]
    query = sa.select(start, *labels, *values, *user.values()).group_by(start, *labels)
    names = [column.name for column in (*list(table.primary_key.columns)[:1], *labels)] + [*MEASURES, *user]
    with database.writing() as connection:
        connection.execute(table.insert().from_select(names, query, include_defaults=False))


def fill_months(database: Database, site: Site) -> None:
    """The sums by month, from those by day."""
    days, month = usage_daily.c, month_of(site.start)
    labels = [days[column.name] for column in list(usage_daily.primary_key.columns)[1:]]
    names = [column.name for column in usage_monthly.columns]
    while month < site.end:
        sums: dict[str, sa.ColumnElement[int]] = {name: sa.func.sum(days[name]) for name in MEASURES}
        sums |= {name: sa.func.max(days[name]) for name in (*MAXIMA, USER)}
        values = [sums.get(name, days[name] if name != "month" else sa.literal_column(str(month))) for name in names]
        query = sa.select(*values).where(days.day >= month, days.day < next_month(month)).group_by(*labels)
        with database.writing() as connection:
            connection.execute(usage_monthly.insert().from_select(names, query, include_defaults=False))
        month = next_month(month)


def fill_states(database: Database, site: Site) -> None:
    """The import states."""
    lines = site.rows // site.accounts
    states = [
        ImportState(
            f"big-{number}", 0, "0-0", 10**10, b"", lines, "1-1", b"", b"\0", 10**10 - lines * COST, -lines * COST
        )
        for number in range(site.accounts)
    ]
    with database.writing() as connection:
        connection.execute(import_state.insert(), [msgspec.structs.asdict(state) for state in states])


def time_reports(database: Database, site: Site) -> None:
    """Print the times."""
    whole: dict[str, Any] = {"since": site.start, "until": site.end}
    ragged: dict[str, Any] = {"since": site.start + 5 * HOUR, "until": site.end - 7 * HOUR}
    one = {"account": ["big-1"]}
    queries = {
        "day × model": UsageQuery(**whole, dimensions=("model",), period="day"),
        "day × model, ends within a day": UsageQuery(**ragged, dimensions=("model",), period="day"),
        "account": UsageQuery(**whole, dimensions=("account",)),
        "account, ends within a day": UsageQuery(**ragged, dimensions=("account",)),
        "account × model": UsageQuery(**whole, dimensions=("account", "model")),
        "month × account": UsageQuery(**whole, dimensions=("account",), period="month"),
        "day × account": UsageQuery(**whole, dimensions=("account",), period="day"),
        "hour × model": UsageQuery(**whole, dimensions=("model",), period="hour"),
        "hour": UsageQuery(**whole, period="hour"),
        "hour × model of 7 days": UsageQuery(
            since=site.end - 7 * DAY, until=site.end, dimensions=("model",), period="hour"
        ),
        "hour × account of 7 days": UsageQuery(
            since=site.end - 7 * DAY, until=site.end, dimensions=("account",), period="hour"
        ),
        "day × model of one account": UsageQuery(**whole, dimensions=("model",), period="day", filters=one),
        "hour × model of one account": UsageQuery(**whole, dimensions=("model",), period="hour", filters=one),
        "key of one account": UsageQuery(**whole, dimensions=("key",), filters=one),
    }
    for title, query in queries.items():
        show(title, partial(report, database, query))
    time_filters(database, site)
    last = site.rows // site.accounts
    show("an account's last 100 lines", partial(page, database, last))
    show("an account's 100 lines in the middle", partial(page, database, last // 2))
    show("a request that there is not", partial(request, database, "nobody"))
    show("the statement of an account's month", partial(statement, database, month_of(site.end - 40 * DAY)))


def time_filters(database: Database, site: Site) -> None:
    """Print the times of reports and pages of calls with a filter."""
    whole: dict[str, Any] = {"since": site.start, "until": site.end}
    for name, value in (("key", "rare-1"), ("user", "of-rare-1"), ("key", "key-1-0"), ("key", "nobody")):
        filters: dict[str, Any] = {name: value}
        query = UsageQuery(**whole, dimensions=("model",), period="day", filters={name: [value]})
        show(f"day × model of {name} {value}", partial(report, database, query))
        of_one = CallFilter(account="big-1", **whole, **filters)
        show(f"calls of {name} {value} in its account", partial(calls, database, of_one))
        show(f"calls of {name} {value} in all accounts", partial(search, database, CallSearch(**whole, **filters)))


def report(database: Database, query: UsageQuery) -> int:
    """The rows of a report, as a JSON document."""
    with database.reading() as connection:
        rows = read_usage(connection, query)
    answer = Report(
        since=from_micros(query.since),
        until=from_micros(query.until),
        dimensions=query.dimensions,
        period=query.period,
        rows=rows,
        emails={},
        margin=False,
    )
    msgspec.json.encode(answer.json_form())
    return len(rows)


def page(database: Database, until: int) -> int:
    """A page of lines."""
    with database.reading() as connection:
        return len([line.json_form() for line in read_newest_lines(connection, "big-1", until=until, most=100)])


def calls(database: Database, wanted: CallFilter) -> int:
    """A page of an account's calls."""
    with database.reading() as connection:
        return len(read_calls(connection, wanted, limit=51))


def search(database: Database, wanted: CallSearch) -> int:
    """A page of the calls of all accounts."""
    with database.reading() as connection:
        return len(search_calls(connection, wanted, limit=51))


def request(database: Database, request_id: str) -> int:
    """The lines of a request."""
    with database.reading() as connection:
        return len(read_request(connection, request_id))


def statement(database: Database, month: int) -> int:
    """The lines of a month, proved."""
    with database.reading() as connection:
        row = connection.execute(sa.select(import_state).where(import_state.c.account == "big-1")).one()
        lines = read_month(connection, ImportState(*row), month)
        return lines.last_seq - lines.first_seq + 1


def show(title: str, run: Callable[[], int]) -> None:
    """Print how long it takes: the best and the worst time, and the least CPU of this process."""
    times, spent, rows = [], [], 0
    for _ in range(TIMES):
        started, cpu = time.perf_counter(), time.process_time()
        rows = run()
        times.append((time.perf_counter() - started) * 1000)
        spent.append((time.process_time() - cpu) * 1000)
    print(f"{title}: {min(times):.0f} to {max(times):.0f} ms, {min(spent):.0f} ms of CPU, {rows:,} rows", flush=True)


def main(postgres: str, file: str, site: Site) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(file) if file else Path(folder) / "gateway.db"
        database = Database.open(postgres_address(postgres) if postgres else DatabaseAddress(file=path))
        started = time.perf_counter()
        if count(database, import_state) == 0:
            fill(database, site)
            print(f"{site.rows:,} lines filled in {time.perf_counter() - started:.0f} s", flush=True)
        for table in ROLLUPS:
            print(f"{table.name}: {count(database, table):,} rows")
        time_reports(database, site)
        database.close()


def count(database: Database, table: sa.Table) -> int:
    with database.reading() as connection:
        return int(connection.scalar(sa.select(sa.func.count()).select_from(table)) or 0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--postgres", default="", metavar="URL")
    parser.add_argument("--file", default="", metavar="FILE")
    for name, default in (("rows", 10_000_000), ("accounts", 100), ("models", 10), ("days", 90), ("keys", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    arguments = vars(parser.parse_args())
    main(arguments.pop("postgres"), arguments.pop("file"), Site(**arguments))

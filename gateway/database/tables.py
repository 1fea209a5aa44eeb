"""The tables of the database, as SQLAlchemy Core has them; the migrations make them.

Amounts are BIGINT in units of 1e-9. Times (`at`, `hour`, `day`, `month`) are BIGINT: microseconds since 1970 in UTC. A
hash is the 32 bytes of the hash chain over an account's lines up to this one (`LedgerLine.chained`).
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

metadata = sa.MetaData()

Nano = sa.BigInteger
Time = sa.BigInteger
Hash = sa.LargeBinary

#: Upper bounds of the histogram cells, in milliseconds, two for each octave; a last cell counts larger values.
TIMES_MS = (1, 2, 3, *(round(2 ** (half / 2)) for half in range(4, 37)))  # up to 262,144
#: The cells of versions before 0120. Their counts stay where they are, and nothing is added to them.
OLD_DURATION_MS = (100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000)
OLD_FIRST_TOKEN_MS = (50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000)
#: The buckets of `Usage` that rollups sum, under their names there; audio in milliseconds.
USAGE = (
    "in_text", "in_cached", "in_cache_write_short", "in_cache_write_long", "in_audio", "in_audio_cached", "in_image",
    "out_text", "out_reasoning", "out_audio", "out_image", "images", "characters", "audio_ms_in", "audio_ms_out",
    "search_units", "web_searches",
)  # fmt: skip
#: The sums of a rollup's row. `cost` is what was charged. `upstream_cost` is what the operator pays, known for
#: `upstream_cost_known` calls. `duration_ms` and `first_token_ms` are sums over `calls` and
#: `streams`, the calls with a first token.
SUMS = (
    "calls", "estimated", "cost", "uncollected", "upstream_cost", "upstream_cost_known", *USAGE, "duration_ms",
    "streams", "first_token_ms",
)  # fmt: skip
DURATION_CELLS, FIRST_TOKEN_CELLS = (
    (*(f"{kind}_to_{bound}" for bound in TIMES_MS), f"{kind}_above") for kind in ("duration", "first_token")
)
OLD_DURATION_CELLS = tuple(f"duration_{cell}" for cell in range(len(OLD_DURATION_MS) + 1))
OLD_FIRST_TOKEN_CELLS = tuple(f"first_token_{cell}" for cell in range(len(OLD_FIRST_TOKEN_MS) + 1))
#: The longest times; 0 in rows of versions before 0120. They are not lowered when lines are subtracted.
MAXIMA = ("duration_max_ms", "first_token_max_ms")
#: What a row adds up; the measures are these and the maxima, which come last.
ADDITIVE = (*SUMS, *DURATION_CELLS, *FIRST_TOKEN_CELLS, *OLD_DURATION_CELLS, *OLD_FIRST_TOKEN_CELLS)
MEASURES = (*ADDITIVE, *MAXIMA)
#: Measures that a later migration added.
ADDED = frozenset({"upstream_cost", "upstream_cost_known", *DURATION_CELLS, *FIRST_TOKEN_CELLS, *MAXIMA})

#: id: the database's own; bound: whether a store has taken it.
meta = sa.Table(
    "meta", metadata, sa.Column("key", sa.Text, primary_key=True), sa.Column("value", sa.Text, nullable=False)
)


def _text(name: str) -> sa.Column[str]:
    return sa.Column(name, sa.Text, nullable=False)


def _big(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, nullable=False)


def _added(name: str) -> sa.Column[str]:
    """A text that rows of older versions do not have."""
    return sa.Column(name, sa.Text, nullable=False, server_default="")


def _line_columns() -> list[sa.Column[Any]]:
    """What a line is in the store; `late` as there, `hash` of the chain."""
    return [
        _text("account"),
        _big("seq"),
        _text("stream_id"),
        sa.Column("at", Time, nullable=False),
        _text("request_id"),
        _text("kind"),
        sa.Column("amount", Nano, nullable=False),
        sa.Column("balance", Nano, nullable=False),
        sa.Column("uncollected", Nano, nullable=False),
        sa.Column("late", sa.Boolean, nullable=False),
        _text("meta"),
        sa.Column("hash", Hash, nullable=False),
    ]


#: What few lines are: neither a charge nor the charge of a call that was lost. The values are a part of the condition,
#: so that both databases see that the index fits.
IS_MOVEMENT = "kind != 'use' AND kind != 'reclaim'"
#: The lines of calls that are part of a session.
IN_SESSION = "session != ''"
#: Every ledger line. The columns after `hash` repeat parts of `meta` for reports; they are empty where it has none.
#: `tags` is a JSON object.
ledger_lines = sa.Table(
    "ledger_lines",
    metadata,
    *_line_columns(),
    _text("key_id"),
    _text("model"),
    _text("served_model"),
    _text("provider"),
    _text("endpoint"),
    _text("outcome"),
    sa.Column("estimated", sa.Boolean, nullable=False),
    sa.Column("attempts", sa.Integer, nullable=False),
    _big("tokens_in"),
    _big("tokens_out"),
    _big("duration_ms"),
    _big("first_token_ms"),
    _added("user_id"),
    _added("tags"),
    sa.Column("upstream_cost", Nano),  # NULL: not known
    _added("session"),
    sa.PrimaryKeyConstraint("account", "seq"),
    sa.Index("ledger_lines_request", "request_id"),
    sa.Index("ledger_lines_at", "at"),
    sa.Index(
        "ledger_lines_movements",
        "account",
        "seq",
        # PostgreSQL's index has the condition, too, from its migration: to name it here loads that dialect, in 0.08 s.
        sqlite_where=sa.text(IS_MOVEMENT),
    ),
    sa.Index(
        "ledger_lines_session",
        "session",
        "account",
        "seq",
        sqlite_where=sa.text(IN_SESSION),
    ),
)

#: Lines that the store lost after they were imported, for example in a failover; other lines have their numbers now.
#: `acknowledged_at`: when an operator decided that the line is not booked again; NULL for the others.
superseded_lines = sa.Table(
    "superseded_lines",
    metadata,
    # SQLite numbers rows by itself only for its own INTEGER.
    sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
    *_line_columns(),
    sa.Column("superseded_at", Time, nullable=False),
    sa.Column("acknowledged_at", Time),
    sa.Index("superseded_lines_account", "account", "seq"),
    sa.Index("superseded_lines_request", "account", "request_id"),
)

#: How far each account is imported. Lines 1 … `opening_seq` are not in the database: `opening_balance` is their sum.
#: `before_hash` is the chain before the last line, `total` and `uncollected` are sums of the lines in the database.
import_state = sa.Table(
    "import_state",
    metadata,
    sa.Column("account", sa.Text, primary_key=True),
    _big("opening_seq"),
    _text("opening_id"),
    sa.Column("opening_balance", Nano, nullable=False),
    sa.Column("opening_hash", Hash, nullable=False),
    _big("last_seq"),
    _text("last_id"),
    sa.Column("before_hash", Hash, nullable=False),
    sa.Column("last_hash", Hash, nullable=False),
    sa.Column("balance", Nano, nullable=False),
    sa.Column("total", Nano, nullable=False),
    sa.Column("uncollected", Nano, nullable=False),
)


def _rollup(name: str, period: str, *labels: str, user: sa.Column[str] | None = None) -> sa.Table:
    """Sums of the calls by a period and labels, one row for each combination; `user` depends on the key."""
    cells = {*DURATION_CELLS, *FIRST_TOKEN_CELLS, *OLD_DURATION_CELLS, *OLD_FIRST_TOKEN_CELLS}
    return sa.Table(
        name,
        metadata,
        sa.Column(period, Time, nullable=False),
        *(_text(label) for label in labels),
        *(
            sa.Column(
                measure,
                sa.Integer if measure in cells else sa.BigInteger,
                nullable=False,
                server_default="0" if measure in ADDED else None,
            )
            for measure in MEASURES
        ),
        *([] if user is None else [user]),
        sa.PrimaryKeyConstraint(period, *labels),
        sqlite_with_rowid=False,
    )


LABELS = ("account", "key_id", "model", "provider", "endpoint", "outcome")
SITE_LABELS = LABELS[2:]
USER = "user_id"  # of the key; empty for a service key
TAG_LABELS = ("account", "tag", "value", "key_id", "model")
usage_hourly = _rollup("usage_hourly", "hour", *LABELS, user=_added(USER))
usage_daily = _rollup("usage_daily", "day", *LABELS, user=_added(USER))
usage_monthly = _rollup("usage_monthly", "month", *LABELS, user=_text(USER))
#: A call counts once for each of its tags.
usage_daily_tags = _rollup("usage_daily_tags", "day", *TAG_LABELS, user=_text(USER))
#: The sums over all accounts: their sizes depend on the models and the time only.
usage_site_hourly = _rollup("usage_site_hourly", "hour", *SITE_LABELS)
usage_site_daily = _rollup("usage_site_daily", "day", *SITE_LABELS)
sa.Index("usage_hourly_account", usage_hourly.c.account, usage_hourly.c.hour)
sa.Index("usage_daily_account", usage_daily.c.account, usage_daily.c.day)
sa.Index("usage_daily_key", usage_daily.c.key_id, usage_daily.c.account, usage_daily.c.day)
sa.Index("usage_daily_user", usage_daily.c.user_id, usage_daily.c.account, usage_daily.c.day)
sa.Index("usage_monthly_account", usage_monthly.c.account, usage_monthly.c.month)
sa.Index("usage_daily_tags_account", usage_daily_tags.c.account, usage_daily_tags.c.day)
ROLLUPS = (usage_hourly, usage_daily, usage_monthly, usage_site_hourly, usage_site_daily, usage_daily_tags)

#: Lines over all accounts that are not about a call, by their kind; amounts are positive.
money_site_hourly = sa.Table(
    "money_site_hourly",
    metadata,
    sa.Column("hour", Time, nullable=False),
    _text("kind"),
    *(_big(name) for name in ("lines", "credits", "debits")),
    sa.PrimaryKeyConstraint("hour", "kind"),
    sqlite_with_rowid=False,
)

#: Statements that are final. A row is added once and never changed: `hash` is the SHA-256 of `document`, a JSON text.
#: `last_seq` and `last_hash` are of the last ledger line up to the end of the month; `month` is its first moment.
statements = sa.Table(
    "statements",
    metadata,
    sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
    _text("account"),
    sa.Column("month", Time, nullable=False),
    sa.Column("closing_balance", Nano, nullable=False),
    _big("last_seq"),
    sa.Column("last_hash", Hash, nullable=False),
    _text("document"),
    sa.Column("hash", Hash, nullable=False),
    sa.Column("fixed_at", Time, nullable=False),
    sa.UniqueConstraint("account", "month", name="statements_account_month"),
)

REFUSAL_LABELS = ("account", "key_id", "model", "code")
#: Requests that were refused before their admission; account and key are empty for an unknown key.
refusals_hourly = sa.Table(
    "refusals_hourly",
    metadata,
    sa.Column("hour", Time, nullable=False),
    *(_text(label) for label in REFUSAL_LABELS),
    _big("requests"),
    sa.PrimaryKeyConstraint("hour", *REFUSAL_LABELS),
    sa.Index("refusals_hourly_account", "account", "hour"),
    sqlite_with_rowid=False,
)

#: The same over all accounts and keys.
refusals_site_hourly = sa.Table(
    "refusals_site_hourly",
    metadata,
    sa.Column("hour", Time, nullable=False),
    _text("model"),
    _text("code"),
    _big("requests"),
    sa.PrimaryKeyConstraint("hour", "model", "code"),
    sqlite_with_rowid=False,
)

#: The batches of counts that are in `refusals_hourly`, so that none is added twice.
refusal_batches = sa.Table(
    "refusal_batches", metadata, sa.Column("id", sa.Text, primary_key=True), sa.Column("at", Time, nullable=False)
)

#: The addresses that calls of a key came from, whole or shortened as the configuration says: `calls` is JSON, request
#: ids by address, of batches from `at` on. The days begin both keys, so that what is too old is found there.
call_addresses = sa.Table(
    "call_addresses",
    metadata,
    sa.Column("day", Time, nullable=False),
    _text("key_id"),
    sa.Column("at", Time, nullable=False),
    _text("calls"),
    sa.PrimaryKeyConstraint("day", "key_id", "at"),
    sqlite_with_rowid=False,
)

#: The addresses that a key was used from on a day, so that they are found without reading its calls.
key_addresses = sa.Table(
    "key_addresses",
    metadata,
    sa.Column("day", Time, nullable=False),
    _text("key_id"),
    _text("address"),
    sa.Column("first_at", Time, nullable=False),
    sa.Column("last_at", Time, nullable=False),
    sa.PrimaryKeyConstraint("day", "key_id", "address"),
    sqlite_with_rowid=False,
)

"""Sums of usage by month, and by hour over all accounts; statements."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0040"
down_revision = "0030"

#: The first moment of the month of `day`.
MONTH = {
    "sqlite": "CAST(strftime('%s', day / 1000000, 'unixepoch', 'start of month') AS BIGINT) * 1000000",
    "postgresql": (
        "CAST(extract(epoch FROM date_trunc('month', to_timestamp(day / 1000000) AT TIME ZONE 'UTC')) AS BIGINT)"
        " * 1000000"
    ),
}


def upgrade() -> None:
    """Make the tables; the sums come from those that exist."""
    for name in ("upstream_cost", "upstream_cost_known"):
        op.add_column("usage_daily_tags", sa.Column(name, sa.BigInteger, nullable=False, server_default="0"))
    bind = op.get_bind()
    daily = sa.Table("usage_daily", sa.MetaData(), autoload_with=bind)
    hourly = sa.Table("usage_hourly", sa.MetaData(), autoload_with=bind)
    labels = [column.name for column in daily.primary_key.columns][1:]
    month: sa.ColumnClause[int] = sa.literal_column(MONTH[bind.dialect.name])
    _sum_up("usage_monthly", "month", month, daily, labels)
    op.create_index("usage_monthly_account", "usage_monthly", ["account", "month"])
    _sum_up("usage_site_hourly", "hour", hourly.c.hour, hourly, labels[2:])
    op.create_table(
        "statements",
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("account", sa.Text, nullable=False),
        sa.Column("month", sa.BigInteger, nullable=False),
        sa.Column("closing_balance", sa.BigInteger, nullable=False),
        sa.Column("last_seq", sa.BigInteger, nullable=False),
        sa.Column("last_hash", sa.LargeBinary, nullable=False),
        sa.Column("document", sa.Text, nullable=False),
        sa.Column("hash", sa.LargeBinary, nullable=False),
        sa.Column("fixed_at", sa.BigInteger, nullable=False),
        sa.UniqueConstraint("account", "month", name="statements_account_month"),
    )


def _sum_up(name: str, period: str, start: sa.ColumnElement[int], source: sa.Table, labels: list[str]) -> None:
    """Make a rollup by a period and labels with the measures that `source` has now, and fill it with its sums."""
    keys = {column.name for column in source.primary_key.columns}
    has_user = "account" in labels
    rest = [column for column in source.columns if column.name not in keys]
    rest = [column for column in rest if has_user or not isinstance(column.type, sa.Text)]
    table = op.create_table(
        name,
        sa.Column(period, sa.BigInteger, nullable=False),
        *(sa.Column(column.name, column.type, nullable=False) for column in (*_named(source, labels), *rest)),
        sa.PrimaryKeyConstraint(period, *labels),
        sqlite_with_rowid=False,
    )
    grouped = _named(source, labels)
    # A text beside the labels depends on them.
    sums = [sa.func.max(one) if isinstance(one.type, sa.Text) else sa.func.sum(one) for one in rest]
    query = sa.select(start, *grouped, *sums).group_by(start, *grouped)
    op.execute(table.insert().from_select([period, *labels, *(one.name for one in rest)], query))


def _named(table: sa.Table, names: list[str]) -> list[sa.Column[Any]]:
    return [table.c[name] for name in names]

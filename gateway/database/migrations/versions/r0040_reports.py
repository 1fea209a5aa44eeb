"""Sums of usage by month, and statements."""

from __future__ import annotations

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
    """Make the tables. `usage_monthly` has the columns that `usage_daily` has now, and gets its sums from it."""
    for name in ("upstream_cost", "upstream_cost_known"):
        op.add_column("usage_daily_tags", sa.Column(name, sa.BigInteger, nullable=False, server_default="0"))
    daily = sa.Table("usage_daily", sa.MetaData(), autoload_with=op.get_bind())
    labels = [column.name for column in daily.primary_key.columns][1:]
    rest = [column for column in daily.columns if column.name not in ("day", *labels)]
    names = [*labels, *(column.name for column in rest)]
    columns = [sa.Column(name, daily.c[name].type, nullable=False) for name in names]
    monthly = op.create_table(
        "usage_monthly",
        sa.Column("month", sa.BigInteger, nullable=False),
        *columns,
        sa.PrimaryKeyConstraint("month", *labels),
        sqlite_with_rowid=False,
    )
    op.create_index("usage_monthly_account", "usage_monthly", ["account", "month"])
    month: sa.ColumnClause[int] = sa.literal_column(MONTH[op.get_bind().dialect.name])
    grouped = [daily.c[label] for label in labels]
    # The texts beside the labels depend on them.
    sums = [sa.func.max(one) if isinstance(one.type, sa.Text) else sa.func.sum(one) for one in rest]
    op.execute(
        monthly.insert().from_select(["month", *names], sa.select(month, *grouped, *sums).group_by(month, *grouped))
    )
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

"""Sums over all accounts by hour: of credits and debits, and of refused requests."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0143"
down_revision = "0142"

HOUR = 3_600_000_000
#: The lines that are not about a call; the first condition is that of an index.
MONEY = f"""
INSERT INTO money_site_hourly (hour, kind, lines, credits, debits)
SELECT at / {HOUR} * {HOUR}, kind, count(*), sum(CASE WHEN amount > 0 THEN amount ELSE 0 END),
    sum(CASE WHEN amount < 0 THEN -amount ELSE 0 END)
FROM ledger_lines WHERE kind != 'use' AND kind != 'reclaim' AND NOT (kind IN ('adj', 'refund') AND key_id != '')
GROUP BY 1, 2
"""  # noqa: S608 - a number
REFUSALS = """
INSERT INTO refusals_site_hourly (hour, model, code, requests)
SELECT hour, model, code, sum(requests) FROM refusals_hourly GROUP BY hour, model, code
"""


def upgrade() -> None:
    """Make the tables, and fill them from those that exist."""
    _table("money_site_hourly", ("kind",), ("lines", "credits", "debits"))
    _table("refusals_site_hourly", ("model", "code"), ("requests",))
    op.execute(MONEY)
    op.execute(REFUSALS)


def _table(name: str, labels: tuple[str, ...], sums: tuple[str, ...]) -> None:
    op.create_table(
        name,
        sa.Column("hour", sa.BigInteger, nullable=False),
        *(sa.Column(label, sa.Text, nullable=False) for label in labels),
        *(sa.Column(one, sa.BigInteger, nullable=False) for one in sums),
        sa.PrimaryKeyConstraint("hour", *labels),
        sqlite_with_rowid=False,
    )

"""What calls cost the operator, beside what they cost the customer."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0002"


def upgrade() -> None:
    """Add the columns; of older lines the cost is not known."""
    op.add_column("ledger_lines", sa.Column("upstream_cost", sa.BigInteger))
    for table in ("usage_hourly", "usage_daily", "usage_site_daily"):
        for name in ("upstream_cost", "upstream_cost_known"):
            op.add_column(table, sa.Column(name, sa.BigInteger, nullable=False, server_default="0"))

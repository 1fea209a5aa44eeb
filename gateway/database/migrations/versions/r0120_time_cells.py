"""Finer cells of times, and the longest times. The cells of before keep their counts; readers take both."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0120"
down_revision = "0110"

ROLLUPS = (
    "usage_hourly", "usage_daily", "usage_monthly", "usage_site_hourly", "usage_site_daily", "usage_daily_tags",
)  # fmt: skip
BOUNDS = (
    1, 2, 3, 4, 6, 8, 11, 16, 23, 32, 45, 64, 91, 128, 181, 256, 362, 512, 724, 1024, 1448, 2048, 2896, 4096, 5793,
    8192, 11585, 16384, 23170, 32768, 46341, 65536, 92682, 131072, 185364, 262144,
)  # fmt: skip


def upgrade() -> None:
    """Add the columns."""
    for table in ROLLUPS:
        for kind in ("duration", "first_token"):
            for cell in (*(f"to_{bound}" for bound in BOUNDS), "above"):
                _add(table, f"{kind}_{cell}", sa.Integer())
            _add(table, f"{kind}_max_ms", sa.BigInteger())


def _add(table: str, name: str, kind: sa.types.TypeEngine[int]) -> None:
    op.add_column(table, sa.Column(name, kind, nullable=False, server_default="0"))

"""Ledger lines and sums of usage."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

USAGE = (
    "in_text", "in_cached", "in_cache_write_short", "in_cache_write_long", "in_audio", "in_audio_cached", "in_image",
    "out_text", "out_reasoning", "out_audio", "out_image", "images", "characters", "audio_ms_in", "audio_ms_out",
    "search_units", "web_searches",
)  # fmt: skip
SUMS = ("calls", "estimated", "cost", "uncollected", *USAGE, "duration_ms", "streams", "first_token_ms")
CELLS = tuple(f"{name}_{cell}" for name in ("duration", "first_token") for cell in range(10))
LABELS = ("account", "key_id", "model", "provider", "endpoint", "outcome")


def _text(*names: str) -> list[sa.Column[Any]]:
    return [sa.Column(name, sa.Text, nullable=False) for name in names]


def _big(*names: str) -> list[sa.Column[Any]]:
    return [sa.Column(name, sa.BigInteger, nullable=False) for name in names]


def _line() -> list[sa.Column[Any]]:
    return [
        *_text("account"),
        *_big("seq"),
        *_text("stream_id"),
        *_big("at"),
        *_text("request_id", "kind"),
        *_big("amount", "balance", "uncollected"),
        sa.Column("late", sa.Boolean, nullable=False),
        *_text("meta"),
        sa.Column("hash", sa.LargeBinary, nullable=False),
    ]


def _rollup(name: str, period: str, labels: tuple[str, ...]) -> None:
    cells = [sa.Column(cell, sa.Integer, nullable=False) for cell in CELLS]
    columns = [*_big(period), *_text(*labels), *_big(*SUMS), *cells]
    op.create_table(name, *columns, sa.PrimaryKeyConstraint(period, *labels), sqlite_with_rowid=False)


def upgrade() -> None:
    """Make the tables."""
    op.create_table("meta", sa.Column("key", sa.Text, primary_key=True), *_text("value"))
    op.create_table(
        "ledger_lines",
        *_line(),
        *_text("key_id", "model", "served_model", "provider", "endpoint", "outcome"),
        sa.Column("estimated", sa.Boolean, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        *_big("tokens_in", "tokens_out", "duration_ms", "first_token_ms"),
        sa.PrimaryKeyConstraint("account", "seq"),
    )
    op.create_index("ledger_lines_request", "ledger_lines", ["request_id"])
    op.create_index("ledger_lines_at", "ledger_lines", ["at"])
    op.create_table(
        "superseded_lines",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
        *_line(),
        *_big("superseded_at"),
    )
    op.create_index("superseded_lines_account", "superseded_lines", ["account", "seq"])
    op.create_table(
        "import_state",
        sa.Column("account", sa.Text, primary_key=True),
        *_big("opening_seq"),
        *_text("opening_id"),
        *_big("opening_balance"),
        sa.Column("opening_hash", sa.LargeBinary, nullable=False),
        *_big("last_seq"),
        *_text("last_id"),
        sa.Column("before_hash", sa.LargeBinary, nullable=False),
        sa.Column("last_hash", sa.LargeBinary, nullable=False),
        *_big("balance", "total", "uncollected"),
    )
    _rollup("usage_hourly", "hour", LABELS)
    _rollup("usage_daily", "day", LABELS)
    _rollup("usage_site_daily", "day", LABELS[2:])
    op.create_index("usage_hourly_account", "usage_hourly", ["account", "hour"])
    op.create_index("usage_daily_account", "usage_daily", ["account", "day"])

"""Users and tags of calls, sums by tag, and counts of refused requests."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0020"

USAGE = (
    "in_text", "in_cached", "in_cache_write_short", "in_cache_write_long", "in_audio", "in_audio_cached", "in_image",
    "out_text", "out_reasoning", "out_audio", "out_image", "images", "characters", "audio_ms_in", "audio_ms_out",
    "search_units", "web_searches",
)  # fmt: skip
SUMS = ("calls", "estimated", "cost", "uncollected", *USAGE, "duration_ms", "streams", "first_token_ms")
CELLS = tuple(f"{name}_{cell}" for name in ("duration", "first_token") for cell in range(10))
TAG_LABELS = ("account", "tag", "value", "key_id", "model")
REFUSAL_LABELS = ("account", "key_id", "model", "code")


def _text(*names: str) -> list[sa.Column[Any]]:
    return [sa.Column(name, sa.Text, nullable=False) for name in names]


def _big(*names: str) -> list[sa.Column[Any]]:
    return [sa.Column(name, sa.BigInteger, nullable=False) for name in names]


def _add(table: str, *names: str) -> None:
    for name in names:
        op.add_column(table, sa.Column(name, sa.Text, nullable=False, server_default=""))


def upgrade() -> None:
    """Add the columns, and make the tables. The rows that exist have neither users nor tags."""
    _add("ledger_lines", "user_id", "tags")
    _add("usage_hourly", "user_id")
    _add("usage_daily", "user_id")
    op.create_table(
        "usage_daily_tags",
        *_big("day"),
        *_text(*TAG_LABELS),
        *_big(*SUMS),
        *(sa.Column(cell, sa.Integer, nullable=False) for cell in CELLS),
        *_text("user_id"),
        sa.PrimaryKeyConstraint("day", *TAG_LABELS),
        sqlite_with_rowid=False,
    )
    op.create_index("usage_daily_tags_account", "usage_daily_tags", ["account", "day"])
    op.create_table(
        "refusals_hourly",
        *_big("hour"),
        *_text(*REFUSAL_LABELS),
        *_big("requests"),
        sa.PrimaryKeyConstraint("hour", *REFUSAL_LABELS),
        sqlite_with_rowid=False,
    )
    op.create_index("refusals_hourly_account", "refusals_hourly", ["account", "hour"])
    op.create_table("refusal_batches", sa.Column("id", sa.Text, primary_key=True), *_big("at"))

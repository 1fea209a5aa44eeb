"""Moments and amounts as people type them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import click
import pytest

from gateway.cli.values import AMOUNT, FUTURE, NAMES, PAST


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("30d", timedelta(days=30)),
        ("12h", timedelta(hours=12)),
        ("45m", timedelta(minutes=45)),
        ("10s", timedelta(seconds=10)),
        ("2w", timedelta(weeks=2)),
    ],
)
def test_duration_is_added_or_subtracted(text: str, length: timedelta) -> None:
    now = datetime.now(UTC)
    assert abs(FUTURE.convert(text, None, None) - now - length) < timedelta(seconds=5)
    assert abs(now - PAST.convert(text, None, None) - length) < timedelta(seconds=5)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-12-31T23:59:59Z", datetime(2026, 12, 31, 23, 59, 59, tzinfo=UTC)),
        ("2026-12-31t23:59:59z", datetime(2026, 12, 31, 23, 59, 59, tzinfo=UTC)),
        ("2026-12-31 23:59:59+02:00", datetime(2026, 12, 31, 21, 59, 59, tzinfo=UTC)),
        ("2026-12-31T23:59:59.250Z", datetime(2026, 12, 31, 23, 59, 59, 250_000, tzinfo=UTC)),
        ("2026-12-31", datetime(2026, 12, 31, tzinfo=UTC)),
    ],
)
def test_rfc_3339_time_is_read_as_utc(text: str, moment: datetime) -> None:
    assert FUTURE.convert(text, None, None) == moment


@pytest.mark.parametrize(
    "text",
    [
        "",
        "soon",
        "30",
        "d",
        "-3d",
        "1.5d",
        "30 d",
        "2026-02-30",
        "2026-12-31T23:59:59",
        "20261231",
        "99999w",
        "٣d",
        "0001-01-01T00:00:00+10:00",
    ],
)
def test_invalid_time_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="neither a time"):
        FUTURE.convert(text, None, None)


def test_amount_is_exact_or_refused() -> None:
    assert AMOUNT.convert("0.000000001", None, None) == 1
    with pytest.raises(click.BadParameter, match="at most nine places"):
        AMOUNT.convert("0.0000000001", None, None)


def test_names_are_separated_by_commas() -> None:
    assert NAMES.convert("a, b,,org/c:1", None, None) == ["a", "b", "org/c:1"]

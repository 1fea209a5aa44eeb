"""Amounts: exact both ways, refused where they would have to be rounded."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.amounts import MAX_AMOUNT, NANO, format_amount, parse_amount


@given(st.integers(-MAX_AMOUNT, MAX_AMOUNT))
def test_every_amount_is_equal_after_writing_and_reading(nano: int) -> None:
    assert parse_amount(format_amount(nano)) == nano
    assert Decimal(format_amount(nano)) * NANO == nano


@pytest.mark.parametrize(
    ("text", "nano"),
    [
        ("0.25", 250_000_000),
        ("1", NANO),
        ("+1", NANO),
        ("-0.000000001", -1),
        (" 2.50 ", 2_500_000_000),
        ("007", 7 * NANO),
    ],
)
def test_amount_is_read_exactly(text: str, nano: int) -> None:
    assert parse_amount(text) == nano


@pytest.mark.holds("security.md#money-2")
@pytest.mark.parametrize(
    "text",
    [
        "", "-", ".", "1.", ".5", "1e3", "0x10", "NaN", "Infinity", "1,5", "1_000", "1 000", "--1", "0.0000000001",
        "٣", "１", "1\n2", "9000000.000000001", "-9000000.1", "9" * 100,
    ],
)  # fmt: skip
def test_invalid_amount_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a decimal amount|is more than"):
        parse_amount(text)


def test_trailing_zeros_are_not_written() -> None:
    assert [format_amount(nano) for nano in (0, 1, NANO, -NANO // 2, 10 * NANO)] == [
        "0",
        "0.000000001",
        "1",
        "-0.5",
        "10",
    ]

"""Money as integers of 1e-9 currency units ("nano"), and its decimal text at the edges.

`parse_amount("0.25") == 250_000_000`; `format_amount(250_000_000) == "0.25"`. More than nine decimal places, exponents,
signs without digits and anything past `MAX_AMOUNT` are refused: an amount is never rounded on its way in.
"""

from __future__ import annotations

import re

PLACES = 9  # decimal places of an amount
NANO = 1_000_000_000  # nano-units in one currency unit
MAX_AMOUNT = 9_000_000 * NANO  # a double in Lua compares integers exactly up to 2**53, and this is just below

MAX_FACTOR = 1000 * NANO

_AMOUNT = re.compile(r"([+-]?)([0-9]{1,12})(?:\.([0-9]{1,9}))?", re.ASCII)


def parse_amount(text: str) -> int:
    """Nano-units of a decimal text; ValueError names what is wrong with it."""
    match = _AMOUNT.fullmatch(text.strip(" "))
    if match is None:
        raise ValueError(f"{text!r} is not a decimal amount with at most nine places")
    sign, whole, fraction = match.groups()
    nano = int(whole) * NANO + int((fraction or "").ljust(9, "0"))
    if nano > MAX_AMOUNT:
        raise ValueError(f"{text!r} is more than {format_amount(MAX_AMOUNT)}")
    return -nano if sign == "-" else nano


def parse_factor(text: str) -> int:
    """A factor of prices in 1e-9, from a decimal text between 0 and 1000; ValueError names what is wrong with it."""
    try:
        factor = parse_amount(text)
    except ValueError:
        factor = -1
    if not 0 <= factor <= MAX_FACTOR:
        raise ValueError(f"{text!r} is not a decimal number from 0 to 1000 with at most nine places")
    return factor


def format_product(nano: int, factor: int) -> str:
    """Decimal text of an amount times a factor in 1e-9; it has up to 18 places and is never rounded."""
    digits = str(nano * factor).zfill(2 * PLACES + 1)
    return f"{digits[: -2 * PLACES]}.{digits[-2 * PLACES :]}".rstrip("0").rstrip(".")


def format_amount(nano: int) -> str:
    """Decimal text of nano-units, without trailing zeros."""
    if nano < 0:
        return "-" + format_amount(-nano)
    digits = str(nano).zfill(PLACES + 1)
    whole, fraction = digits[:-PLACES], digits[-PLACES:].rstrip("0")
    return f"{whole}.{fraction}" if fraction else whole

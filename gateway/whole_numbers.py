"""Whole numbers in text: the digits 0 to 9 and nothing else.

`int` also takes the digits of other scripts, `1_0`, and spaces and line feeds around a number.
"""

from __future__ import annotations

MOST_DIGITS = 17  # the database has numbers of 64 bits


def parse_whole_number(text: str) -> int:
    """The number that is written in at most 17 digits; ValueError for any other text."""
    if not (text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS):
        raise ValueError(f"{text[:MOST_DIGITS]!r} is no whole number")
    return int(text)

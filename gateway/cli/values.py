"""Option types of the command line: amounts of money, moments, lists of models."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from gateway.admin.times import moment
from gateway.amounts import parse_amount, parse_factor
from gateway.whole_numbers import parse_whole_number

_DURATION = re.compile(r"([0-9]{1,9})([smhdw])", re.ASCII)
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_LONGEST = timedelta(days=36_525)  # a hundred years


class AmountType(click.ParamType[int]):
    """A decimal amount with at most nine places, as an int of 1e-9 units."""

    name = "amount"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Parse it, exactly or not at all."""
        if isinstance(value, int):
            return value
        try:
            return parse_amount(value)
        except ValueError as error:
            self.fail(f"{error}", param, ctx)


class WholeNumber(click.IntRange):
    """A whole number in the digits 0 to 9, within bounds."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Parse it; an int is only checked."""
        if isinstance(value, str):
            try:
                value = parse_whole_number(value)
            except ValueError as error:
                self.fail(f"{error}", param, ctx)
        return super().convert(value, param, ctx)


class WhenType(click.ParamType[datetime]):
    """An RFC 3339 time, a date (midnight UTC), or a duration such as 30d, 12h, 45m: from now, or before now."""

    name = "when"

    def __init__(self, *, past: bool) -> None:
        self.past = past  # a duration reaches back

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        """Parse it into a time in UTC."""
        if isinstance(value, datetime):
            return value
        text = str(value).strip(" ")
        try:
            return self._parse(text)
        except (ValueError, OverflowError):
            self.fail(f"{text!r} is neither a time such as 2026-12-31T23:59:59Z nor a duration such as 30d", param, ctx)

    def _parse(self, text: str) -> datetime:
        duration = _DURATION.fullmatch(text)
        if duration is None:
            return moment(text)
        length = timedelta(**{_UNITS[duration[2]]: int(duration[1])})
        if length > _LONGEST:
            raise ValueError("more than a hundred years")
        now = datetime.now(UTC)
        return now - length if self.past else now + length


class DurationType(click.ParamType[timedelta]):
    """A duration such as 30d, 12h, 45m."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        """Parse it."""
        if isinstance(value, timedelta):
            return value
        duration = _DURATION.fullmatch(str(value).strip(" "))
        length = timedelta(**{_UNITS[duration[2]]: int(duration[1])}) if duration else None
        if length is None or length > _LONGEST:
            self.fail(f"{value!r} is no duration such as 30d, 12h, 45m", param, ctx)
        return length


class NamesType(click.ParamType[list[str]]):
    """Names with commas between them."""

    name = "names"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[str]:
        """Split; an empty list is a slip, not a wish."""
        if isinstance(value, list):
            return value
        names = [name for part in str(value).split(",") if (name := part.strip())]
        return names or self.fail("expected names with commas between them", param, ctx)


class FactorType(click.ParamType[int]):
    """A decimal number from 0 to 1000 with at most nine places, as an int of 1e-9."""

    name = "factor"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Parse it, exactly or not at all."""
        if isinstance(value, int):
            return value
        try:
            return parse_factor(value)
        except ValueError as error:
            self.fail(f"{error}", param, ctx)


class AmountsType(click.ParamType[dict[str, int]]):
    """NAME=AMOUNT with commas between them, as ints of 1e-9 units by name."""

    name = "amounts"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dict[str, int]:
        """Parse them; each name stands once."""
        if isinstance(value, dict):
            return value
        amounts: dict[str, int] = {}
        for part in str(value).split(","):
            name, equals, text = (word.strip() for word in part.partition("="))
            if not equals or not name or name in amounts:
                self.fail(f"{part.strip()!r}: expected NAME=AMOUNT, with each name once", param, ctx)
            try:
                amounts[name] = parse_amount(text)
            except ValueError as error:
                self.fail(f"{name}: {error}", param, ctx)
        return amounts


#: Periods of budgets; `never` takes the period away.
PERIODS = ("month", "week", "day", "never")

AMOUNT = AmountType()
FUTURE = WhenType(past=False)
PAST = WhenType(past=True)
DURATION = DurationType()
NAMES = NamesType()
FACTOR = FactorType()
AMOUNTS = AmountsType()
COUNT = WholeNumber(min=1)

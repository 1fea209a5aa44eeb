"""The types of single settings: bounds, and how they are read from TOML. Money is an int of 1e-9 currency units."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from ipaddress import ip_network
from typing import Annotated, TypeGuard

from msgspec import Meta

from gateway.amounts import NANO, parse_amount, parse_factor
from gateway.config.toml_reader import FromToml

_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)

Port = Annotated[int, Meta(ge=0, le=65_535)]  # 0: any free one
Name = Annotated[str, Meta(min_length=1, max_length=256, pattern=r"^\S(.*\S)?$(?!\n)")]
TagName = Annotated[str, Meta(pattern=r"^[a-z][a-z0-9_-]{0,31}$(?!\n)")]
Seconds = Annotated[float, Meta(gt=0, le=86_400)]
Count = Annotated[int, Meta(ge=1, le=2**53)]
Bytes = Annotated[int, Meta(ge=1024, le=2**40)]
Duration = Annotated[str, Meta(pattern=r"^[1-9][0-9]{0,5}[hdy]$(?!\n)")]  # hours, days, years of 365 days
Interval = Annotated[str, Meta(pattern=r"^[1-9][0-9]{0,3}[mhd]$(?!\n)")]  # minutes, hours, days


def _amount(value: object) -> int:
    """Nano-units of zero or more, with at most nine decimal places; TOML's text is never rounded."""
    if isinstance(value, bool) or not isinstance(value, (int, Decimal, str)):
        raise ValueError("expected a decimal amount such as 0.25")
    nano = parse_amount(format(value, "f") if isinstance(value, Decimal) else str(value))
    if nano < 0:
        raise ValueError(f"{value} is negative; a price is zero or more")
    return nano


def _by_quality(value: object) -> dict[str, int]:
    """Amounts by image quality; one amount alone is that of every quality, `*`."""
    if isinstance(value, dict):
        return {quality: _amount(amount) for quality, amount in value.items()}
    return {"*": _amount(value)}


def _unix_time(value: object) -> int:
    """An integer, a date, or a date with a time (UTC unless it says otherwise)."""
    if isinstance(value, datetime):
        return int((value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp())
    if isinstance(value, date):
        return int(datetime(value.year, value.month, value.day, tzinfo=UTC).timestamp())
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**40:
        return value
    raise ValueError("expected a date such as 2026-11-21, or Unix seconds")


def _iso_date(value: object) -> str:
    """A TOML date, or its text."""
    if isinstance(value, date) and not isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, str) and _DATE.fullmatch(value):
        return date.fromisoformat(value).isoformat()
    raise ValueError("expected a date such as 2026-11-21")


def duration(text: str) -> timedelta:
    """The length in a `Duration`: hours, days, or years of 365 days."""
    hours = {"h": 1, "d": 24, "y": 8760}[text[-1]]
    return timedelta(hours=int(text[:-1]) * hours)


def interval(text: str) -> float:
    """The seconds in an `Interval`."""
    return float(text[:-1]) * {"m": 60, "h": 3600, "d": 86_400}[text[-1]]


def _is_number(value: object) -> TypeGuard[int | Decimal]:
    """Whether it can be compared: `nan` cannot."""
    return isinstance(value, (int, Decimal)) and not isinstance(value, bool) and value == value


def _shutdown_delay(value: object) -> float | str:
    """`auto`, or seconds from 0 to an hour."""
    if value == "auto":
        return "auto"
    if _is_number(value) and 0 <= value <= 3600:
        return float(value)
    raise ValueError('expected seconds from 0 to 3600, or "auto"')


def _multiplier(value: object) -> Decimal:
    """More than zero, at most 1000."""
    if _is_number(value) and 0 < value <= 1000:
        return Decimal(value)
    raise ValueError("expected a number above 0 and at most 1000")


def _positive_amount(value: object) -> int:
    """More than 0 currency units with at most nine decimal places, in 1e-9."""
    amount = _amount(value)
    if amount <= 0:
        raise ValueError("expected an amount above 0")
    return amount


def _factor(value: object) -> int:
    """0 to 1000 with at most nine decimal places, in 1e-9; TOML's text is never rounded."""
    if isinstance(value, bool) or not isinstance(value, (int, Decimal)):
        raise ValueError("expected a decimal number such as 0.9")
    return parse_factor(format(value, "f"))


def _part_factor(value: object) -> int:
    """A factor of at most 1."""
    factor = _factor(value)
    if factor > NANO:
        raise ValueError("expected at most 1")
    return factor


def _network(value: object) -> str:
    """An IP address or a CIDR block."""
    try:
        return str(ip_network(value if isinstance(value, str) else "", strict=False))
    except ValueError:
        raise ValueError("expected an IP address or a block such as 10.0.0.0/8") from None


#: What editors see of them. A date of TOML is a text there.
_AMOUNT = {"anyOf": [{"type": "number", "minimum": 0}, {"type": "string", "pattern": r"^[0-9]+(\.[0-9]{1,9})?$(?!\n)"}]}
_FACTOR = {"type": "number", "minimum": 0, "maximum": 1000}
_BY_QUALITY = {"anyOf": [*_AMOUNT["anyOf"], {"type": "object", "additionalProperties": _AMOUNT}]}
_TIME = {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": r"^\d{4}-\d\d-\d\d"}]}
_DELAY = {"anyOf": [{"const": "auto"}, {"type": "number", "minimum": 0, "maximum": 3600}]}

Amount = Annotated[int, FromToml(_amount, _AMOUNT)]  # 1e-9 currency units
PositiveAmount = Annotated[int, FromToml(_positive_amount, _AMOUNT)]  # 1e-9 currency units
Factor = Annotated[int, FromToml(_factor, _FACTOR)]  # 1e-9
PartFactor = Annotated[int, FromToml(_part_factor, {**_FACTOR, "maximum": 1})]  # 1e-9
QualityPrices = Annotated[dict[str, int], FromToml(_by_quality, _BY_QUALITY)]
UnixTime = Annotated[int, FromToml(_unix_time, _TIME)]
NetworkText = Annotated[str, FromToml(_network, {"type": "string"})]
ShutdownDelay = Annotated[float | str, FromToml(_shutdown_delay, _DELAY)]  # seconds, or "auto"
IsoDate = Annotated[str, FromToml(_iso_date, {"type": "string", "pattern": r"^\d{4}-\d\d-\d\d$(?!\n)"})]  # YYYY-MM-DD
#: as_integer_ratio() gives numerator and denominator
Multiplier = Annotated[Decimal, FromToml(_multiplier, {**_FACTOR, "exclusiveMinimum": 0})]

"""Small parts of pages: times, amounts and numbers. What returns HTML has escaped its values."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from tornado.escape import xhtml_escape

from gateway.amounts import format_amount

LONGEST_WHOLE = 34  # characters of a text that is never broken: so many fit into a column of a narrow window


def time_element(moment: datetime | str | None, *, none: str = "–") -> str:
    """HTML of a time in UTC; a script shows it in the reader's zone, with UTC on hover."""
    if moment is None or moment == "":
        return xhtml_escape(none)
    parsed = datetime.fromisoformat(moment) if isinstance(moment, str) else moment
    utc = parsed.astimezone(UTC)
    machine = utc.isoformat(timespec="seconds").replace("+00:00", "Z")
    text = f"{utc:%Y-%m-%d %H:%M:%S} UTC"
    return f'<time datetime="{machine}" title="{text}" data-local>{text}</time>'


def amount_text(amount: int | str) -> str:
    """An amount, of nano-units or a decimal text: every digit that it has, at least two decimals, thousands apart."""
    text = format_amount(amount) if isinstance(amount, int) else amount
    sign, digits = ("−", text[1:]) if text.startswith("-") else ("", text.removeprefix("+"))
    whole, _, fraction = digits.partition(".")
    return f"{sign}{int(whole):,}.{fraction.ljust(2, '0')}"


def money_text(amount: int | str, currency: str) -> str:
    """An amount with its currency, if the prices name one."""
    return f"{amount_text(amount)} {currency}".rstrip()


def value_element(value: Any) -> str:
    """HTML of a value of any JSON type, for people. Addresses and other short texts stay on one line."""
    if isinstance(value, Mapping):
        parts = [
            f'<span class="faint">{xhtml_escape(str(name))}</span> {value_element(one)}' for name, one in value.items()
        ]
        return ", ".join(parts) or "–"
    if isinstance(value, list | tuple):
        return ", ".join(map(value_element, value)) or "–"
    text = {None: "–", True: "yes", False: "no"}[value] if value is None or isinstance(value, bool) else str(value)
    style = "whole" if len(text) <= LONGEST_WHOLE else "whole long"
    return f'<span class="{style}">{xhtml_escape(text)}</span>' if text else "–"


def number_text(number: int | str) -> str:
    """A count with thousands apart; a decimal text keeps its decimals."""
    if isinstance(number, int):
        return f"{number:,}"
    whole, dot, fraction = number.partition(".")
    return f"{int(whole):,}{dot}{fraction}"


def counted_text(number: int, one: str, many: str = "") -> str:
    """A count with its noun: 1 call, 2,000 calls. `many` is the plural where it is not `one` with an s."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def duration_text(milliseconds: int | None) -> str:
    """A duration for people: 12 ms, 1.53 s, 2 min 5 s, 43 h 0 min."""
    if milliseconds is None:
        return "–"
    if milliseconds < 1000:
        return f"{milliseconds} ms"
    if milliseconds < 60_000:
        return f"{milliseconds / 1000:.2f} s"
    minutes, rest = divmod(milliseconds // 1000, 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours:,} h {minutes} min"


def size_text(size: float) -> str:
    """Bytes for people: 0 B, 12.3 MiB, 4.00 GiB."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024 or unit == "TiB":
            break
        size /= 1024
    return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.3g} {unit}"


def percent_text(part: int, whole: int) -> str:
    """A share in percent, with a minus if `part` is negative; a small one is never shown as none.

    There is no share of nothing, or of less.
    """
    if whole <= 0:
        return "–"
    share = Decimal(abs(part)) * 100 / Decimal(whole)
    if part and share < Decimal("0.01"):
        return "< 0.01 %" if part > 0 else "> −0.01 %"
    return f"{'−' if part < 0 else ''}{share:.2f}".rstrip("0").rstrip(".") + " %"

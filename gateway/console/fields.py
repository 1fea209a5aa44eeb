"""Fields of forms and parameters of addresses as numbers and amounts."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import TypeVar

from gateway.amounts import parse_amount
from gateway.console.visit import Visit
from gateway.errors import InvalidValue
from gateway.whole_numbers import parse_whole_number

T = TypeVar("T")


def amount_field(visit: Visit, name: str, label: str) -> int | None:
    """The amount in nano-units; None for an empty field, InvalidValue for anything else."""
    return _read(visit.text(name), parse_amount, f"{label}: expected an amount such as 2.50", name)


def count_field(visit: Visit, name: str, label: str) -> int | None:
    """The whole number; None for an empty field, InvalidValue for anything else."""
    return _read(visit.text(name), parse_whole_number, f"{label}: expected a whole number", name)


def required_amount(visit: Visit, name: str, label: str) -> int:
    """As `amount_field`; InvalidValue unless it is above zero."""
    amount = amount_field(visit, name, label)
    if amount is None or amount <= 0:
        raise InvalidValue(f"{label}: expected an amount above zero, such as 2.50", param=name)
    return amount


def whole_number(text: str) -> int | None:
    """As `parse_whole_number`; None for any other text."""
    try:
        return parse_whole_number(text)
    except ValueError:
        return None


def new_operation() -> str:
    """An operation id for a form that moves money: a form that is sent twice moves it once."""
    return f"console-{secrets.token_hex(12)}"


def _read(text: str, parse: Callable[[str], T], problem: str, name: str) -> T | None:
    if not text:
        return None
    try:
        return parse(text)
    except ValueError:
        raise InvalidValue(problem, param=name) from None

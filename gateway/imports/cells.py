"""What may stand in the cells of an imported file. A cell of several values has `;` or `,` between them."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from typing import Any

from gateway.accounts.accounts import OPERATION, check_name, check_note
from gateway.accounts.key_settings import MAX_LIMIT, check_key_name
from gateway.admin.times import moment
from gateway.amounts import parse_amount
from gateway.config.toml_reader import suggestion
from gateway.whole_numbers import parse_whole_number


def account_name(text: str) -> str:
    """The name of an account."""
    check_name(text, "account")
    return text


def key_name(text: str) -> str:
    """The name of a key."""
    check_key_name(text)
    return text


def positive(text: str) -> int:
    """An amount above zero, in nano-units."""
    amount = parse_amount(text)
    if amount <= 0:
        raise ValueError("must be above 0")
    return amount


def not_negative(text: str) -> int:
    """An amount that is not below zero, in nano-units."""
    amount = parse_amount(text)
    if amount < 0:
        raise ValueError("must not be below 0")
    return amount


def count(text: str) -> int:
    """A limit of requests, tokens or calls."""
    number = parse_whole_number(text)
    if not 1 <= number <= MAX_LIMIT:
        raise ValueError(f"{text!r} is no whole number from 1 to {MAX_LIMIT}")
    return number


def operation(text: str) -> str:
    """The id of an operation."""
    if not OPERATION.fullmatch(text):
        raise ValueError("an operation id is 1 to 128 printable ASCII characters without spaces")
    return text


def note(text: str) -> str:
    """A text for people."""
    check_note(text)
    return text


def time(text: str) -> datetime:
    """An RFC 3339 time, or a date. A duration is not possible: it would mean another time at each import."""
    try:
        return moment(text)
    except ValueError:
        raise ValueError(f"{text!r} is no time such as 2026-12-31T23:59:59Z") from None


def one_of(known: Collection[str], what: str) -> Callable[[str], Any]:
    """One of these words."""

    def parse(text: str) -> str:
        if text not in known:
            raise ValueError(f"there is no {what} {text!r}{suggestion(text, known)}")
        return text

    return parse


def several(parse: Callable[[str], Any]) -> Callable[[str], list[Any]]:
    """Values, each once."""

    def parse_all(text: str) -> list[Any]:
        parts = [part.strip() for part in re.split("[;,]", text)]
        return list(dict.fromkeys(parse(part) for part in parts if part))

    return parse_all


def model(names: Mapping[str, str]) -> Callable[[str], str]:
    """A model of the configuration; an alias becomes the model's name."""

    def parse(text: str) -> str:
        if text not in names:
            raise ValueError(f"there is no model {text!r} in the configuration{suggestion(text, names)}")
        return names[text]

    return parse

"""Refusals of `gateway.accounts` as errors of the one tree."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gateway.accounts.accounts import Account, Accounts, Refused
from gateway.errors import InvalidValue, NotFound


@contextmanager
def refusals_translated() -> Iterator[None]:
    """A `Refused` becomes InvalidValue with the same text."""
    try:
        yield
    except Refused as error:
        raise InvalidValue(str(error)) from None


async def existing_account(accounts: Accounts, name: str) -> Account:
    """The account; NotFound if there is none."""
    try:
        return await accounts.show(name)
    except Refused as error:
        raise NotFound(str(error)) from None

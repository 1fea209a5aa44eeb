"""Calls of a moment ago in the history of acme."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from tests.console.client import Console
from tests.history.made_lines import Account


def ago(**delta: float) -> str:
    """A time in the past, as `Account.call` takes it. An hour ago may be in the month before."""
    return (datetime.now(UTC) - timedelta(**delta)).strftime("%Y-%m-%dT%H:%M:%S")


async def history(console: Console, name: str = "acme") -> Account:
    """Writes lines of the account."""
    return Account(await console.services.database(), name)


async def calls(console: Console, *times: str, cost: int = 1_000_000, **meta: Any) -> list[str]:
    """Add calls of acme; returns their request ids."""
    account = await history(console)
    found = [account.call(at, cost, **meta) for at in times]
    account.flush()
    return found

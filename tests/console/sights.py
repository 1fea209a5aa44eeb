"""A console with something to see on every page."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from gateway.admin.user_rows import User
from gateway.billing.price import Price
from gateway.billing.usage import Usage
from gateway.ledger.price_tables import store_prices
from tests.console.client import PASSWORD, Console
from tests.console.history import history

PRICE = Price(version="v1", input=1_000_000_000, output=2_500_000_000)


async def furnished(c: Console) -> User:
    """An owner of acme with keys of several kinds and some days of calls."""
    user = await c.user("ann.owner@example.com", password=PASSWORD, acme="owner", other="member")
    keys, store = c.services.store.keys, c.services.store
    await store_prices(store.store, [PRICE])
    laptop = await keys.create("acme", name="Ann's laptop", user=user.id, rpm=600, budget=5_000_000_000, every="month")
    robot = await keys.create("acme", name="nightly reports", models=["fake-chat"], expires=in_days(90))
    gone = await keys.create("acme", name="old script")
    await keys.revoke(gone.id)
    account, now = await history(c), datetime.now(UTC)
    for hours in range(24 * 7, 0, -1):
        at = (now - timedelta(hours=hours)).strftime("%Y-%m-%dT%H:%M:%S")
        usage = Usage(in_text=900 + hours * 13 % 700, in_cached=hours % 3 * 100, out_text=80 + hours * 7 % 300)
        outcome = "upstream_timeout" if hours % 29 == 0 else "ok"
        for key, model in ((laptop, "fake-chat"), *([(robot, "tiny")] if hours % 2 else [])):
            account.call(
                at,
                PRICE.cost(usage) * (3 if model == "fake-chat" else 1),
                usage=usage,
                key=key.id,
                user=user.id if key is laptop else "",
                model=model,
                provider="fake",
                price="v1",
                price_factor="1",
                outcome=outcome,
                tags={"team": "search"} if hours % 2 else {},
                hold=4_000_000,
                duration_ms=900 + hours,
                first_token_ms=120,
                attempts=1,
            )
    account.flush()
    return user


def in_days(days: int) -> datetime:
    """A time in the future."""
    return datetime.now(UTC) + timedelta(days=days)

"""Whether the money of an account runs low, for the notice on its pages."""

from __future__ import annotations

from msgspec import Struct

from gateway.accounts.accounts import Account
from gateway.config.settings import Settings
from gateway.ledger.scripts import Links, slot


class LowBalance(Struct, frozen=True):
    """What calls may still spend, in nano-units; `is_low` if that is not above the threshold."""

    available: int
    threshold: int
    is_low: bool


async def low_balance(links: Links, settings: Settings, account: Account) -> LowBalance:
    """Compare with the account's own threshold of `gateway notify threshold`, else with that of `[notify]`."""
    name = slot(account.name)
    own = await links.link(name).call("HGET", name, "low")
    threshold = int(own) if own is not None else settings.notify.balance_low
    return LowBalance(account.available, threshold, account.available <= threshold)

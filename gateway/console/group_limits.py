"""The limits that hold for an account, as texts: its own and those of its group. Of two the lower one counts."""

from __future__ import annotations

from msgspec import structs

from gateway.accounts.accounts import Account
from gateway.config.settings import Settings
from gateway.ledger.limits import GroupLimits, GroupTable

COUNTS = {"rpm": "Requests per minute", "tpm": "Tokens per minute", "concurrency": "Calls at the same time"}


def group_limits(settings: Settings, group: str) -> dict[str, str]:
    """What holds without a limit of the account's own, by the names of `COUNTS`: "600, of the group partners"."""
    return {name: _text(None, most, group) for name, most in _limits(settings, group).items()}


def account_limits(settings: Settings, account: Account) -> dict[str, str]:
    """What holds for the account, by the names of `COUNTS`."""
    of_group = _limits(settings, account.group)
    return {name: _text(getattr(account, name), of_group[name], account.group) for name in COUNTS}


def _limits(settings: Settings, group: str) -> dict[str, int | None]:
    table = GroupTable({name: GroupLimits(**structs.asdict(one)) for name, one in settings.groups.items()})
    limits = table.of(group)
    return {name: getattr(limits, name) for name in COUNTS}


def _text(own: int | None, most: int | None, group: str) -> str:
    if most is None or (own is not None and own <= most):
        return "no limit" if own is None else f"{own:,}"
    beside = "" if own is None else f" (its own: {own:,})"
    return f"{most:,}, of the group {group}{beside}"

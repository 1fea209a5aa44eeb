"""Counts the replay of a stored answer as a request of its key and of its account; nothing is held or charged."""

from __future__ import annotations

from collections.abc import Mapping

from gateway import errors
from gateway.billing.quote import Quote
from gateway.errors import GatewayError
from gateway.ledger.admission import (
    MAX_TRIES,
    NOACCT,
    OK,
    PLAIN_REFUSALS,
    REGROUP,
    RPM,
    call_arguments,
    group_arguments,
    group_keeps_changing,
)
from gateway.ledger.api_key import ApiKey
from gateway.ledger.limits import NO_LIMITS, GroupLimits, RateState
from gateway.ledger.scripts import Links, Scripts, slot


async def count_replay(
    links: Links, scripts: Scripts, request_id: str, key: ApiKey, quote: Quote, *, groups: Mapping[str, GroupLimits]
) -> RateState | None:
    """The state of the limits after the replay, None without limits. A refusal raises 401, 403 or 429.

    A refused replay is not counted.
    """
    account, group = slot(key.account), "default"
    for _ in range(MAX_TRIES):
        args = group_arguments(group, groups.get(group, NO_LIMITS))
        args += call_arguments(group, request_id, key, quote)
        first, *rest = await links.link(account).eval(scripts.replay, [account], args)
        if first == NOACCT:
            raise errors.InvalidApiKey()
        if first != REGROUP:
            wait, *numbers = rest
            rates = RateState(*numbers) if numbers[0] >= 0 or numbers[3] >= 0 else None
            if first != OK:
                raise _refusal(first, wait, rates)
            return rates
        group = rest[0].decode()
    raise group_keeps_changing()


def _refusal(code: int, wait: int, rates: RateState | None) -> GatewayError:
    if code != RPM:
        return PLAIN_REFUSALS.get(code, errors.InvalidApiKey)()
    limited = errors.RequestRateLimited(retry_after=wait / 1_000_000)
    if rates is not None:
        limited.rate_headers = rates.headers()
    return limited

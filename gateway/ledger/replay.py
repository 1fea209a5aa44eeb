"""Counts the replay of a stored answer as a request of its key and of its account; nothing is held or charged."""

from __future__ import annotations

from typing import Any

from gateway import errors
from gateway.billing.quote import Quote
from gateway.errors import GatewayError
from gateway.ledger.admission import GONE, KEY, OK, PLAIN_REFUSALS, RPM, SCOPED, key_is_gone, run_rules
from gateway.ledger.api_key import ApiKey
from gateway.ledger.limits import GroupTable, RateState
from gateway.ledger.scripts import Scripts
from gateway.store.links import Links


async def count_replay(
    links: Links, scripts: Scripts, request_id: str, key: ApiKey, quote: Quote, *, groups: GroupTable
) -> RateState | None:
    """The state of the limits after the replay, None without limits. A refusal raises 401, 403 or 429.

    A refused replay is not counted.
    """
    _, reply = await run_rules(links, scripts.replay, request_id, key, quote, groups=groups)
    code, wait, *numbers = reply
    rates = RateState(*numbers) if numbers[0] >= 0 or numbers[3] >= 0 else None
    if code != OK:
        raise _refusal(code, wait, rates)
    return rates


def _refusal(code: int, wait: Any, rates: RateState | None) -> GatewayError:
    if code == KEY and wait == GONE:
        return key_is_gone()
    if code == SCOPED:
        return errors.KeyRestricted(scopes=wait.decode())
    if code != RPM:
        return PLAIN_REFUSALS.get(code, errors.InvalidApiKey)()
    limited = errors.RequestRateLimited(retry_after=wait / 1_000_000)
    if rates is not None:
        limited.rate_headers = rates.headers()
    return limited

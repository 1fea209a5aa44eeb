"""`GET /v1/usage`: what the caller's account, only its user, or a session has used, by time, model, key, …

The worker checks the query and passes the question to the process that has the database. A key with a user sees that
user's calls only. No row names a provider.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from urllib.parse import parse_qsl

from gateway.admin.times import moment
from gateway.api.handler import KeyedHandler
from gateway.errors import InvalidValue, UnknownParameter
from gateway.history.usage_question import UsageQuestion
from gateway.inference.sessions import PLAIN

PERIODS = ("hour", "day", "month")
GROUPS = (*PERIODS, "model", "key", "endpoint", "outcome")
PARAMETERS = ("from", "to", "group_by", "session")
DAY = 86_400  # seconds
DEFAULT_DAYS, MOST_DAYS, MOST_DAYS_OF_HOURS = 30, 366, 31


class UsageHandler(KeyedHandler):
    """Sums of usage."""

    endpoint_name = "usage"

    async def get(self) -> None:
        key = (await self.confirm()).key
        values = _query(self.exchange.head.start_line.path.partition("?")[2])
        now = int(time.time())
        until = _seconds(values, "to", now)
        since = _seconds(values, "from", until - DEFAULT_DAYS * DAY)
        groups = _groups(values.get("group_by", "day"))
        _check_range(since, until, groups)
        question = UsageQuestion(
            account=key.account,
            key=key.id,
            user=key.user,
            since=since * 1_000_000,
            until=until * 1_000_000,
            group_by=groups,
            currency=self.services.catalog.currency,
            session=_session(values),
        )
        self.reply.send(await self.services.usage_history.usage(question))
        self.log_access()


def _query(text: str) -> Mapping[str, str]:
    try:
        pairs = parse_qsl(text, keep_blank_values=True, strict_parsing=bool(text), errors="strict", max_num_fields=16)
    except ValueError:
        raise InvalidValue("The query is not valid") from None
    for name, _ in pairs:
        if name not in PARAMETERS:
            raise UnknownParameter(f"Unknown parameter: '{name[:64]}'; known: {', '.join(PARAMETERS)}", param=name[:64])
    if len(dict(pairs)) < len(pairs):
        raise InvalidValue("A parameter is given twice")
    return dict(pairs)


def _seconds(values: Mapping[str, str], name: str, default: int) -> int:
    """Seconds since 1970 of an RFC 3339 time or a date in UTC."""
    text = values.get(name)
    if text is None:
        return default
    try:
        return int(moment(text).timestamp())
    except ValueError:
        raise InvalidValue(
            f"Invalid '{name}': expected a date or a time such as 2026-10-31T00:00:00Z (a + is written %2B)", param=name
        ) from None


def _groups(text: str) -> list[str]:
    groups = [name for name in text.split(",") if name]
    for name in groups:
        if name not in GROUPS:
            raise InvalidValue(f"Invalid 'group_by': known are {', '.join(GROUPS)}", param="group_by")
    if len(set(groups)) < len(groups) or sum(name in PERIODS for name in groups) > 1:
        raise InvalidValue("Invalid 'group_by': at most one of hour, day and month, and none twice", param="group_by")
    return groups


def _session(values: Mapping[str, str]) -> str:
    """The id of a session; empty without one."""
    text = values.get("session")
    if text is not None and not PLAIN.fullmatch(text):
        raise InvalidValue("Invalid 'session': expected the id of a session, as receipts show it", param="session")
    return text or ""


def _check_range(since: int, until: int, groups: list[str]) -> None:
    if not 0 <= since < until:
        raise InvalidValue("Invalid 'to': it is not after 'from'", param="to")
    most = MOST_DAYS_OF_HOURS if "hour" in groups else MOST_DAYS
    if until - since > most * DAY:
        raise InvalidValue(f"Invalid 'from': the range is longer than {most} days", param="from")

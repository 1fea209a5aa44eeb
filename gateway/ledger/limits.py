"""Limits of a group, and their state for the six `x-ratelimit-*` headers (docs/api.md).

A key's own limits have a bucket per key; its group's limits have a bucket per account. A request needs room in both.
`RateState` describes the bucket with less room.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from gateway.amounts import NANO


class GroupLimits(Struct, frozen=True):
    """Requests and tokens per minute, and concurrent calls, of each account of a group; None is no limit.

    `price_factor` multiplies the prices of the group, in 1e-9.
    """

    rpm: int | None = None
    tpm: int | None = None
    concurrency: int | None = None
    price_factor: int = NANO
    max_session_cost: int | None = None  # nano-units; what a session may cost in a day


NO_LIMITS = GroupLimits()
DEFAULT_GROUP = "default"  # which exists without a table of its own


class GroupTable:
    """The limits of each group by name. A group that is not among them has the lowest limit of all groups in each kind.

    Its prices are the list prices. Where no group has a limit, an unknown group has one request a minute and one call
    at a time: its own limits may have been the only ones, and they are gone.
    """

    __slots__ = ("_limits", "_unknown")

    def __init__(self, limits: Mapping[str, GroupLimits]) -> None:
        self._limits = limits if DEFAULT_GROUP in limits else {DEFAULT_GROUP: NO_LIMITS, **limits}
        groups = self._limits.values()
        self._unknown = GroupLimits(
            rpm=min((group.rpm for group in groups if group.rpm is not None), default=1),
            tpm=min((group.tpm for group in groups if group.tpm is not None), default=None),
            concurrency=min((group.concurrency for group in groups if group.concurrency is not None), default=1),
            max_session_cost=min(
                (group.max_session_cost for group in groups if group.max_session_cost is not None), default=None
            ),
        )

    def of(self, group: str) -> GroupLimits:
        """The limits of each account of `group`."""
        return self._limits.get(group, self._unknown)


class RateState(Struct, frozen=True):
    """The limit, the remaining part of it, and µs until it is full again; -1 where there is no limit."""

    limit_requests: int
    remaining_requests: int
    reset_requests: int
    limit_tokens: int
    remaining_tokens: int
    reset_tokens: int

    def headers(self) -> dict[str, str]:
        """The headers of the limits that exist."""
        headers: dict[str, str] = {}
        self.write(headers)
        return headers

    def write(self, headers: dict[str, str]) -> None:
        """Set the headers of the limits that exist."""
        if self.limit_requests >= 0:
            headers["x-ratelimit-limit-requests"] = f"{self.limit_requests}"
            headers["x-ratelimit-remaining-requests"] = f"{self.remaining_requests}"
            headers["x-ratelimit-reset-requests"] = duration_text(self.reset_requests)
        if self.limit_tokens >= 0:
            headers["x-ratelimit-limit-tokens"] = f"{self.limit_tokens}"
            headers["x-ratelimit-remaining-tokens"] = f"{self.remaining_tokens}"
            headers["x-ratelimit-reset-tokens"] = duration_text(self.reset_tokens)


def duration_text(microseconds: int) -> str:
    """Go-style text, rounded up to a millisecond: `120ms`, `7.66s`, `6m0s`, `1h0m12s`, `0s`."""
    total = -(-microseconds // 1000)
    if total <= 0:
        return "0s"
    if total < 1000:
        return f"{total}ms"
    seconds, ms = divmod(total, 1000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    tail = f"{seconds}.{ms:03d}".rstrip("0") if ms else str(seconds)
    if hours:
        return f"{hours}h{minutes}m{tail}s"
    return f"{minutes}m{tail}s" if minutes else f"{tail}s"

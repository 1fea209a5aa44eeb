"""Whether this machine reaches its upstreams, as `/readyz` says it.

It does not while every target in use fails. When calls may probe a target again, a balancer that reads `/readyz` would
give the machine its share of the calls, and all but the probe would fail. So a connection without a call is tried
first, and the machine is ready when one is made. Sharp edge: after `AT_MOST` seconds it is ready without that, because
a host that no call has used yet is not tried.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from gateway.routing.circuit_registry import CircuitRegistry

AT_MOST = 300.0  # seconds

Connects = Callable[[], Awaitable[bool | None]]


class UpstreamReach:
    """`look` once a second. `connects`: whether an upstream takes a connection; None if that cannot be tried."""

    def __init__(self, health: CircuitRegistry, connects: Connects) -> None:
        self._health = health
        self._connects = connects
        self._reaches = True
        self._due: float | None = None  # since when calls may probe a target that nothing has reached yet
        self._attempt: asyncio.Task[None] | None = None

    def look(self, now: float) -> bool:
        """Whether it does, at this moment."""
        if self._health.every_target_fails(now):
            self._reaches, self._due = False, None
        elif not self._health.every_target_failed(now):
            self._reaches = True
        elif not self._reaches:
            self._due = now if self._due is None else self._due
            if now >= self._due + AT_MOST:
                self._reaches = True
            elif self._attempt is None:
                self._attempt = asyncio.create_task(self._try())
        return self._reaches

    async def _try(self) -> None:
        """Connect to any upstream."""
        try:
            if await self._connects() is not False and self._due is not None:
                self._reaches = True
        finally:
            self._attempt = None

    def close(self) -> None:
        """Try nothing more."""
        if self._attempt is not None:
            self._attempt.cancel()

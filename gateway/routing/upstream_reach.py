"""Whether this machine reaches its upstreams, as `/readyz` says it.

It does not while every target in use fails. When calls may probe a target again, a balancer that reads `/readyz` would
give the machine its share of the calls, and all but the probe would fail. So a connection without a call is tried
first, and the machine is ready when one is made. Sharp edge: after `AT_MOST` seconds it is ready without that, because
a host that no call has used yet is not tried.

A machine that has lost its way out sees no failure until `connect_timeout` of several calls is over. So it is not ready
either while calls wait for a connection, none is made, and no host takes one that is tried beside them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Protocol

from gateway.routing.circuit_registry import CircuitRegistry

AT_MOST = 300.0  # seconds


class Connections(Protocol):
    """The connections of this process to its upstreams."""

    @property
    def made(self) -> int:
        """How many were made so far."""

    def waits(self) -> bool:
        """Whether calls wait for connections, and none is made."""

    async def connects(self) -> bool | None:
        """Whether an upstream takes a connection; None if that cannot be tried."""


class UpstreamReach:
    """`look` once a second."""

    def __init__(self, health: CircuitRegistry, connections: Connections) -> None:
        self._health = health
        self._connections = connections
        self._reaches = True
        self._due: float | None = None  # since when calls may probe a target that nothing has reached yet
        self._cut_off: float | None = None  # since when no connection is made, though no target has failed too often
        self._attempt: asyncio.Task[None] | None = None

    def look(self, now: float) -> bool:
        """Whether it does, at this moment."""
        if self._health.every_target_fails(now):
            self._reaches, self._due, self._cut_off = False, None, None
        elif not self._health.every_target_failed(now):
            self._reaches = not self._is_cut_off(now)
        elif not self._reaches:
            self._due = now if self._due is None else self._due
            if now >= self._due + AT_MOST:
                self._reaches = True
            else:
                self._begin(self._probe())
        return self._reaches

    def _is_cut_off(self, now: float) -> bool:
        self._due = None
        if self._cut_off is not None and now >= self._cut_off + AT_MOST:
            self._cut_off = None
        elif self._cut_off is not None or self._connections.waits():
            self._begin(self._doubt(now))
        return self._cut_off is not None

    def _begin(self, attempt: Coroutine[None, None, None]) -> None:
        """Start it, if none runs."""
        if self._attempt is not None:
            attempt.close()
            return
        self._attempt = asyncio.create_task(attempt)
        self._attempt.add_done_callback(self._ended)

    def _ended(self, attempt: asyncio.Task[None]) -> None:
        self._attempt = None

    async def _probe(self) -> None:
        """Connect to any upstream; the targets may be probed if one answers."""
        if await self._connections.connects() is not False and self._due is not None:
            self._reaches = True

    async def _doubt(self, now: float) -> None:
        """Connect to any upstream while calls wait; they may have got a connection meanwhile."""
        before = self._connections.made
        if await self._connections.connects() is not False or self._connections.made != before:
            self._cut_off = None
        elif self._cut_off is None:
            self._cut_off = now

    def close(self) -> None:
        """Try nothing more."""
        if self._attempt is not None:
            self._attempt.cancel()

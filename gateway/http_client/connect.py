"""Connects to one host and port: resolves its addresses and uses the first that answers (RFC 8305, "happy eyeballs").

The next address is tried in parallel after 250 ms, or as soon as the current one fails; address families alternate.
uvloop has no such option, and it does not close a connected socket that is passed to it if the connection is lost at
once. Sharp edge: connections to the slower addresses are closed, but their servers have seen them.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import ssl
from collections.abc import Callable
from itertools import chain, zip_longest
from typing import Final, TypeVar

from gateway.errors import Overloaded

NAMES_LAST: Final = 10.0  # seconds that a resolved name is cached, so that a burst of connections resolves it once
HEAD_START: Final = 0.25  # seconds

P = TypeVar("P", bound=asyncio.BaseProtocol)
Made = tuple[asyncio.Transport, P]
#: Failures to connect that are this machine's own: no descriptor or no memory is left.
OWN_FAILURES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS})


class UpstreamRoute:
    """One host and port, with TLS or without."""

    def __init__(self, host: str, port: int, tls: ssl.SSLContext | None) -> None:
        self._host = host
        self._port = port
        self._tls = tls
        self._hosts: asyncio.Future[list[str]] | None = None
        self._known_until = 0.0

    def __str__(self) -> str:
        return f"{self._host}:{self._port}"

    async def open(self, make: Callable[[], P]) -> P:
        """Connect, with TLS if needed, and return the protocol that `make` made; OSError if no address answers."""
        hosts = await self._resolve()
        if len(hosts) == 1:
            return (await self._connect(hosts[0], make))[1]
        return await self._race(hosts, make)

    async def _connect(self, host: str, make: Callable[[], P]) -> Made[P]:
        return await asyncio.get_running_loop().create_connection(
            make, host, self._port, ssl=self._tls, server_hostname=self._host if self._tls else None
        )

    async def _race(self, hosts: list[str], make: Callable[[], P]) -> P:
        running: set[asyncio.Task[Made[P]]] = set()
        found: P | BaseException | None = None
        try:
            found = await self._first(hosts, make, running)
            if isinstance(found, BaseException):
                raise found
            return found
        finally:
            for attempt in running:
                attempt.cancel()
                attempt.add_done_callback(_close_loser)
            del found  # a failure's traceback holds this frame

    async def _first(
        self, hosts: list[str], make: Callable[[], P], running: set[asyncio.Task[Made[P]]]
    ) -> P | BaseException:
        """The first connection, or the last failure, which is not raised here: its traceback would refer to this frame.

        `running` has the attempts that still run.
        """
        failure: BaseException = OSError("no address")
        for host in hosts:
            running.add(asyncio.create_task(self._connect(host, make)))
            wait = None if host is hosts[-1] else HEAD_START
            while running:
                done, _ = await asyncio.wait(running, timeout=wait, return_when=asyncio.FIRST_COMPLETED)
                for attempt in done:
                    error = attempt.exception()
                    running.discard(attempt)
                    if error is None:
                        return attempt.result()[1]
                    failure = error
                if wait is not None:
                    break
        return failure

    async def _resolve(self) -> list[str]:
        """The host's addresses, resolved once for all callers within `NAMES_LAST` seconds."""
        loop = asyncio.get_running_loop()
        if self._hosts is None or (self._hosts.done() and loop.time() >= self._known_until):
            self._hosts = asyncio.ensure_future(self._look_up(loop))
            self._hosts.add_done_callback(self._looked_up)
        # Shielded: a caller that is cancelled must not cancel the look-up of the others.
        return await asyncio.shield(self._hosts)

    async def _look_up(self, loop: asyncio.AbstractEventLoop) -> list[str]:
        found = await loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
        families: dict[int, list[str]] = {}
        for family, _, _, _, address in found:
            families.setdefault(family, []).append(str(address[0]))
        return [host for host in chain.from_iterable(zip_longest(*families.values())) if host is not None]

    def _looked_up(self, hosts: asyncio.Future[list[str]]) -> None:
        failed = hosts.cancelled() or hosts.exception() is not None
        self._known_until = 0.0 if failed else hosts.get_loop().time() + NAMES_LAST


def _close_loser(attempt: asyncio.Task[Made[P]]) -> None:
    if not attempt.cancelled() and attempt.exception() is None:
        attempt.result()[0].abort()


def own_failure(error: BaseException) -> Overloaded | None:
    """The error for a connection that failed for want of local resources; None if the cause is elsewhere.

    It says nothing about the upstream, so it is a 503 of the gateway: the circuits do not count it, and no other target
    is tried, because it would fail in the same way.
    """
    if isinstance(error, socket.gaierror):
        # A resolver that cannot open its files or a socket reports only that the name is unknown.
        missing = _missing()
    else:
        missing = error.errno if isinstance(error, OSError) and error.errno in OWN_FAILURES else None
    return None if missing is None else Overloaded(detail=f"no connection to an upstream: {os.strerror(missing)}")


def _missing() -> int | None:
    """The error that the system gives for one more descriptor, if it gives one."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        return error.errno if error.errno in OWN_FAILURES else None
    return None

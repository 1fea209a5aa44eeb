"""A person in the console, behind the proxy: pages read one after the other, and which of them failed."""

from __future__ import annotations

import asyncio
import itertools
import socket
import ssl
import time
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from msgspec import Struct

from tests.console.client import PASSWORD, Browser
from tests.fleet.network import FRONT
from tests.fleet.nginx import PORT
from tests.processes.proxy_programs import CONSOLE

PAGES = ("/profile", "/site", "/site/accounts", "/site/users", "/site/audit", "/site/providers")
PAUSE = 1.0  # seconds between two pages
WAITS = 20.0


class Page(Struct):
    """One page that was asked for."""

    path: str
    started: float
    ended: float = 0.0
    failure: str = ""


class Resolver(AbstractResolver):
    """A name server that knows the proxy's address only."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """The proxy."""
        return [ResolveResult(hostname=host, host=FRONT, port=port, family=socket.AF_INET, proto=0, flags=0)]

    async def close(self) -> None:
        """Nothing is open."""


class Person:
    """Somebody with a session."""

    def __init__(self, trust: ssl.SSLContext) -> None:
        connector = aiohttp.TCPConnector(ssl=trust, resolver=Resolver())
        self._http = aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=WAITS))
        self._browser = Browser(self._http, f"https://{CONSOLE}:{PORT}", "")
        self._over = False
        self._task: asyncio.Task[None] | None = None
        self.pages: list[Page] = []

    async def sign_in(self, link: str) -> None:
        """Open the link of an invitation and set a password."""
        token = link.rpartition("=")[2]
        form: dict[str, Any] = {"token": token, "action": "password", "password": PASSWORD, "repeated": PASSWORD}
        await self._browser.post("/sign-in/link", page=f"/sign-in/link?token={token}", **form)

    def begin(self) -> None:
        """Read pages until `ended`."""
        self._task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        for path in itertools.cycle(PAGES):
            if self._over:
                return
            page = Page(path, time.monotonic())
            try:
                shown = await self._browser.ask("GET", path)
                page.failure = "" if shown.status == 200 else f"HTTP {shown.status} {shown.location}".strip()
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                page.failure = type(error).__name__
            page.ended = time.monotonic()
            self.pages.append(page)
            await asyncio.sleep(PAUSE)

    async def ended(self) -> None:
        """No more pages."""
        self._over = True
        if self._task is not None:
            await self._task
        await self._http.close()

"""A rolling restart of two gateways under load, as docs/operations/upgrade.md describes it, and its requests."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from msgspec import Struct, field

from tests.delays import caller_is_silent_for, operator_waits_for
from tests.processes.conftest import Yard
from tests.processes.served import Served, unmanaged_environment

PEPPER = "3" * 64
PACE = 0.1  # seconds between two requests of a client
CALL = {"messages": [{"role": "user", "content": "Hi"}]}


class Answers(Struct):
    """Statuses of all requests; one that had no whole answer has the name of what happened."""

    statuses: Counter[str] = field(default_factory=Counter)

    @property
    def failed(self) -> int:
        """Requests that were not answered as they should."""
        return self.statuses.total() - self.statuses["200"]


async def two_gateways(
    yard: Yard, store: str, *, workers: int = 1, console_ports: Sequence[int] = (), **options: Any
) -> list[Served]:
    """Two gateways with one store, as on two machines; both serve, and both take the key of the first."""
    each: list[dict[str, Any]] = [{"console_port": port} for port in console_ports] or [{}, {}]
    gateways = [
        yard.make(name=name, store=store, workers=workers, **own, **options)
        for name, own in zip(("one", "two"), each, strict=True)
    ]
    for gateway in gateways:
        gateway.data_dir.mkdir(mode=0o700)
        pepper = gateway.data_dir / "pepper"
        pepper.write_text(PEPPER)
        pepper.chmod(0o600)
        await gateway.started(workers=workers)
    await asyncio.to_thread(gateways[0].create_key)
    gateways[1].api_key = gateways[0].api_key
    return gateways


@asynccontextmanager
async def load(
    url: str,
    key: str,
    *,
    clients: int = 4,
    model: str = "quick",
    connector: Callable[[], aiohttp.TCPConnector] = aiohttp.TCPConnector,
) -> AsyncIterator[Answers]:
    """Clients that call the address one request after the other, whole answers and streams in turn."""
    answers, running = Answers(), asyncio.Event()
    running.set()

    async def client(number: int) -> None:
        while running.is_set():
            number += 1
            answers.statuses[await _call(url, key, model, connector(), streams=number % 2 == 0)] += 1
            await caller_is_silent_for(PACE)

    tasks = [asyncio.create_task(client(number)) for number in range(clients)]
    try:
        yield answers
    finally:
        running.clear()
        await asyncio.gather(*tasks)


async def _call(url: str, key: str, model: str, connector: aiohttp.TCPConnector, *, streams: bool) -> str:
    body, headers = {**CALL, "model": model, "stream": streams}, {"Authorization": f"Bearer {key}"}
    try:
        async with (
            aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=60.0)) as session,
            session.post(f"{url}/v1/chat/completions", json=body, headers=headers) as response,
        ):
            text = await response.text()
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        return type(error).__name__
    is_whole = text.endswith("data: [DONE]\n\n") if streams else _is_json(text)
    return str(response.status) if is_whole or response.status != 200 else "incomplete"


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


async def stopped(gateway: Served) -> None:
    """End a gateway as an operator does."""
    os.kill(gateway.pid, signal.SIGTERM)
    assert await gateway.ended() == 0


async def roll(gateways: Sequence[Served], *, pause: float, workers: int = 1) -> None:
    """Restart one gateway after the other; `pause`: seconds for which one is ready before the next is stopped."""
    for gateway in gateways:
        await stopped(gateway)
        await gateway.started(workers=workers)
        await operator_waits_for(pause)


class Installed(Served):
    """A gateway whose version can be replaced."""

    def install(self, source: Path | None) -> None:
        """Use the code of this folder from now on, or that of this version."""
        self.environment = unmanaged_environment()
        if source is not None:
            self.environment["PYTHONPATH"] = str(source)

    def create_key(self) -> None:
        """Make the account and the key with the version that is installed."""
        self._json("accounts", "create", "test", "--balance", "1000")
        self.api_key = self._json("keys", "create", "test")["key"]

    def _json(self, *arguments: str) -> Any:
        done = self.run(*arguments, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


def install_first(yard: Yard, source: Path, models: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each gateway that is made from now on have the code of this folder at first."""
    make = yard.make

    def installed(**options: Any) -> Served:
        gateway = make(models, kind=Installed, **options)
        assert isinstance(gateway, Installed)
        gateway.install(source)
        return gateway

    monkeypatch.setattr(yard, "make", installed)


async def replace(gateway: Installed, source: Path | None, *, pause: float) -> None:
    """Restart a gateway with another version; `pause`: as of `roll`."""
    gateway.install(source)
    await roll([gateway], pause=pause)


async def is_upgraded(gateways: Sequence[Served]) -> bool:
    """Whether an importer of this version uses the database."""
    return any([(await gateway.metrics()).get("gateway_database_up") == 1.0 for gateway in gateways])

"""The console on a port of the loopback, over an empty store and an empty database."""

from __future__ import annotations

import tomllib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from argon2 import PasswordHasher

from gateway.accounts.pepper import load_pepper
from gateway.admin.configuration_check import CheckOptions, Findings
from gateway.admin.password_hashes import PasswordHashes
from gateway.admin.services import AdminServices
from gateway.admin_api.api import AdminApi
from gateway.admin_api.authentication import Authentication
from gateway.admin_api.server import AdminServer
from gateway.config.loader import parse
from gateway.console.handler import console_rules
from gateway.console.site import Site
from gateway.runtime.sockets import bind_all
from gateway.store import Store
from tests.admin_api.workers import MadeUpWorkers
from tests.console.client import Console

OpenConsole = Callable[..., AbstractAsyncContextManager[Console]]


MODELS = """
[models.fake-chat]
provider = "fake"
aliases = ["short"]
context_window = 8000
price = { input = 1, output = 2.5, currency = "USD" }

[models.tiny]
provider = "fake"
price = { input = 0.000001, output = 0.000007, currency = "USD" }

[models.secret]
provider = "fake"
groups = ["vip"]
price = { input = 3, output = 4, currency = "USD" }

[groups.vip]
"""


async def sound(file: Path | None, options: CheckOptions) -> Findings:
    """What the check of a sound file finds; the tests have no file."""
    return Findings("")


@pytest.fixture
def database_url() -> str:
    """SQLite; a module whose tests need both kinds imports the fixture of `tests.admin_api.both_databases`."""
    return ""


@pytest.fixture
def hashes() -> Iterator[PasswordHashes]:
    """Hashes that cost little."""
    hashes = PasswordHashes(PasswordHasher(time_cost=1, memory_cost=8, parallelism=1))
    yield hashes
    hashes.close()


@pytest.fixture
def console(
    valkey: Path, tmp_path: Path, database_url: str, hashes: PasswordHashes, monkeypatch: pytest.MonkeyPatch
) -> OpenConsole:
    """Serves the console, with the accounts acme and other. `settings` are those of `[console]`."""

    monkeypatch.setattr("gateway.console.pages.site_models.check_in_thread", sound)

    @asynccontextmanager
    async def opened(*, models: str = MODELS, **settings: Any) -> AsyncIterator[Console]:
        document: dict[str, Any] = {
            "store": {"data_dir": str(tmp_path / "var"), "url": f"unix://{valkey}"},
            "database": {"url": database_url},
            "console": settings,
            "server": {"trusted_proxies": ["127.0.0.1"]},
            "providers": {"fake": {"plugin": "fake"}},
            **tomllib.loads(models, parse_float=Decimal),
        }
        parsed = parse(document)
        load_pepper(parsed.data_dir)  # as `gateway serve` did at its first start
        store = await Store.open(valkey, timeout=5.0)
        await store.client.flushall()
        services = AdminServices(parsed, store, workers := MadeUpWorkers(), hashes=hashes)
        site = Site(services)
        server = AdminServer(AdminApi(services, Authentication(services)), pages=console_rules(site))
        [sock] = bind_all("127.0.0.1", 0, 1)
        server.start(sock)
        try:
            for name in ("acme", "other"):
                await services.store.accounts.create(name, balance=25_000_000_000)
            async with AsyncExitStack() as stack:
                yield Console(services, f"http://127.0.0.1:{server.address[1]}", site, stack, workers=workers)
        finally:
            await server.close()
            site.access_log.flush()
            await services.close()
            await store.close()

    return opened

"""Opens the console on a port of the loopback."""

from __future__ import annotations

import tomllib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

from gateway.accounts.pepper import load_pepper
from gateway.admin_api.api import AdminApi
from gateway.admin_api.authentication import Authentication
from gateway.admin_api.body_limits import LIMITS
from gateway.admin_api.server import AdminServer
from gateway.config.loader import parse
from gateway.console.handler import console_rules
from gateway.console.site import Site
from gateway.http_server.limits import ServerLimits
from gateway.people.password_hashes import PasswordHashes
from gateway.runtime.sockets import bind_all
from gateway.services.services import AdminServices
from gateway.store import Store
from tests.admin_api.workers import MadeUpWorkers
from tests.console.client import Console

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


@asynccontextmanager
async def opened_console(
    valkey: Path,
    folder: Path,
    hashes: PasswordHashes,
    *,
    database_url: str = "",
    models: str = MODELS,
    limits: ServerLimits = LIMITS,
    **settings: Any,
) -> AsyncIterator[Console]:
    """The console over an emptied store and the database of `folder`, with the accounts acme and other."""
    document: dict[str, Any] = {
        "store": {"data_dir": str(folder / "var"), "url": f"unix://{valkey}"},
        "database": {"url": database_url},
        "console": settings,
        "batches": {"enabled": True},
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
    server = AdminServer(AdminApi(services, Authentication(services)), pages=console_rules(site), limits=limits)
    [sock] = bind_all("127.0.0.1", 0, 1)
    await server.start(sock)
    try:
        for name in ("acme", "other"):
            await services.store.accounts.create(name, balance=25_000_000_000)
        async with AsyncExitStack() as stack:
            yield Console(services, f"http://127.0.0.1:{server.address[1]}", site, stack, workers=workers)
    finally:
        await server.close()
        site.surface.access_log.flush()
        await services.close()
        await store.close()

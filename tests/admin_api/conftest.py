"""The admin API on a port of the loopback, over an empty store and an empty database."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from msgspec import structs

from gateway.accounts.pepper import load_pepper
from gateway.admin_api.api import AdminApi
from gateway.admin_api.authentication import Authentication
from gateway.admin_api.server import AdminServer
from gateway.config.loader import load
from gateway.config.settings import Settings
from gateway.runtime.sockets import bind_all
from gateway.services.services import AdminServices
from gateway.store import Store
from tests.admin_api.client import Api, NamedActors
from tests.admin_api.workers import MadeUpWorkers

OpenApi = Callable[..., AbstractAsyncContextManager[Api]]


CONFIG = """
[store]
data_dir = "{folder}"
url = "unix://{socket}"

[console]
root_path = "/gw"

[server]
trusted_proxies = ["127.0.0.1"]

[notify]
mail_to = ["ops@example.com"]

[mail]
host = "127.0.0.1"
port = 9
from = "gateway@example.com"

[providers.fake]
plugin = "fake"

[models.fake-chat]
provider = "fake"
free = true
aliases = ["short"]

[groups.vip]
rpm = 5
"""


@pytest.fixture
def database_url() -> str:
    """SQLite; a module whose tests need both kinds imports the fixture of `tests.admin_api.both_databases`."""
    return ""


@pytest.fixture
def settings(valkey: Path, tmp_path: Path, database_url: str) -> Settings:
    """Settings with a model and a group of its own."""
    file = tmp_path / "gateway.toml"
    file.write_text(CONFIG.format(folder=tmp_path / "var", socket=valkey))
    settings = load(file)
    if database_url:
        settings = structs.replace(settings, database=structs.replace(settings.database, url=database_url))
    load_pepper(settings.data_dir)  # as `gateway serve` did at its first start
    return settings


@pytest.fixture
def api(valkey: Path, settings: Settings) -> OpenApi:
    """Serves the admin API, with the accounts acme and other."""

    @asynccontextmanager
    async def opened(actors: NamedActors | None = None, workers: MadeUpWorkers | None = None) -> AsyncIterator[Api]:
        store = await Store.open(valkey, timeout=20.0)
        await store.client.flushall()
        workers = workers or MadeUpWorkers()
        reloads: list[bool] = []  # whether each was forced

        def ask_reload(data_dir: Path, force: bool) -> int | None:
            reloads.append(force)
            return 4242

        services = AdminServices(settings, store, workers, ask_reload=ask_reload)
        admin = AdminApi(services, actors or Authentication(services))
        server = AdminServer(admin)
        [sock] = bind_all("127.0.0.1", 0, 1)
        await server.start(sock)
        try:
            for name in ("acme", "other"):
                await services.store.accounts.create(name)
            async with aiohttp.ClientSession() as session:
                yield Api(services, session, f"http://127.0.0.1:{server.address[1]}", workers, reloads)
        finally:
            await server.close()
            await services.close()
            await store.close()

    return opened

"""What all tests share: a real store, a gateway on the project's own transport, an account with a key.

`async def` tests run on pytest-tornado's loop without a marker. `http_server` replaces pytest-tornado's fixture of
the same name, so that `http_client` and `base_url` reach the gateway through the transport that serves in production.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import re
from collections.abc import Callable, Generator, Iterator
from functools import cache, partial
from importlib.metadata import entry_points
from pathlib import Path

import hypothesis
import msgspec
import pytest
from hypothesis.internal.conjecture import providers
from redis.utils import get_lib_version
from tornado.ioloop import IOLoop

from gateway.accounts.accounts import Accounts
from gateway.accounts.key_record import CreatedKey
from gateway.accounts.keys import Keys
from gateway.admin_api.route import AdminRoute
from gateway.amounts import NANO
from gateway.api.routes import Application
from gateway.config.loader import demo_settings
from gateway.config.settings import Settings
from gateway.console.route import PageRoute
from gateway.database import engine
from gateway.database.address import DatabaseAddress
from gateway.http_server.limits import ServerLimits
from gateway.http_server.server import HTTPServer
from gateway.ledger import Ledger
from gateway.log import stderr
from gateway.plugins.loader import load_plugins
from gateway.runtime.gateway import Gateway
from gateway.store import EmbeddedServer, Store
from tests import quick
from tests.benchmarks_package import make_importable
from tests.compiled_once import compiled_once
from tests.migrated_once import copied_database, filled_once, migrated_once
from tests.plugins_once import loaded_once
from tests.polling import turns
from tests.postgres import PostgresServer, postgres_server
from tests.shared_bytecode import share_bytecode
from tests.standards_hook import Counts, faults, watch
from tests.stopped_tests import says_where
from tests.world import OpenWorld, open_world

PEPPER = b"a pepper for tests, nowhere else used"
TESTS = Path(__file__).parent
# Each of these tests starts processes, installs packages or loads vendors' SDKs; tox -e quick leaves them out.
SLOW_FOLDERS = frozenset({"benchmarks", "clients", "plugin_template", "processes"})
SLOW_MODULE = re.compile(r"^pytestmark = .*\bpytest\.mark\.slow\b", re.MULTILINE)

make_importable()
watch()


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """`-n auto` starts two processes for each core: the tests wait for sockets and timers half of their time.

    The slow ones wait longer, for processes that they start: five for two cores. Each process takes 20 seconds to
    collect them.
    """
    cores = os.cpu_count() or 1
    return 5 * cores // 2 if config.option.markexpr == "slow" else 2 * cores


def pytest_configure(config: pytest.Config) -> None:
    """Prepare the collection of tests; see `tests.quick` and `tests.shared_bytecode`."""
    gc.disable()  # until all tests are collected: with so many new objects it would take a third of that time
    quick.is_on = config.option.markexpr == "not slow"
    # On a busy machine there is no bound for the time of an example, nor for the time to generate it.
    slow = [hypothesis.HealthCheck.too_slow]
    hypothesis.settings.register_profile(
        "tests", max_examples=quick.examples(100), deadline=None, suppress_health_check=slow
    )
    hypothesis.settings.load_profile("tests")
    if quick.is_on:  # numbers and texts of all modules, to try them: each process reads them for three seconds
        providers._get_local_constants = lambda: providers._local_constants
    share_bytecode(config)
    config.pluginmanager.register(Counts())


@pytest.fixture(autouse=True)
def _answers_hold_their_standard(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test that sends what no vendor sends says so with the mark `no_standard`."""
    faults()
    yield
    found = faults()
    if request.node.get_closest_marker("no_standard") is None:
        assert not found, "\n".join(found)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> None:
    """Let a test that does not end in its time say where it waited; pytest-tornado runs it."""
    if inspect.iscoroutinefunction(pyfuncitem.obj):
        pyfuncitem.obj = says_where(pyfuncitem.obj)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave slow folders and modules out of a quick run that does not name them: what they import takes seconds."""
    is_named = any(collection_path.name in argument for argument in config.args)
    return True if quick.is_on and not is_named and _is_slow(collection_path) else None


def _runs_all(config: pytest.Config) -> bool:
    """Whether the command names no tests; the processes of a run get the folder of the tests as an argument."""
    return {Path(argument).resolve() for argument in config.args} <= {TESTS, TESTS.parent}


def _is_slow(path: Path) -> bool:
    """Whether all tests of the folder or module are slow."""
    if path.parent == TESTS and path.name in SLOW_FOLDERS:
        return True
    return path.suffix == ".py" and SLOW_MODULE.search(path.read_text(encoding="utf-8")) is not None


def pytest_collection_finish() -> None:
    """Let the collector look at new objects only: those of modules and tests stay, and are more than a million.

    The SDKs that tests load later stay, too. With the usual thresholds the collector would take a ninth of the time of
    tests of endpoints, more than half of it for looking at those.
    """
    gc.freeze()
    gc.set_threshold(5000, 20, 50)
    gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what a quick run leaves out, and run coroutine tests on the Tornado loop."""
    is_rest = config.option.markexpr == "slow"
    if (quick.is_on or is_rest) and _runs_all(config):
        for item in quick.left_out(items):
            item.add_marker(pytest.mark.slow)
    for item in items:
        if is_rest and quick.tries_less(item):
            item.add_marker(pytest.mark.slow)
        if item.path.is_relative_to(TESTS) and item.path.relative_to(TESTS).parts[0] in SLOW_FOLDERS:
            item.add_marker(pytest.mark.slow)
        if isinstance(item, pytest.Function) and inspect.iscoroutinefunction(item.obj):
            item.add_marker(pytest.mark.gen_test)


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_teardown() -> Generator[None]:
    """Write what the test logged while its output is captured."""
    result = yield
    stderr.flush(within=1.0)
    return result


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Pause the collector while a failure is formatted, for pytest parses source then.

    CPython before 3.11.8 raises SystemError from `ast.parse` when another parse runs within it (gh-106905). The
    collector causes one by finalizing a failed task: asyncio logs its traceback, and `traceback` parses. Unless the
    collector is paused, that error ends the whole run.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return (yield)
    finally:
        if was_enabled:
            gc.enable()


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer | None]:
    """A PostgreSQL server for the whole process, or None."""
    with postgres_server() as server:
        yield server


@pytest.fixture
def postgres_database(postgres: PostgresServer | None) -> Iterator[Callable[[], str]]:
    """Makes an empty PostgreSQL database and gives its address; it is dropped at the end of the test."""
    if postgres is None:
        pytest.skip("no PostgreSQL server on this machine")
    yield postgres.new_database
    postgres.drop_databases()


@pytest.fixture
def migrated_database(postgres: PostgresServer | None) -> Iterator[Callable[[], DatabaseAddress]]:
    """Makes a PostgreSQL database that has the tables and an id; it is dropped at the end of the test."""
    if postgres is None:
        pytest.skip("no PostgreSQL server on this machine")
    yield partial(copied_database, postgres)
    postgres.drop_databases()


@pytest.fixture
def io_loop() -> Iterator[IOLoop]:
    """pytest-tornado's fixture without its leak: a bare IOLoop() makes a second loop and forgets it."""
    loop = asyncio.new_event_loop()
    io_loop = IOLoop(asyncio_loop=loop, make_current=False)
    asyncio.set_event_loop(loop)
    yield io_loop
    loop.run_until_complete(turns())  # a connection that a test has just closed lets go of its socket
    loop.run_until_complete(loop.shutdown_asyncgens())  # as asyncio.run would; clients leave generators behind
    asyncio.set_event_loop(None)
    io_loop.close(all_fds=True)


@pytest.fixture(scope="session")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The socket of a real store for the whole run."""
    server = EmbeddedServer(tmp_path_factory.mktemp("store"))
    server.start_blocking()
    if "STORE_COMPARED" in os.environ:  # with the model of the simulation
        from tests.simulation.comparing_server import compared

        with compared(server.socket) as both:
            yield both.path
            print(f"{both.compared.total()} replies compared: {dict(both.compared.most_common())}")
    else:
        yield server.socket
    server.stop_blocking()


@pytest.fixture(scope="session", autouse=True)
def computed_once() -> Iterator[None]:
    """Compute once in each process what does not change: packages, migrations, SQL text, the check of each route."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("redis.utils.get_lib_version", cache(get_lib_version))
        patch.setattr("gateway.plugins.loader.entry_points", cache(entry_points))
        patch.setattr("gateway.runtime.gateway.load_plugins", loaded_once(load_plugins))
        patch.setattr("alembic.command.upgrade", upgrade := migrated_once())
        patch.setattr("gateway.database.engine._migrate", filled_once(upgrade))
        patch.setattr("gateway.database.engine._engine", compiled_once(engine._engine))
        patch.setattr(AdminRoute, "problem", cache(AdminRoute.problem))
        patch.setattr(PageRoute, "problem", cache(PageRoute.problem))
        yield


@pytest.fixture
def world(valkey: Path) -> OpenWorld:
    """Opens an empty store with accounts, keys and a ledger, without a gateway around them."""
    return partial(open_world, valkey)


@pytest.fixture
def store(io_loop: IOLoop, valkey: Path) -> Iterator[Store]:
    """An empty store."""

    async def opened() -> Store:
        store = await Store.open(valkey, timeout=20.0)
        await store.links[0].call("FLUSHALL")  # not by `client`: it takes longer to make than the rest of this
        return store

    store = io_loop.run_sync(opened)
    yield store
    io_loop.run_sync(store.close)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """The settings the `gateway` fixture is built from; override it in a test module."""
    return demo_settings(tmp_path)


@pytest.fixture
def gateway(io_loop: IOLoop, store: Store, settings: Settings) -> Iterator[Gateway]:
    """A gateway with the fake provider."""
    gateway = io_loop.run_sync(lambda: Gateway.build(settings, store, pepper=PEPPER))
    gateway.overload.max_lag = 0.0  # the test, its client and its upstream share the loop, and may hold it
    yield gateway
    io_loop.run_sync(gateway.close)


@pytest.fixture
def app(gateway: Gateway) -> Application:
    """What pytest-tornado serves."""
    return gateway.application()


@pytest.fixture
def http_server(io_loop: IOLoop, app: Application, _unused_port: tuple[object, int]) -> Iterator[HTTPServer]:
    """The gateway behind its real transport."""
    server = HTTPServer(app, ServerLimits())
    io_loop.run_sync(lambda: server.start(_unused_port[0]))  # type: ignore[arg-type]
    yield server
    server.close_listener()
    io_loop.run_sync(lambda: server.drain(2.0))


@pytest.fixture
def accounts(gateway: Gateway) -> Accounts:
    """Accounts of the gateway's store."""
    return Accounts(gateway.store, gateway.ledger)


@pytest.fixture
def keys(gateway: Gateway) -> Keys:
    """Keys of the gateway's store."""
    return Keys(gateway.store, PEPPER)


@pytest.fixture
def ledger(gateway: Gateway) -> Ledger:
    """The gateway's ledger."""
    return gateway.ledger


@pytest.fixture
def api_key(io_loop: IOLoop, accounts: Accounts, keys: Keys) -> CreatedKey:
    """A key of the account "acme", which has a balance of 10."""

    async def make() -> CreatedKey:
        await accounts.create("acme", balance=10 * NANO)
        return await keys.create("acme", name="test")

    return io_loop.run_sync(make)


@pytest.fixture
def bearer(api_key: CreatedKey) -> dict[str, str]:
    """Headers of a caller with that key."""
    return {"Authorization": f"Bearer {api_key.text}", "Content-Type": "application/json"}


@pytest.fixture
def encode() -> Callable[[object], bytes]:
    """JSON bytes of anything."""
    return msgspec.json.encode


@pytest.fixture
def no_collector() -> Iterator[None]:
    """Nothing is collected meanwhile; see `tests.leftovers`."""
    gc.collect()
    # Older objects are not searched. A long search would be a stall of the loop: the watchdog looks at its frames then,
    # and may keep the objects alive that the search has found.
    gc.freeze()
    gc.disable()
    yield
    gc.enable()

"""A gateway that has been in use: it has so many accounts with keys, models and ledger lines before it serves.

::

    with populated(Population(accounts=10_000), place) as site:
        measure(load, site.server, place, plan, requests=site.requests(load))

Accounts and keys are made by the gateway's own classes, ledger lines by its own script's `write_line`, so a store that
was filled is one that grew: its audit is clean.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import resources
from pathlib import Path

import msgspec
from msgspec import Struct, structs

from benchmarks.contenders.contender import Place, Running, await_ready
from benchmarks.contenders.gateway import COMMAND
from benchmarks.cores import pinned
from benchmarks.load import Load, http_request
from benchmarks.processes import running
from gateway.accounts.key_record import CreatedKey
from gateway.accounts.keys import Keys
from gateway.accounts.pepper import load_pepper
from gateway.amounts import NANO
from gateway.billing.price import Price
from gateway.billing.usage import Usage
from gateway.ledger import Ledger
from gateway.ledger.compact_meta import compact
from gateway.ledger.line_meta import LineMeta
from gateway.ledger.price_tables import store_prices
from gateway.ledger.scripts import SHARED
from gateway.store import EmbeddedServer, Store
from gateway.store.command import Script
from gateway.store.links import slot
from gateway.testing.ports import free_ports

BALANCE = 1_000_000 * NANO
AT_ONCE = 500  # accounts made at the same time
LINES_AT_ONCE = 10_000  # per script: a tenth of a second of the store's
FILL_TIMEOUT = 30.0
CHARGE = "-1000"
PRICE = Price(version="0123456789abcdef", per_request=1000)  # the audit computes the charges again

FILL = """
local from, count, kid, meta = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3], ARGV[4]
local seconds = tonumber(redis.call('TIME')[1])
for i = from, from + count - 1 do
  -- A digest, because real ids are random: equal ones would shrink to nothing on disk.
  write_line(KEYS[1], 'req_' .. string.sub(redis.sha1hex(i), 1, 32), 'use', ARGV[5], meta)
  spend(KEYS[1], kid, ARGV[5], seconds)
end
return 1
"""

CONFIG = """\
[server]
port = {port}
workers = {workers}

[metrics]
port = {metrics_port}

[console]
enabled = false

[store]
url = "unix://{socket}"
data_dir = "data"

[providers.mock]
plugin = "openai"
base_url = "{upstream}/v1"
api_key = "env:BENCH_UPSTREAM_KEY"

[groups.default]
rpm = 1_000_000_000
tpm = 1_000_000_000_000
concurrency = 1_000_000
"""

MODEL = """
[models."{name}"]
provider = "mock"
context_window = 2_000_000
max_output_tokens = 4096
price = {{ input = 0.25, cached_input = 0.025, output = 2.0 }}
"""


class Population(Struct, frozen=True, kw_only=True):
    """What there is in the gateway before the load comes; accounts and models are asked in turn."""

    accounts: int = 1
    keys: int = 1  # of the first account
    models: int = 1
    lines: int = 0  # of the first account's ledger
    compact: bool = False  # whether these have the compact form


class Site(Struct, frozen=True):
    """A populated gateway that serves."""

    server: Running
    store: EmbeddedServer
    keys: list[str]
    models: list[str]
    data_dir: Path

    def requests(self, load: Load) -> list[bytes]:
        """One request for each account or model, whichever are more; all of one length."""
        return [
            http_request(
                structs.replace(load, model=self.models[n % len(self.models)]),
                path=self.server.path,
                headers={"Authorization": f"Bearer {self.keys[n % len(self.keys)]}"},
            )
            for n in range(max(len(self.keys), len(self.models)))
        ]


@contextmanager
def populated(population: Population, place: Place, *, env: Mapping[str, str] | None = None) -> Iterator[Site]:
    """The store, its accounts and lines, then the server; `place.models` are served beside the population's.

    `env`: further variables of the server, such as the PYTHONPATH of another checkout.
    """
    data_dir = place.folder / "data"
    keys = [key.text for key in _fill(place, load_pepper(data_dir), population)]
    store = EmbeddedServer(place.folder / "store")
    with pinned(place.cores.load):
        store.start_blocking()
    try:
        models = [f"mock{number:05}" for number in range(population.models)]
        [port] = free_ports(1)
        config = write_config([*models, *place.models], place, port=port, socket=store.socket)
        serve = [*COMMAND, "serve", "--config", str(config)]
        given = {"BENCH_UPSTREAM_KEY": "sk-mock", **(env or {})}
        with running(serve, log=place.folder / "gateway.log", cores=place.cores.contender, env=given) as process:
            headers = {"Authorization": f"Bearer {keys[0]}"}
            server = Running(port=port, pids=(process.pid,), headers=headers, store_pid=store.pid)
            await_ready("gateway", server, process)
            yield Site(server, store, keys, models, data_dir)
    finally:
        store.stop_blocking()


def _fill(place: Place, pepper: bytes, population: Population) -> list[CreatedKey]:
    """Fill a server that then ends: what filling leaves in its Lua is not what a million calls would leave."""
    store = EmbeddedServer(place.folder / "store")
    with pinned(place.cores.load):
        store.start_blocking()
    try:
        return asyncio.run(populate(store.socket, pepper, population))
    finally:
        store.stop_blocking()


def write_config(models: list[str], place: Place, *, port: int, socket: Path) -> Path:
    """The configuration file."""
    head = CONFIG.format(
        port=port, workers=place.workers, metrics_port=free_ports(1)[0], socket=socket, upstream=place.upstream_url
    )
    config = place.folder / "gateway.toml"
    config.write_text(head + "".join(MODEL.format(name=name) for name in dict.fromkeys(models)), encoding="utf-8")
    return config


async def populate(socket: Path, pepper: bytes, population: Population) -> list[CreatedKey]:
    """Fill an empty store; a key of each account, in order."""
    store = await Store.open(socket, timeout=FILL_TIMEOUT)
    try:
        ledger, keys, made = Ledger(store, {}), Keys(store, pepper), list[CreatedKey]()
        for start in range(0, population.accounts, AT_ONCE):
            names = [f"a{number:07}" for number in range(start, min(start + AT_ONCE, population.accounts))]
            await asyncio.gather(*(ledger.open(name, "default", balance=BALANCE) for name in names))
            made += await asyncio.gather(*(keys.create(name) for name in names))
        for _ in range(population.keys - 1):
            await keys.create("a0000000")
        await write_lines(store, made[0], population.lines, form=compact if population.compact else str)
        await _rewritten(store)
        return made
    finally:
        await store.close()


async def _rewritten(store: Store) -> None:
    """Once no child of the store rewrites the append-only file, which a fast filling may have set off."""
    while (await store.client.info("persistence"))["aof_rewrite_in_progress"]:
        await asyncio.sleep(0.1)


async def write_lines(
    store: Store,
    key: CreatedKey,
    count: int,
    *,
    at_once: int = LINES_AT_ONCE,
    form: Callable[[str], str] = str,
) -> None:
    """So many settled calls into the ledger of the key's account; those of one script have one time."""
    folder = resources.files("gateway.ledger") / "lua"
    parts = [(folder / f"{part}.lua").read_text(encoding="utf-8") for part in SHARED["settle"]]
    await store_prices(store, [PRICE])
    script, name, meta = Script("".join(parts) + FILL), slot(key.account), form(meta_of(key.id))
    for start in range(0, count, at_once):
        most = min(at_once, count - start)
        await store.link(name).eval(script, [name], [start, most, key.id, meta, CHARGE])


def meta_of(key_id: str) -> str:
    """What a line of an ordinary call tells beside its amount."""
    return msgspec.json.encode(
        LineMeta(
            key_id,
            "mock00000",
            provider="mock",
            upstream="mock00000",
            usage=Usage(in_text=812, out_text=204),
            attempts=1,
            outcome="ok",
            price=PRICE.version,
            hold=1_000_000,
            endpoint="chat",
            duration_ms=1034,
            first_token_ms=258,
        )
    ).decode()

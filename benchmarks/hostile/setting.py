"""The gateway on one core, and on the others its store, a good and a hostile upstream, a sink, and all load."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from benchmarks.contenders.contender import Place, await_ready
from benchmarks.contenders.contender import Running as Serving
from benchmarks.contenders.gateway import COMMAND, LOG, command
from benchmarks.cores import Cores, pinned
from benchmarks.fault import BenchFault
from benchmarks.hostile import plugin
from benchmarks.processes import running
from benchmarks.upstream import mock_upstream
from gateway.testing.ports import free_ports

START_WITHIN = 60.0
NICE = 10  # of the attackers, their upstream and the sink: the load generator must be able to measure
STREAM = "mock-9x50"  # nine chunks, 50 ms apart

CONFIG = """\
[server]
port = {port}
workers = 1

[metrics]
port = {metrics_port}

[store]
url = "unix://{socket}"
data_dir = "data"

[providers.mock]
plugin = "openai"
base_url = "{upstream}/v1"
api_key = "env:BENCH_UPSTREAM_KEY"

[providers.bad]
plugin = "openai"
base_url = "http://127.0.0.1:{bad}/v1"
api_key = "env:BENCH_UPSTREAM_KEY"

[providers.sleeper]
plugin = "sleeper"

[providers.deaf]
plugin = "deaf"

[groups.default]
rpm = 1_000_000_000
tpm = 1_000_000_000_000
concurrency = 1_000_000
"""
MODEL = """
[models."{name}"]
provider = "{provider}"
context_window = 128_000
max_output_tokens = 4096
price = {{ input = 0.25, cached_input = 0.025, output = 2.0 }}
"""
SPEECH = """
[models."whisper-1"]
provider = "mock"
price = { per_second_in = 0.0001, per_request = 0.001 }
"""
BAD = ("trailers", "after-gzip", "long-line", "bomb", "error")
DIST_INFO = "hostile_plugin-1.dist-info"


class Setting(Struct, frozen=True):
    """What a phase needs."""

    serving: Serving
    key: str  # of the healthy account
    hostile_key: str
    revoked_key: str
    sink: int  # port
    folder: Path
    cores: Cores


@contextmanager
def setting(folder: Path, cores: Cores) -> Iterator[Setting]:
    """Everything runs for the length of the block."""
    from gateway.accounts.pepper import load_pepper
    from gateway.store import EmbeddedServer

    store = EmbeddedServer(folder / "store")
    with pinned(cores.load):
        store.start_blocking()
    try:
        with (
            mock_upstream(folder, cores=cores.load) as upstream,
            _server("upstream", folder, cores.load) as bad,
            _server("sink", folder, cores.load) as sink,
        ):
            place = Place(folder, cores=cores, upstream=upstream, models=("mock", STREAM))
            [port] = free_ports(1)
            config = _write_config(place, port=port, bad=bad, socket=store.socket)
            env = {"BENCH_UPSTREAM_KEY": "sk-mock", "PYTHONPATH": str(_write_plugin(folder))}
            load_pepper(folder / "data")
            keys = []
            for account in ("healthy", plugin.HOSTILE):
                command(COMMAND, config, env, "accounts", "create", account, "--balance", "1000000")
                keys.append(command(COMMAND, config, env, "keys", "create", account).strip())
            revoked = json.loads(command(COMMAND, config, env, "keys", "create", plugin.HOSTILE, "--json"))
            command(COMMAND, config, env, "keys", "revoke", revoked["id"])
            serve = [*COMMAND, "serve", "--config", str(config)]
            with running(serve, log=folder / LOG, cores=cores.contender, env=env) as process:
                headers = {"Authorization": f"Bearer {keys[0]}"}
                serving = Serving(port=port, pids=(process.pid,), headers=headers, store_pid=store.pid)
                await_ready("gateway", serving, process)
                yield Setting(serving, keys[0], keys[1], revoked["key"], sink, folder, cores)
    finally:
        store.stop_blocking()


def _write_config(place: Place, *, port: int, bad: int, socket: Path) -> Path:
    text = CONFIG.format(port=port, metrics_port=free_ports(1)[0], socket=socket, upstream=place.upstream_url, bad=bad)
    providers = dict.fromkeys(place.models, "mock") | dict.fromkeys(BAD, "bad")
    providers |= {"sleeper": "sleeper", "deaf": "deaf"}
    text += "".join(MODEL.format(name=name, provider=provider) for name, provider in providers.items())
    config = place.folder / "gateway.toml"
    config.write_text(text + SPEECH, encoding="utf-8")
    return config


def _write_plugin(folder: Path) -> Path:
    """A folder in which the plugin is installed."""
    info = folder / "site" / DIST_INFO
    info.mkdir(parents=True)
    shutil.copy(str(plugin.__file__), folder / "site" / "hostile_plugin.py")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: hostile-plugin\nVersion: 1\n", encoding="utf-8")
    (info / "entry_points.txt").write_text("[gateway]\nhostile = hostile_plugin\n", encoding="utf-8")
    return folder / "site"


@contextmanager
def _server(kind: str, folder: Path, cores: Iterable[int]) -> Iterator[int]:
    """One of the servers of benchmarks.hostile.server, by its port."""
    log = folder / f"{kind}-server.log"
    root = str(Path(__file__).parents[2])
    program = ["nice", "-n", str(NICE), sys.executable, "-m", "benchmarks.hostile.server", kind]
    with running(program, log=log, cores=cores, env={"PYTHONPATH": root}) as process:
        deadline = time.monotonic() + START_WITHIN
        while not (words := log.read_text(encoding="utf-8").split()):
            if not process.alive or time.monotonic() > deadline:
                raise BenchFault(f"the {kind} did not start: {process.last_words()}")
            time.sleep(0.01)
        yield int(words[1])

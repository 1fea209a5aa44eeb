"""This project's gateway with all of its path on: key, permission, rates, concurrency, hold, ledger, metrics, log.

Its store is a real server with its append-only file on, on the load's cores; its CPU is shown apart. The account's rate
limits are set far out of reach rather than left out, so that the limiter runs and never refuses.

`GatewayAt` is the same of another checkout: what a change is worth shows only beside its own past, in the same rounds.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.checkout import Checkout
from benchmarks.compiler import cache_folder
from benchmarks.contenders.contender import Contender, Place, Running, await_ready
from benchmarks.cores import pinned
from benchmarks.fault import BenchFault
from benchmarks.processes import running
from gateway.testing.ports import free_ports

COMMAND = (sys.executable, "-m", "gateway")
COMMAND_WITHIN = 300.0  # seconds; on a busy machine a command that usually takes 2 took more than 30
LOG = "gateway.log"  # in the contender's folder

CONFIG = """\
[server]
port = {port}
workers = {workers}
{server}

[metrics]
port = {metrics_port}

{further}
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

NO_CONSOLE = "[console]\nenabled = false\n"

MODEL = """
[models."{name}"]
provider = "mock"
context_window = 128_000
max_output_tokens = 4096
price = {{ input = 0.25, cached_input = 0.025, output = 2.0 }}
"""


class Gateway(Contender):
    """`gateway serve` with a configuration, an account and a key made for the run."""

    name = "gateway"
    scales = True
    stored = True

    def command(self) -> Sequence[str]:
        """How its program is called."""
        return COMMAND

    def environment(self, place: Place) -> dict[str, str]:
        """What its processes find in their environment."""
        return {"BENCH_UPSTREAM_KEY": "sk-mock"}

    def serving(self, env: Mapping[str, str]) -> tuple[Sequence[str], dict[str, str]]:
        """The command that serves, and its environment."""
        return (*self.command(), "serve"), dict(env)

    def further_settings(self) -> str:
        """Further tables of the configuration."""
        return NO_CONSOLE

    def server_settings(self) -> str:
        """Further lines at the end of the configuration's [server] table; tables in it may follow."""
        return ""

    @contextmanager
    def running(self, place: Place) -> Iterator[Running]:
        """The store, an account with a key, then the server."""
        # Here, not at the top: the bench of other contenders works without the gateway's own code.
        from gateway.accounts.pepper import load_pepper
        from gateway.store import EmbeddedServer

        store = EmbeddedServer(place.folder / "store")
        with pinned(place.cores.load):
            store.start_blocking()
        try:
            [port] = free_ports(1)
            config = write_config(
                place,
                port=port,
                socket=store.socket,
                server=self.server_settings(),
                further=self.further_settings(),
            )
            env = self.environment(place)
            program = self.command()
            load_pepper(config.parent / "data")  # as the first `serve` does: no command creates one
            command(program, config, env, "accounts", "create", "bench", "--balance", "1000000")
            key = command(program, config, env, "keys", "create", "bench").strip()
            serve, env = self.serving(env)
            serve = [*serve, "--config", str(config)]
            with running(serve, log=place.folder / LOG, cores=place.cores.contender, env=env) as process:
                headers = {"Authorization": f"Bearer {key}"}
                server = Running(
                    port=port,
                    pids=(process.pid,),
                    headers=headers,
                    store_pid=store.pid,
                    store_socket=str(store.socket),
                )
                await_ready(self.name, server, process)
                yield server
        finally:
            store.stop_blocking()


class GatewayAt(Gateway):
    """The gateway of another checkout, run by the interpreter of its own environment, beside this one's store."""

    name = "gateway-at"

    def __init__(self, checkout: str) -> None:
        self._checkout = Checkout(Path(checkout).resolve()) if checkout else None

    def absent(self) -> str:
        if self._checkout is None:
            return "--at names no checkout"
        main = self._checkout.root / "gateway" / "__main__.py"
        return "" if main.exists() else f"no gateway in {self._checkout.root}"

    def command(self) -> Sequence[str]:
        assert self._checkout is not None
        return (self._checkout.python, "-m", "gateway")

    def further_settings(self) -> str:
        assert self._checkout is not None
        has_console = (self._checkout.root / "gateway" / "runtime" / "console.py").exists()
        return NO_CONSOLE if has_console else ""

    def environment(self, place: Place) -> dict[str, str]:
        assert self._checkout is not None
        return super().environment(place) | {
            "PYTHONPATH": str(self._checkout.path_entry(place.folder)),
            "PYTHONPYCACHEPREFIX": str(cache_folder() / "bytecode"),  # nothing is written into the checkout
        }


def write_config(place: Place, *, port: int, socket: Path, server: str = "", further: str = "") -> Path:
    """The configuration file, with every model of the scenario.

    `server` is further lines of its [server] table, `further` further tables.
    """
    head = CONFIG.format(
        port=port,
        workers=place.workers,
        metrics_port=free_ports(1)[0],
        socket=socket,
        upstream=place.upstream_url,
        server=server,
        further=further,
    )
    config = place.folder / "gateway.toml"
    config.write_text(head + "".join(MODEL.format(name=name) for name in place.models), encoding="utf-8")
    return config


def command(program: Sequence[str], config: Path, env: dict[str, str], *arguments: str) -> str:
    """What a `gateway` command prints; BenchFault with its message when it refuses."""
    run = subprocess.run(
        [*program, *arguments, "--config", str(config)],
        capture_output=True,
        text=True,
        check=False,
        timeout=COMMAND_WITHIN,
        cwd=config.parent,
        env={**os.environ, **env},
    )
    if run.returncode != 0:
        raise BenchFault(f"gateway {' '.join(arguments)}: {run.stderr.strip()[-300:]}")
    return run.stdout

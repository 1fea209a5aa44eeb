"""This project's gateway with all of its path on: key, permission, rates, concurrency, hold, ledger, metrics, log.

Its store is a real server with its append-only file on, on the load's cores; its CPU is shown apart. The account's rate
limits are set far out of reach rather than left out, so that the limiter runs and never refuses.

`GatewayAt` is the same of another checkout: what a change is worth shows only beside its own past, in the same rounds.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.contenders.contender import Contender, Place, Running, await_ready, free_port
from benchmarks.cores import pinned
from benchmarks.fault import BenchFault
from benchmarks.processes import running

COMMAND = (sys.executable, "-m", "gateway")
COMMAND_WITHIN = 30.0

CONFIG = """\
[server]
port = {port}
workers = {workers}

[metrics]
port = {metrics_port}

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
context_window = 128_000
max_output_tokens = 4096
price = {{ input = 0.25, cached_input = 0.025, output = 2.0 }}
"""


class Gateway(Contender):
    """`gateway serve` with a configuration, an account and a key made for the run."""

    name = "gateway"
    scales = True
    stored = True

    def environment(self, place: Place) -> dict[str, str]:
        """What its processes find in their environment."""
        return {"BENCH_UPSTREAM_KEY": "sk-mock"}

    @contextmanager
    def running(self, place: Place) -> Iterator[Running]:
        """The store, an account with a key, then the server."""
        # Here, not at the top: the bench of other contenders works without the gateway's own code.
        from gateway.store import EmbeddedServer

        store = EmbeddedServer(place.folder / "store")
        with pinned(place.cores.load):
            store.start_blocking()
        try:
            port = free_port()
            config = write_config(place, port=port, socket=store.socket)
            env = self.environment(place)
            command(config, env, "accounts", "create", "bench", "--balance", "1000000")
            key = command(config, env, "keys", "create", "bench").strip()
            serve = [*COMMAND, "serve", "--config", str(config)]
            with running(serve, log=place.folder / "gateway.log", cores=place.cores.contender, env=env) as process:
                headers = {"Authorization": f"Bearer {key}"}
                server = Running(port=port, pids=(process.pid,), headers=headers, store_pid=store.pid)
                await_ready(self.name, server, process)
                yield server
        finally:
            store.stop_blocking()


class GatewayAt(Gateway):
    """The gateway of another checkout, in this Python and beside this one's store."""

    name = "gateway-at"

    def __init__(self, checkout: str) -> None:
        self._checkout = Path(checkout).resolve() if checkout else None

    def absent(self) -> str:
        if self._checkout is None:
            return "--at names no checkout"
        return "" if (self._checkout / "gateway" / "__main__.py").exists() else f"no gateway in {self._checkout}"

    def environment(self, place: Place) -> dict[str, str]:
        assert self._checkout is not None
        packages = place.folder / "packages"  # as installed: providers/ under its other name
        packages.mkdir(exist_ok=True)
        for name, folder in (("gateway", "gateway"), ("gateway_providers", "providers")):
            if not (packages / name).is_symlink():
                (packages / name).symlink_to(self._checkout / folder)
        return super().environment(place) | {"PYTHONPATH": str(packages)}


def write_config(place: Place, *, port: int, socket: Path) -> Path:
    """The configuration file, with every model of the scenario."""
    head = CONFIG.format(
        port=port, workers=place.workers, metrics_port=free_port(), socket=socket, upstream=place.upstream_url
    )
    config = place.folder / "gateway.toml"
    config.write_text(head + "".join(MODEL.format(name=name) for name in place.models), encoding="utf-8")
    return config


def command(config: Path, env: dict[str, str], *arguments: str) -> str:
    """What a `gateway` command prints; BenchFault with its message when it refuses."""
    run = subprocess.run(
        [*COMMAND, *arguments, "--config", str(config)],
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

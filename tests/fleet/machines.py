"""The gateways of the fleet: each in a network namespace, with a small disk of its own for its data directory."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from pathlib import Path

from tests.fleet.network import CALLS, CONSOLE, SIDE, UPSTREAM, Namespace
from tests.processes.rolling import PEPPER
from tests.processes.served import Served, children, unmanaged_environment

DISK = "48m"
MODELS = """
[providers.up]
plugin = "openai"
base_url = "http://{upstream}:{port}/v1"

[models.m]
provider = "up"
price = {{ input = 0, output = 1 }}
default_reserve_output = 500

[models.embed]
provider = "up"
endpoints = ["embeddings"]
price = {{ input = 1 }}

[database]
url = "{database}"
"""
SERVER = 'trusted_proxies = ["10.0.1.0/24"]'


class Machine:
    """A gateway, its namespace and its disk. It runs the code of `source`, or that of this folder if there is none."""

    def __init__(self, folder: Path, number: int, *, store: str, models: str, console_url: str) -> None:
        self.net = Namespace(number)
        self.net.create()
        self.name = self.net.name
        self.address = self.net.address
        home = folder / self.name
        home.mkdir()
        self.gateway = Served(
            home,
            (CALLS, SIDE),
            models,
            drain_timeout=30.0,
            store=store,
            console_port=CONSOLE,
            host=self.address,
            server=SERVER,
            console=f'public_url = "{console_url}"\n',
        )
        self.gateway.prefix = self.net.prefix
        data = self.gateway.data_dir
        data.mkdir(mode=0o700)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK},mode=0700", self.name, data], check=True)
        pepper = data / "pepper"
        pepper.write_text(PEPPER)
        pepper.chmod(0o600)

    def use(self, source: Path | None) -> None:
        """Which code the next start runs."""
        self.gateway.environment = unmanaged_environment()
        if source is not None:
            self.gateway.environment["PYTHONPATH"] = str(source)

    async def start(self) -> None:
        """Start it and wait until it serves."""
        await self.gateway.started()

    async def restart(self) -> None:
        """Stop it gracefully and start it, as `systemctl restart` does."""
        os.kill(self.gateway.pid, signal.SIGTERM)
        code = await self.gateway.ended(within=90.0)
        assert code == 0, f"{self.name} ended with {code}"
        await self.start()

    @property
    def pids(self) -> list[int]:
        """All its processes."""
        return [self.gateway.pid, *children(self.gateway.pid)]

    def stop_all(self) -> None:
        """Let every process stop where it is: ports accept connections, but nothing answers."""
        for pid in self.pids:
            os.kill(pid, signal.SIGSTOP)

    def continue_all(self) -> None:
        """Let them go on."""
        for pid in reversed(self.pids):
            os.kill(pid, signal.SIGCONT)

    @property
    def _ballast(self) -> Path:
        return self.gateway.data_dir / "ballast"

    def fill_disk(self) -> None:
        """Leave not a byte. What the gateway removes later is free again, so this is called again and again."""
        with self._ballast.open("ab", buffering=0) as file:
            for size in (1 << 20, 4096, 1):
                try:
                    while file.write(bytes(size)) == size:
                        pass
                except OSError:
                    continue

    def empty_disk(self) -> None:
        """Take the ballast away."""
        self._ballast.unlink(missing_ok=True)

    async def readiness(self) -> int:
        """The status of /readyz."""
        return await self.gateway.readiness()


def models_of(upstream_port: int, database: str) -> str:
    """The models and the database that all machines have."""
    return MODELS.format(upstream=UPSTREAM, port=upstream_port, database=database)


async def end(machines: list[Machine]) -> None:
    """Stop those that run."""
    running = [one.gateway for one in machines if one.gateway.process and one.gateway.process.poll() is None]
    for gateway in running:
        os.kill(gateway.pid, signal.SIGTERM)
    await asyncio.gather(*(gateway.ended(within=90.0) for gateway in running))

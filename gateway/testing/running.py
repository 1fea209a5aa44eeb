"""A real gateway as a process of its own: `gateway serve` on free ports of the loopback, with an account and a key.

::

    with running_gateway(TOML_OF_PROVIDERS_AND_MODELS) as gateway:
        client = OpenAI(base_url=gateway.base_url, api_key=gateway.api_key)

Sharp edge: it runs the `gateway` that this interpreter has installed, plugins included.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

from gateway.accounts.accounts import Accounts
from gateway.accounts.keys import Keys
from gateway.accounts.pepper import peppers_of
from gateway.amounts import NANO
from gateway.config.loader import load
from gateway.ledger import Ledger
from gateway.store import EmbeddedServer, Store
from gateway.store.address import StoreAddress
from gateway.store.configured import configured_address
from gateway.testing.ports import free_ports

START_WITHIN = 60.0  # seconds
STOP_WITHIN = 40.0
ACCOUNT = "test"
BALANCE = 1000 * NANO

PORTS = """
[server]
port = {port}
workers = {workers}
drain_timeout = 5.0

[metrics]
port = {side_port}

[console]
enabled = false

[store]
data_dir = "{data_dir}"

"""


class RunningGateway:
    """Where it serves, with which key, and how it is doing."""

    def __init__(self, folder: Path, port: int, side_port: int) -> None:
        self.folder = folder  # of configuration, log and data
        self.config: Path = folder / "gateway.toml"  # what it serves
        self.log: Path = folder / "gateway.log"  # what it writes to the terminal
        self.base_url = f"http://127.0.0.1:{port}/v1"  # for clients of OpenAI's API
        self.side_url = f"http://127.0.0.1:{side_port}"  # of `/metrics` and `/readyz`
        self.api_key = ""  # of an account with a balance of 1,000
        self.process: subprocess.Popen[bytes] | None = None  # the supervisor

    @property
    def pid(self) -> int:
        """The supervisor's process."""
        assert self.process is not None
        return self.process.pid

    def is_ready(self) -> bool:
        """Whether `/readyz` says so."""
        try:
            with urllib.request.urlopen(f"{self.side_url}/readyz", timeout=1.0) as answer:  # noqa: S310 - our own port
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def start(self) -> None:
        """Start the process and wait until it is ready; RuntimeError carries its log."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(  # noqa: S603 - our own program
                [sys.executable, "-P", "-m", "gateway", "serve", "--config", str(self.config)],
                stdout=log,
                stderr=log,
                cwd=self.folder,
            )
        deadline = time.monotonic() + START_WITHIN
        while not self.is_ready():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the gateway did not start:\n{self.log.read_text()}")
            time.sleep(0.02)

    def stop(self) -> int:
        """End it by SIGTERM; its exit code."""
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(STOP_WITHIN)

    def create_key(self) -> None:
        """Make the account and the key; from a thread, so that it works beside a running event loop too."""
        thread = threading.Thread(target=lambda: asyncio.run(self._create_key()))
        thread.start()
        thread.join()

    async def _create_key(self) -> None:
        settings = load(self.config)
        async with AsyncExitStack() as stack:
            address: StoreAddress | Path | None = configured_address(settings)
            if address is None:
                address = await stack.enter_async_context(EmbeddedServer.attach_or_start(settings.data_dir))
            store = await Store.open(address, timeout=5.0)
            stack.push_async_callback(store.close)
            await Accounts(store, Ledger(store, {})).create(ACCOUNT, group="default", balance=BALANCE)
            self.api_key = (await Keys(store, peppers_of(settings).current).create(ACCOUNT, name="test")).text


@contextmanager
def running_gateway(config: str, *, workers: int = 1) -> Iterator[RunningGateway]:
    """Serve `config`, TOML without [server], [metrics], [console] and [store]; data and logs go with the context."""
    with tempfile.TemporaryDirectory(prefix="gateway-") as name:
        folder = Path(name)
        port, side_port = free_ports(2)
        gateway = RunningGateway(folder, port, side_port)
        ports = PORTS.format(port=port, side_port=side_port, workers=workers, data_dir=folder / "data")
        gateway.config.write_text(ports + config, encoding="utf-8")
        try:
            gateway.start()
            gateway.create_key()
            yield gateway
        finally:
            if gateway.process is not None and gateway.process.poll() is None:
                gateway.stop()

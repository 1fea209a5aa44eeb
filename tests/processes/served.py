"""A gateway as operators run it: `gateway serve` as a process, its workers and its store by pid, clients at its ports.

::

    gateway = await serve(workers=2)            # the fixture of conftest.py
    os.kill(gateway.workers[0], signal.SIGKILL)

`Stream` is a client that reads one streamed answer in the background and says how it ended.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families

from gateway.accounts.accounts import Account
from gateway.cli import cli
from gateway.cli.session import opened
from gateway.cli.store_session import StoreSession
from gateway.config.loader import load
from gateway.database.address import DatabaseAddress
from gateway.database.engine import Database
from gateway.ledger import LedgerLine
from gateway.runtime.process_manager import KUBERNETES, NOTIFY_SOCKET
from gateway.testing import RunningGateway
from gateway.testing.running import START_WITHIN
from tests.polling import ENDS_WITHIN, until

SLOW_WORDS = 20
LASTING_WORDS = 80  # 4 s, for streams that all have to run at one moment, also on a busy machine
MODELS = f"""
[providers.fake]
plugin = "fake"

[providers.fake.models.slow]
text = "{" ".join(["word"] * SLOW_WORDS)}"
interval = 0.05

[providers.fake.models.lasting]
text = "{" ".join(["word"] * LASTING_WORDS)}"
interval = 0.05

[providers.fake.models.endless]
text = "on and on "
interval = 0.05
endless = true

[models.quick]
provider = "fake"
max_output_tokens = 64
price = {{ input = 1000, output = 2000 }}

[models.slow]
provider = "fake"
price = {{ input = 1000, output = 2000 }}

[models.lasting]
provider = "fake"
price = {{ input = 1000, output = 2000 }}

[models.endless]
provider = "fake"
price = {{ input = 1000, output = 2000 }}
default_reserve_output = 100
"""

#: `python -m gateway`, but its helper processes have the priority of all others, without `LOW_PRIORITY`: beside other
#: tests, an import by a process of the lowest priority takes minutes.
GATEWAY = """
import contextlib, ctypes, os

if "NO_WRITE_EXECUTE" in os.environ:  # as MemoryDenyWriteExecute of systemd does: PR_SET_MDWE
    assert ctypes.CDLL(None).prctl(65, 1, 0, 0, 0) == 0

with contextlib.suppress(ImportError):  # a version of before
    from gateway.runtime import priority

    if "LOW_PRIORITY" not in os.environ:
        priority.NICENESS.update(importer=0, console=0, batches=0)

from gateway.cli import main

main()
"""
HEAD = """
[server]
host = "{host}"
port = {port}
workers = {workers}
drain_timeout = {drain_timeout}
{more}

[metrics]
host = "{host}"
port = {side_port}

[console]
enabled = {console}
host = "{host}"
port = {console_port}
{more_of_console}

[store]
url = "{store}"
data_dir = "{data_dir}"
"""

ONE_COMMAND = threading.Lock()  # at a time in this process: each has the standard streams


def unmanaged_environment() -> dict[str, str]:
    """The variables of this process, without those by which a gateway sees that a process manager has started it."""
    return {name: value for name, value in os.environ.items() if name not in (NOTIFY_SOCKET, KUBERNETES)}


class Served(RunningGateway):
    """One `gateway serve` with a configuration that a test may rewrite."""

    def __init__(
        self,
        folder: Path,
        ports: tuple[int, int],
        models: str = MODELS,
        *,
        workers: int = 1,
        drain_timeout: float = 5.0,
        shutdown_delay: str = "",  # not written if empty: the versions of before do not know it
        store: str = "",
        console_port: int = 0,  # of the console and the admin API; 0: none
        host: str = "127.0.0.1",
        server: str = "",  # further lines of [server]
        console: str = "",  # further lines of [console]
    ) -> None:
        super().__init__(folder, *ports)
        self.base_url = self.base_url.replace("127.0.0.1", host)
        self.side_url = self.side_url.replace("127.0.0.1", host)
        self.port, self.side_port = ports
        self.data_dir = folder / "data"
        self.environment = unmanaged_environment()
        self.prefix: list[str] = []  # of the command that starts it
        self._head = HEAD.format(
            host=host,
            port=ports[0],
            side_port=ports[1],
            workers=workers,
            drain_timeout=drain_timeout,
            more=(f"shutdown_delay = {shutdown_delay}\n" if shutdown_delay else "") + server,
            store=store,
            console=str(bool(console_port)).lower(),
            console_port=console_port,
            more_of_console=console,
            data_dir=self.data_dir,
        )
        self.configure(models)

    def configure(self, models: str) -> None:
        """Write the configuration file."""
        self.config.write_text(self._head + models, encoding="utf-8")

    # Its processes ---------------------------------------------------------------------------------------------------

    def launch(self, *options: str) -> None:
        """Start the process without waiting for anything."""
        self._migrate()
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*self.prefix, sys.executable, "-P", "-c", GATEWAY, "serve", "--config", str(self.config), *options],
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env=self.environment,
                start_new_session=True,  # a terminal's process group, for Ctrl-C
            )

    def _migrate(self) -> None:
        """Give it a migrated database: its importer would spend a third of the processor time of a first start on that.

        `running_gateway` starts without one.
        """
        is_new = not self.data_dir.exists() and "[database]" not in self.config.read_text()
        if is_new and self._is_of_this_process:
            Database.open(DatabaseAddress(file=self.data_dir / "gateway.db")).close()

    @property
    def _is_of_this_process(self) -> bool:
        """Whether it has the code that this process has, and is no version of before."""
        return self.environment.get("PYTHONPATH") == os.environ.get("PYTHONPATH")

    async def started(self, *, workers: int = 1) -> None:
        """Launch it and wait until so many workers serve."""
        self.launch()
        process = self.process
        assert process is not None

        async def serving() -> bool:
            assert process.poll() is None, "it ended"
            return await self.readiness() == 200 and (await self.metrics()).get("gateway_workers") == workers

        try:
            await until(serving, within=START_WITHIN)
        except AssertionError as error:
            raise AssertionError(f"it is not ready: {error}\n{self.text}") from None

    async def ended(self, *, within: float = 60.0) -> int:
        """Its exit code, once it has ended."""
        assert self.process is not None
        process = self.process
        await until(lambda: process.poll() is not None, within=within)
        return int(process.returncode)

    @property
    def workers(self) -> list[int]:
        """Processes that serve, or are about to."""
        return [pid for pid in children(self.pid) if "gateway.runtime.worker" in command_of(pid)]

    @property
    def importer(self) -> int:
        """The process that imports; 0 while there is none."""
        found = [pid for pid in children(self.pid) if "gateway.runtime.importer" in command_of(pid)]
        return found[0] if found else 0

    @property
    def batches(self) -> int:
        """The process that runs batches; 0 while there is none."""
        found = [pid for pid in children(self.pid) if "gateway.runtime.batches" in command_of(pid)]
        return found[0] if found else 0

    @property
    def store_pid(self) -> int:
        """The embedded store's process."""
        return next(
            pid for pid in children(self.pid) if "server" in command_of(pid) and "unixsocket" in command_of(pid)
        )

    @property
    def text(self) -> str:
        """What it has logged."""
        return self.log.read_text(errors="replace")

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A `gateway` command on the same configuration.

        It runs in a thread of this process, for a process of its own imports for a second; unless the gateway has code
        that this process has not.
        """
        line = [*arguments, "--config", str(self.config)]
        if self._is_of_this_process:
            with ONE_COMMAND, ThreadPoolExecutor(1) as thread:
                result = thread.submit(CliRunner().invoke, cli, line, env=self.environment).result()
            return subprocess.CompletedProcess(line, result.exit_code, result.stdout, result.stderr)
        return subprocess.run(
            [sys.executable, "-m", "gateway", *line],
            capture_output=True,
            text=True,
            timeout=ENDS_WITHIN,
            cwd=self.folder,  # not a folder that has a version of the gateway itself
            env=self.environment,
        )

    async def command(self, *arguments: str) -> Any:
        """The JSON that a command prints; it must succeed."""
        done = await asyncio.to_thread(self.run, *arguments, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    @asynccontextmanager
    async def session(self) -> AsyncIterator[StoreSession]:
        """What a command works with: beside the gateway, or without it."""
        async with opened(load(self.config)) as session:
            yield session

    async def account(self) -> Account:
        """The test's account."""
        async with self.session() as session:
            return await session.accounts.show("test")

    async def charges(self) -> list[LedgerLine]:
        """What calls were charged, in order."""
        async with self.session() as session:
            return [line async for line in session.ledger.lines("test") if line.kind == "use"]

    async def proved(self) -> None:
        """The audit finds nothing."""
        async with self.session() as session:
            assert (await session.ledger.audit()).mismatches == []

    async def reclaim_expired(self) -> int:
        """Let every hold's lease have run out, as a minute would, and do what workers do once a minute then."""
        async with self.session() as session:
            client = session.store.client
            request_id: Any
            for request_id in await client.zrange("{a:test}:rx", 0, -1):
                await client.zadd("{a:test}:rx", {request_id: 1})
            return await session.ledger.reclaim("test")

    # Its ports -------------------------------------------------------------------------------------------------------

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.api_key}"}

    async def chat(self, model: str = "quick", *, timeout: float = 10.0, key: str = "") -> Answer:
        """One whole answer, on a connection of its own."""
        body = {"model": model, "messages": [{"role": "user", "content": "Hi"}]}
        headers = {"Authorization": f"Bearer {key or self.api_key}"}
        started = time.monotonic()
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=timeout)) as session,
            session.post(f"{self.base_url}/chat/completions", json=body, headers=headers) as response,
        ):
            return Answer(response.status, dict(response.headers), await response.json(), time.monotonic() - started)

    def stream(self, model: str = "slow") -> Stream:
        """One streamed answer, read in the background."""
        return Stream(f"{self.base_url}/chat/completions", model, self._headers())

    async def flowing(self, streams: int, model: str = "slow") -> list[Stream]:
        """So many streams at once: one after the other, the first would end before the last begins."""
        started = [self.stream(model) for _ in range(streams)]
        return [await stream.flowing() for stream in started]

    async def side(self, path: str, *, accept: str = "") -> tuple[int, dict[str, str], str]:
        """Status, headers and text of a page of the side port; status 0 when nobody listens."""
        try:
            async with (
                aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5.0)) as session,
                session.get(self.side_url + path, headers={"Accept": accept} if accept else {}) as response,
            ):
                return response.status, dict(response.headers), await response.text()
        except (aiohttp.ClientError, OSError):
            return 0, {}, ""

    async def readiness(self) -> int:
        """The status of /readyz; 0 when nobody listens."""
        return (await self.side("/readyz"))[0]

    async def metrics(self) -> dict[str, float]:
        """Every sample of /metrics by its name and its labels as text, sorted by name; `name` alone without labels."""
        _, _, text = await self.side("/metrics")
        samples = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
                samples[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
        return samples

    async def refuses_connections(self) -> bool:
        """Whether nobody listens at the public port."""
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            return True
        writer.close()
        return False


class Answer:
    """A whole answer and how long it took, in seconds."""

    def __init__(self, status: int, headers: dict[str, str], body: Any, seconds: float) -> None:
        self.status = status
        self.headers = headers
        self.body = body
        self.seconds = seconds


class Stream:
    """A streamed answer on its way."""

    def __init__(self, url: str, model: str, headers: dict[str, str]) -> None:
        self.text = ""
        self.status = 0
        self.request_id = ""
        self.failure: BaseException | None = None
        self._body = {"model": model, "stream": True, "messages": [{"role": "user", "content": "Hi"}]}
        self._task = asyncio.create_task(self._read(url, headers))

    async def _read(self, url: str, headers: dict[str, str]) -> None:
        try:
            async with (
                aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30.0)) as session,
                session.post(url, json=self._body, headers=headers) as response,
            ):
                self.status = response.status
                self.request_id = response.headers["x-request-id"]
                async for part in response.content.iter_any():
                    self.text += part.decode()
        except (aiohttp.ClientError, OSError) as error:
            self.failure = error

    @property
    def words(self) -> int:
        """Pieces of content that have arrived."""
        return self.text.count('"content":"') - self.text.count('"content":""')

    @property
    def units(self) -> int:
        """Quarter tokens of ASCII content that have arrived."""
        frames = (json.loads(line[6:]) for line in self.text.splitlines() if line.startswith("data: {"))
        return sum(len(choice["delta"].get("content") or "") for frame in frames for choice in frame["choices"])

    async def flowing(self, words: int = 3) -> Stream:
        """Once it has so many words."""
        await until(lambda: self.words >= words or self._task.done())
        assert not self._task.done(), f"it ended: {self.failure!r} {self.text}"
        return self

    def leave(self) -> None:
        """Hang up."""
        self._task.cancel()

    async def ended(self, *, within: float = 60.0) -> Stream:
        """Once it has ended one way or another."""
        async with asyncio.timeout(within):
            await self._task
        return self

    @property
    def whole(self) -> bool:
        """Whether it ended as a complete answer."""
        return self.failure is None and self.text.endswith("data: [DONE]\n\n")


def children(pid: int) -> list[int]:
    """The processes that a process has started."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += [int(child) for child in task.read_text().split()]
        except OSError:
            continue
    return found


def command_of(pid: int) -> str:
    """A process's command line; empty when it is gone or a zombie."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def is_alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    return bool(command_of(pid))


def has_taken(pid: int, number: signal.Signals) -> bool:
    """Whether a signal that was sent to a process has reached it, so that another one is not merged with it."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return True
    pending = next(line for line in status.splitlines() if line.startswith("ShdPnd:")).split()[1]
    return not int(pending, 16) >> (number - 1) & 1


def descriptors(pid: int) -> int:
    """How many files a process has open."""
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def port_is_free(port: int) -> bool:
    """Whether a gateway could listen there."""
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def install_plugin(gateway: Served, name: str, source: str) -> None:
    """A distribution with one plugin module, seen by this gateway alone."""
    folder = gateway.folder / "site"
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}_plugin.py").write_text(source)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[gateway]\n{name} = {name}_plugin\n")
    gateway.environment["PYTHONPATH"] = os.pathsep.join(
        [str(folder), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    )

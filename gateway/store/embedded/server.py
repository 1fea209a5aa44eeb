"""The embedded server: a Valkey or Redis child process with its data in `data_dir`, reachable by unix socket only.

::

    server = EmbeddedServer("var")
    await server.start()                            # or start_blocking(); returns when the data is loaded
    watching = asyncio.create_task(server.watch(report))    # restarts it when it dies
    ...
    await server.stop()                             # or stop_blocking()

`async with EmbeddedServer.attach_or_start("var") as socket:` is for commands: the running server's socket, or that of
a server that runs only inside the block.

Sharp edge: on Linux the kernel ends the server when the *thread* that started it ends. So start it from a thread that
runs as long as the gateway; that is the main thread, also under `asyncio.run`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

import msgspec

from gateway.store.embedded.binary import find_server
from gateway.store.embedded.home import ServerHome, ask
from gateway.store.embedded.version import ServerVersion
from gateway.store.fault import StoreInUse, StoreSetupError

POLL = 0.02  # seconds between checks of a server that starts or ends
ANSWER_WITHIN = 15.0  # seconds until a starting server must answer; each LOADING reply restarts this time
STOP_WITHIN = 10.0  # seconds to write the last of the log before SIGKILL
NO_PID_AFTER = 2.0  # seconds after which a running server has written its pid file
ATTACH_WITHIN = 10.0  # seconds a command waits for a server that is starting or changes its owner
CANNOT_WRITE = "-MISCONF"  # the reply of a server that cannot write its file: waiting does not help
MAX_BACKOFF = 5.0  # seconds between restarts of a server that ends again and again

# PR_SET_PDEATHSIG is set in the child between fork and exec: by this program and not by a preexec_fn, which may
# deadlock if other threads run. A parent that ended before the call is detected by its process id.
LAUNCHER = """
import os, sys
try:
    import ctypes
    ctypes.CDLL(None).prctl(1, 15)
except (ImportError, OSError):
    pass
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""


class StoreEvent(msgspec.Struct, frozen=True):
    """An event that `watch` reports."""

    kind: Literal["died", "restarted", "failed"]
    detail: str


class EmbeddedServer:
    """Owns the data folder and its server process."""

    def __init__(self, data_dir: str | Path, *, binary: str | Path | None = None, patience: float = 3.0) -> None:
        self.home = ServerHome(data_dir)
        self.version: ServerVersion | None = None
        self._candidates = None if binary is None else [Path(binary)]
        self._patience = patience  # seconds to wait until another owner releases the folder
        self._program: Path | None = None
        self._socket: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._stopping = False

    @property
    def socket(self) -> Path:
        """The unix socket of the server."""
        assert self._socket is not None, "the server was not started"
        return self._socket

    @property
    def pid(self) -> int | None:
        """The server process, while it runs."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    # Starting and stopping -------------------------------------------------------------------------------------------

    def start_blocking(self) -> None:
        """Start and wait until the data are loaded; StoreSetupError if the server cannot start."""
        try:
            self._claim()
            self._spawn()
            self._await_ready()
        except BaseException:
            self.stop_blocking()
            raise

    async def start(self) -> None:
        """`start_blocking` without blocking the event loop."""
        try:
            await asyncio.to_thread(self._claim)
            self._spawn()  # here, not in the pool: see the sharp edge above
            await asyncio.to_thread(self._await_ready)
        except BaseException:
            self._stopping = True
            await asyncio.to_thread(self.stop_blocking)
            raise

    def stop_blocking(self) -> None:
        """End the server after all data are written, and release the folder."""
        self._stopping = True
        process, self._process = self._process, None
        if process is not None and process.poll() is None:
            ask(self._socket, "SHUTDOWN NOSAVE")  # the append-only file is flushed and synced all the same
            process.terminate()  # for a server that does not answer; its timer sees a signal after up to 0.1 s
            try:
                process.wait(STOP_WITHIN)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self.home.owner.held:
            if self._socket is not None:
                self._socket.unlink(missing_ok=True)
            self.home.server.release()
            self.home.owner.release()

    async def stop(self) -> None:
        """`stop_blocking` without blocking the event loop."""
        self._stopping = True
        await asyncio.to_thread(self.stop_blocking)

    async def watch(self, report: Callable[[StoreEvent], None]) -> None:
        """Restart the server whenever it ends, until `stop`; every end and restart is reported."""
        backoff, started = POLL, time.monotonic()
        while not self._stopping:
            await asyncio.sleep(0.1)
            process = self._process
            if self._stopping or process is None or process.poll() is None:
                continue
            report(StoreEvent("died", f"the store's server ended with {_ending(process.returncode)}"))
            backoff = POLL if time.monotonic() - started > MAX_BACKOFF else min(backoff * 2, MAX_BACKOFF)
            await asyncio.sleep(backoff)
            started = time.monotonic()
            try:
                await self._restart()
            except StoreSetupError as fault:
                if not self._stopping:
                    report(StoreEvent("failed", str(fault)))
            else:
                report(StoreEvent("restarted", f"the store's server is back after {time.monotonic() - started:.1f} s"))

    async def _restart(self) -> None:
        if self._stopping:
            raise StoreSetupError("the store's server is being stopped")
        self._spawn()
        await asyncio.to_thread(self._await_ready)

    @classmethod
    @asynccontextmanager
    async def attach_or_start(cls, data_dir: str | Path, *, binary: str | Path | None = None) -> AsyncIterator[Path]:
        """The socket of the server of this folder: the running one, or one that is started and ended here."""
        server = cls(data_dir, binary=binary, patience=0.0)
        running = await server._start_unless_running()
        try:
            yield running or server.socket
        finally:
            if running is None:
                await server._wait_for_users()
                await server.stop()
            server.home.users.release()

    async def _start_unless_running(self) -> Path | None:
        """The socket of another process's server, which is used now; None if this server was started."""
        home, deadline = self.home, time.monotonic() + ATTACH_WITHIN
        while True:
            try:
                await self.start()
                return None
            except StoreInUse as fault:
                home.users.take(shared=True)
                path = home.recorded_socket()
                answer = ask(path, "PING")
                if path is not None and answer == "+PONG":
                    return path
                home.users.release()
                if answer.startswith(CANNOT_WRITE) or time.monotonic() > deadline:
                    said = f"and its server refuses: {answer[1:]}" if answer else "but its server does not answer"
                    raise StoreSetupError(f"{fault}, {said}; {home.free_space()}") from None
            await asyncio.sleep(POLL)

    async def _wait_for_users(self) -> None:
        """Wait for a limited time until the commands that use this server have finished."""
        deadline = time.monotonic() + ATTACH_WITHIN
        while not self.home.users.take() and time.monotonic() < deadline:  # noqa: ASYNC110  # locks have no event
            await asyncio.sleep(POLL)

    # Steps -----------------------------------------------------------------------------------------------------------

    def _claim(self) -> None:
        """Lock the folder, choose the program, and end a server whose gateway was killed."""
        with self.home.faults_explained():
            self._take_over()

    def _take_over(self) -> None:
        home = self.home
        self._stopping = False
        home.prepare()
        deadline = time.monotonic() + self._patience
        while not home.owner.take():
            if time.monotonic() >= deadline:
                owner = home.owner.path.read_text().strip() or "unknown"
                raise StoreInUse(f"{home.data_dir} is in use by another gateway (process {owner})")
            time.sleep(POLL)
        home.owner.note(f"{os.getpid()}\n")
        self._program, self.version = find_server(home.written_by(), self._candidates)
        self._end_orphan()

    def _end_orphan(self) -> None:
        """End a server that runs after its gateway was killed: on Linux for a moment, elsewhere without limit."""
        home = self.home
        if home.server.take():
            return
        ask(home.recorded_socket(), "SHUTDOWN NOSAVE")  # the append-only file is synced all the same
        started = time.monotonic()
        while not home.server.take():
            pid, waited = home.server_pid(), time.monotonic() - started
            if pid is None and waited > NO_PID_AFTER:
                return  # the lock is held by a dead server's rewrite child, which only writes a temporary file
            if waited > STOP_WITHIN + 5:
                raise StoreSetupError(f"{home.data_dir}: a server from before (process {pid}) does not end")
            if waited > STOP_WITHIN and pid is not None:
                os.kill(pid, signal.SIGKILL)
            time.sleep(POLL)

    def _spawn(self) -> None:
        assert self._program is not None
        assert self.version is not None
        home = self.home
        with home.faults_explained():
            self._socket = home.choose_socket()
            home.write_version(self.version)
        home.server.release()
        home.server.path.unlink(missing_ok=True)  # a dead server's rewrite child may still hold the old file
        home.server.take()
        command = [str(self._program), *self._options(self._socket)]
        if sys.platform == "linux":
            command = [sys.executable, "-I", "-S", "-c", LAUNCHER, str(os.getpid()), *command]
        self._process = subprocess.Popen(  # noqa: S603  # a program from PATH or from our own dependency
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=home.root,
            start_new_session=True,  # Ctrl-C must not end the store before the gateway has settled
            umask=0o077,
            pass_fds=[home.server.fileno()],
        )
        home.server.release()  # from now on only the server holds it

    def _options(self, socket: Path) -> list[str]:
        home = self.home
        settings = {
            "port": "0",
            "unixsocket": str(socket),
            "unixsocketperm": "600",
            "dir": str(home.root),
            "pidfile": str(home.pid_file),
            "logfile": str(home.log),
            "daemonize": "no",
            "save": "",
            "appendonly": "yes",
            "appendfsync": "everysec",
            "aof-load-truncated": "yes",  # after a power failure during a write, it starts without the last line
            "maxmemory-policy": "noeviction",
            # A stream begins with this much memory, so it is most of an account with few lines. Of many lines, each
            # takes 2 % more than with the default of 4096.
            "stream-node-max-bytes": "2048",
        }
        return [part for name, value in settings.items() for part in (f"--{name}", value)]

    def _await_ready(self) -> None:
        process = self._process
        deadline = time.monotonic() + ANSWER_WITHIN
        while process is not None and not self._stopping:
            answer = ask(self._socket, "PING")
            if answer == "+PONG":
                return
            if process.poll() is not None:
                end = _ending(process.returncode)
                words = f"{self.home.last_words()}; {self.home.free_space()}"
                raise StoreSetupError(f"the store's server ended at start with {end}: {words}")
            if answer.startswith(CANNOT_WRITE):
                raise StoreSetupError(f"the store's server refuses: {answer[1:]}; {self.home.free_space()}")
            if answer.startswith("-LOADING"):
                deadline = time.monotonic() + ANSWER_WITHIN
            elif time.monotonic() > deadline:
                raise StoreSetupError(f"the store's server does not answer at start: {self.home.last_words()}")
            time.sleep(POLL)
        raise StoreSetupError("the store's server is being stopped")


def _ending(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"

"""A checkout's gateway that serves with the probe inside, one client, and its access log."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from benchmarks.checkout import Checkout
from benchmarks.contenders import Running
from benchmarks.contenders.contender import Place
from benchmarks.contenders.gateway import LOG, GatewayAt
from benchmarks.cores import available_cores, share_out
from benchmarks.fault import BenchFault
from benchmarks.load import Load, http_request
from benchmarks.probe.caller import Caller
from benchmarks.probe.commands import Commands, serving_pid
from benchmarks.upstream import mock_upstream

INSIDE = Path(__file__).parent / "inside"
LOGGED_WITHIN = 60.0  # seconds


class Probed(Struct, frozen=True):
    """A gateway that serves, its one client, and the probe in the worker that serves it."""

    server: Running
    folder: Path
    caller: Caller
    commands: Commands
    pid: int

    def request(self, *, model: str, stream: bool) -> bytes:
        """The HTTP request of a chat."""
        load = Load(mode="streams" if stream else "json", connections=1, model=model)
        return http_request(load, path=self.server.path, headers=self.server.headers)

    def call(self, request: bytes) -> None:
        """Send a request, read the whole answer, and wait until its access line is written."""
        logged_as = self.caller.ask(request).request_id.encode()
        deadline = time.monotonic() + LOGGED_WITHIN
        while logged_as not in (self.folder / LOG).read_bytes():
            if time.monotonic() > deadline:
                raise BenchFault("the gateway wrote no access line")
            time.sleep(0.005)


class _ProbedGateway(GatewayAt):
    """The gateway of a checkout, whose server runs under `wrapper` with `probe` in its environment."""

    def __init__(self, checkout: Checkout, wrapper: Sequence[str], probe: Mapping[str, str], further: str) -> None:
        super().__init__(str(checkout.root))
        self._further = further
        self._has_limits = (checkout.root / "gateway" / "config" / "server_settings.py").exists()
        self._wrapper = wrapper
        self._probe = probe

    def serving(self, env: Mapping[str, str]) -> tuple[Sequence[str], dict[str, str]]:
        serve, env = super().serving(env)
        path = os.pathsep.join((str(INSIDE), env["PYTHONPATH"]))
        return (*self._wrapper, *serve), {**env, **self._probe, "PYTHONPATH": path}

    def further_settings(self) -> str:
        return super().further_settings() + self._further

    def server_settings(self) -> str:
        table = "[server.limits]\n" if self._has_limits else ""  # an older checkout has the key in [server]
        return f"{table}max_loop_lag = 0\n"  # a worker that counts is late, and is meant to serve


@contextmanager
def probed(
    checkout: Checkout,
    *,
    models: Sequence[str],
    wrapper: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    further: str = "",
) -> Iterator[Probed]:
    """Serve `models` with one worker; `wrapper` begins the server's command, `environment` is for its processes.

    `further` are tables of the configuration.
    """
    cores = share_out(available_cores(), workers=1)
    with tempfile.TemporaryDirectory(prefix="bench-") as name, mock_upstream(Path(name), cores=cores.load) as upstream:
        folder = Path(name)
        place = Place(folder, cores=cores, upstream=upstream, models=("mock", *models))
        contender = _ProbedGateway(checkout, wrapper, {**(environment or {}), "BENCH_PROBE": name}, further)
        if reason := contender.absent():
            raise BenchFault(reason)
        with contender.running(place) as server, Caller(server.port) as caller:
            caller.ask(http_request(Load(mode="json", connections=1), path=server.path, headers=server.headers))
            pid = serving_pid(caller.socket)
            with Commands(folder, pid) as commands:
                yield Probed(server, folder, caller, commands, pid)

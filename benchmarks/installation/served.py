"""The gateway of an installation while it serves: started, signed in to, and its console's memory read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from time import monotonic, sleep

from msgspec import Struct

from benchmarks.contenders.gateway import COMMAND
from benchmarks.cores import available_cores
from benchmarks.fault import BenchFault
from benchmarks.installation.place import ENVIRONMENT, InstallationPlace
from benchmarks.processes import CpuMeter, Process, module_of, running, tree

CONSOLE = "gateway.runtime.console"
STARTS_WITHIN = 1_800.0  # seconds


class Served(Struct, frozen=True):
    """The running gateway."""

    console_pid: int
    started_within: float  # seconds

    def meter(self) -> CpuMeter:
        """The CPU that the console uses from now on."""
        return CpuMeter([self.console_pid])

    def forget_peak(self) -> None:
        """Let the console's peak of memory begin anew."""
        Path(f"/proc/{self.console_pid}/clear_refs").write_text("5")

    def peak(self) -> int:
        """The most memory that the console had since then, in bytes."""
        lines = Path(f"/proc/{self.console_pid}/status").read_text(encoding="ascii").splitlines()
        [peak] = [line for line in lines if line.startswith("VmHWM")]
        return int(peak.split()[1]) * 1024


@contextmanager
def served(place: InstallationPlace, key: str) -> Iterator[Served]:
    """The gateway for the length of a block. `key`: the text of one, by which it is known to be ready."""
    began = monotonic()
    command = [*COMMAND, "serve", "--config", str(place.config)]
    log = place.folder / "gateway.log"
    with running(command, log=log, cores=available_cores(), env=ENVIRONMENT) as process:
        _await(process, place.port, "/v1/models", {"Authorization": f"Bearer {key}"})
        _await(process, place.console_port, "/sign-in", {})
        took = monotonic() - began
        [console] = [stat.pid for stat in tree([process.pid]) if module_of(stat.pid) == CONSOLE]
        yield Served(console, took)


def _await(process: Process, port: int, path: str, headers: dict[str, str]) -> None:
    until = monotonic() + STARTS_WITHIN
    while monotonic() < until:
        if not process.alive:
            raise BenchFault(f"the gateway ended at start: {process.last_words()}")
        if _status(port, path, headers) == 200:
            return
        sleep(0.02)
    raise BenchFault(f"the gateway does not answer {path}")


def _status(port: int, path: str, headers: dict[str, str]) -> int:
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", path, headers=headers)
        return connection.getresponse().status
    except (OSError, HTTPException):
        return 0
    finally:
        connection.close()

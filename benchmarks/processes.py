"""Child processes: started on given cores, read from /proc while they work, and ended by their own ids.

CPU and memory are those of the whole tree below the given processes, because contenders bring workers. A child runs in
a session of its own, so that Ctrl-C reaches the bench first and the bench ends its children in order.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from benchmarks.cores import pinned
from benchmarks.fault import BenchFault

TICK = 1.0 / os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
PROCESS_CLOCK = 2  # in a clock's id: the time that a process was scheduled, see clock_getcpuclockid(3)
STOP_WITHIN = 10.0  # seconds between SIGTERM and SIGKILL


class Stat(msgspec.Struct, frozen=True):
    """One process at one moment; `born` tells it from a later one with the same id."""

    pid: int
    parent: int
    born: int
    cpu: float  # seconds
    rss: int  # bytes


def _environment() -> dict[str, str]:
    """This process's environment without coverage.py: a process that is measured does no other measuring.

    Its tracer would also follow the probe's thread. When that thread sees a new `sys.path`, coverage.py removes all
    modules from `sys.modules` that the main thread imports meanwhile, and their import fails with a KeyError.
    """
    return {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}


class Process:
    """One started program, with its output in a file."""

    def __init__(self, command: Sequence[str], *, log: Path, cores: Iterable[int], env: dict[str, str] | None = None):
        self.log = log
        with pinned(cores), log.open("wb") as output:
            self._popen = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=log.parent,
                env={**_environment(), **(env or {})},
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The process id; workers are below it."""
        return self._popen.pid

    @property
    def alive(self) -> bool:
        """False once it has ended."""
        return self._popen.poll() is None

    def last_words(self) -> str:
        """The last line it wrote, to say why it ended."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return lines[-1][-300:] if lines else "it wrote nothing"

    def stop(self) -> None:
        """End it, and whatever it leaves behind."""
        family = tree([self.pid])
        self._popen.terminate()
        try:
            self._popen.wait(STOP_WITHIN)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()
        living = {stat.pid: stat for stat in all_processes()}
        for stat in family:
            if stat.pid in living and living[stat.pid].born == stat.born:
                kill(stat.pid)


@contextmanager
def running(
    command: Sequence[str], *, log: Path, cores: Iterable[int], env: dict[str, str] | None = None
) -> Iterator[Process]:
    """A process for the length of a block."""
    process = Process(command, log=log, cores=cores, env=env)
    try:
        yield process
    finally:
        process.stop()


@contextmanager
def seat_taken(folder: Path, cores: Iterable[int]) -> Iterator[None]:
    """Leave half of a core to whoever else runs there: a process that always wants to compute has the other half.

    The kernel shares a core evenly among those that want it, and this needs no rights as a quota would.
    """
    with running([sys.executable, "-c", "while True: pass"], log=folder / "seat.log", cores=cores):
        yield


def kill(pid: int) -> None:
    """End a process that did not end with its parent; one that is gone already is fine."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    deadline = time.monotonic() + STOP_WITHIN
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.01)


def all_processes() -> list[Stat]:
    """Every living process of the machine."""
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            text = (folder / "stat").read_text(encoding="utf-8", errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue  # it ended meanwhile
        fields = text.rpartition(")")[2].split()  # the name before it may hold spaces; from here on see proc(5)
        if fields[0] != "Z":
            cpu = (int(fields[11]) + int(fields[12])) * TICK
            found.append(
                Stat(int(folder.name), parent=int(fields[1]), born=int(fields[19]), cpu=cpu, rss=int(fields[21]) * PAGE)
            )
    return found


def tree(pids: Iterable[int]) -> list[Stat]:
    """These processes and all below them."""
    living = all_processes()
    wanted = set(pids)
    before = 0
    while len(wanted) > before:
        before = len(wanted)
        wanted |= {stat.pid for stat in living if stat.parent in wanted}
    return [stat for stat in living if stat.pid in wanted]


def module_of(pid: int) -> str:
    """The module that a Python process runs, or the name of its program; empty if the process has ended."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return ""
    return words[words.index("-m") + 1] if "-m" in words[:-1] else Path(words[0]).name


@contextmanager
def stopped(pids: Iterable[int], module: str) -> Iterator[None]:
    """The processes of `module` among these and their children are stopped for the length of the block."""
    found = [stat.pid for stat in tree(pids) if module_of(stat.pid) == module]
    if not found:
        raise BenchFault(f"no process runs {module}")
    for pid in found:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in found:
            os.kill(pid, signal.SIGCONT)


def cpu_seconds(stat: Stat) -> float:
    """User and system time of a process by its own clock, in nanoseconds; threads that have ended are in it.

    What /proc says is rounded to ticks of 10 ms: too coarse for a process that is nearly idle.
    """
    try:
        return time.clock_gettime((~stat.pid << 3) | PROCESS_CLOCK)
    except OSError:
        return stat.cpu  # it has ended since


class CpuMeter:
    """CPU seconds that process trees used between two moments; with `module`, only the processes that run it."""

    def __init__(self, pids: Iterable[int], *, module: str = "") -> None:
        self._pids = tuple(pids)
        self._module = module
        self._before = self._read()

    def used(self) -> float:
        """Seconds since the meter was made; a worker born since then counts in full."""
        return sum(cpu - self._before.get(key, 0.0) for key, cpu in self._read().items())

    def _read(self) -> dict[tuple[int, int], float]:
        found = (stat for stat in tree(self._pids) if self._module in ("", module_of(stat.pid)))
        return {(stat.pid, stat.born): cpu_seconds(stat) for stat in found}


class CoreMeter:
    """CPU seconds that anybody used on some cores, from /proc/stat; stolen time counts as used."""

    def __init__(self, cores: Iterable[int]) -> None:
        self._names = {f"cpu{core}" for core in cores}
        self._before = self._read()

    def used(self) -> float:
        """Seconds since the meter was made."""
        return self._read() - self._before

    def _read(self) -> float:
        rows = [line.split() for line in Path("/proc/stat").read_text(encoding="utf-8").splitlines()]
        ticks = [[int(field) for field in row[1:9]] for row in rows if row[0] in self._names]
        return TICK * sum(sum(row) - row[3] - row[4] for row in ticks)  # all but idle and waiting for I/O


def rss(pids: Iterable[int]) -> int:
    """Resident bytes of process trees; pages that workers share count for each."""
    return sum(stat.rss for stat in tree(pids))

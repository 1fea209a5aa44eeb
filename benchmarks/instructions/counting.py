"""Counts instructions in a worker: windows of work, and differences between windows.

A window of 51 requests less a window of one is 50 warm requests; the cost of a window itself cancels out. What the
worker does beside requests (timers, the watchdog's thread) is counted in windows without work and subtracted by the
second.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec import Struct

from benchmarks.checkout import Checkout
from benchmarks.compiler import build
from benchmarks.dialects.upstream import Upstream, dialect_upstream
from benchmarks.fault import BenchFault
from benchmarks.instructions.callgrind import OPTIONS, Count, read_count
from benchmarks.instructions.stages import OUTSIDE, STAGES, numbered_table
from benchmarks.probe import Probed, probed

SOURCE = Path(__file__).parent.parent / "probe" / "callgrind.c"
HEADER = Path("valgrind") / "callgrind.h"

JSON = "mock"
FEW, MANY = 20, 220  # chunks of the two streams
SHORT, LONG = f"stream-{FEW}", f"stream-{MANY}"
#: Streams whose words wait for their reader: at fixed times, several would arrive together on a busy machine.
STREAMS_TOML = """
[providers.streams]
plugin = "openai"
base_url = "{url}/v1"
""" + "".join(
    f"""
[models."stream-{words}"]
provider = "streams"
model = "mock-{words}"
context_window = 1_000_000
max_output_tokens = 4096
price = {{{{ input = 0.25, cached_input = 0.025, output = 2.0 }}}}
"""
    for words in (FEW, MANY)
)
REQUESTS = 50
STREAMS = 5
WARM_UP = 20  # calls of each kind before anything is counted
WARM_UP_COUNTED = 10  # further ones while callgrind already counts: it translates the code anew
IDLE = 5.0  # seconds
WRITES_WITHIN = 30.0  # seconds for callgrind to write a file


class Costs(Struct, frozen=True):
    """Instructions of one unit of work: the median of all repeats, with the least and the most."""

    total: float
    least: float
    most: float
    stages: dict[str, float]


class Counted(Struct, frozen=True):
    """A warm JSON request, one further chunk of a warm stream, and the rest of a stream."""

    request: Costs
    chunk: Costs
    stream: Costs  # a whole stream of FEW chunks
    idle: float  # per second, without any work


class Window(Struct, frozen=True):
    """What was counted while some work was done."""

    count: Count
    seconds: float


class Counter:
    """Counts in one worker."""

    def __init__(self, worker: Probed, folder: Path) -> None:
        self._worker = worker
        self._folder = folder
        self._windows = 0

    def window(self, work: Callable[[], None]) -> Window:
        """Instructions of the worker while `work` runs."""
        self._windows += 1
        self._worker.commands.send("zero")
        began = time.monotonic()
        work()
        seconds = time.monotonic() - began
        self._worker.commands.send("dump", f"window-{self._windows}")
        return Window(read_count(self._written()), seconds)

    def asked(self, request: bytes, times: int = 1) -> Window:
        """Instructions of the worker while it answers a request so many times, one after the other."""

        def work() -> None:
            for _ in range(times):
                self._worker.caller.ask(request)

        return self.window(work)

    def idle(self, seconds: float = IDLE) -> Window:
        """Instructions of the worker without any request."""
        return self.window(lambda: time.sleep(seconds))

    def _written(self) -> Path:
        """The file of the last window, once callgrind has written all of it."""
        file = self._folder / f"out.{self._worker.pid}.{self._windows}"
        deadline = time.monotonic() + WRITES_WITHIN
        while not (file.exists() and b"\ntotals:" in file.read_bytes()):
            if time.monotonic() > deadline:
                raise BenchFault("callgrind wrote no count")
            time.sleep(0.02)
        return file


def difference(more: Window, less: Window, units: int, *, idle: Window) -> dict[int, float]:
    """Instructions of each unit by stage, without what runs beside requests."""
    share = (more.seconds - less.seconds) / idle.seconds

    def of(number: int) -> float:
        more_, less_, idle_ = (window.count.stages.get(number, 0) for window in (more, less, idle))
        return (more_ - less_ - share * idle_) / units

    return {number: of(number) for number in range(len(STAGES) + 1)}


def count(
    checkout: Checkout, *, repeats: int, by_stage: bool, tell: Callable[[str], None], further: str = ""
) -> Counted:
    """Serve the checkout under callgrind and count. `further`: tables of its configuration."""
    with dialect_upstream() as upstream, _counting_streams(checkout, upstream, further) as (worker, folder):
        json, short, long = (worker.request(model=model, stream=model != JSON) for model in (JSON, SHORT, LONG))
        tell("warming up")
        _warm_up(worker, (json, short, long), folder, by_stage=by_stage)
        counter = Counter(worker, folder)
        found: dict[str, list[dict[int, float]]] = {"request": [], "chunk": [], "stream": []}
        rates = []
        for number in range(1, repeats + 1):
            tell(f"counting, {number} of {repeats}")
            idle = counter.idle()
            rates.append(idle.count.total / idle.seconds)
            once, often = counter.asked(json), counter.asked(json, 1 + REQUESTS)
            few, many, several = counter.asked(short), counter.asked(long), counter.asked(short, 1 + STREAMS)
            found["request"].append(difference(often, once, REQUESTS, idle=idle))
            found["chunk"].append(difference(many, few, MANY - FEW, idle=idle))
            found["stream"].append(difference(several, few, STREAMS, idle=idle))
        costs = {name: _costs(differences) for name, differences in found.items()}
        return Counted(**costs, idle=statistics.median(rates))


def _warm_up(worker: Probed, requests: Sequence[bytes], folder: Path, *, by_stage: bool) -> None:
    for request in requests:
        for _ in range(WARM_UP if request is requests[0] else 3):
            worker.call(request)
    if by_stage:
        table = folder / "stages.json"
        table.write_bytes(msgspec.json.encode(numbered_table()))
        worker.commands.send("stages", str(table))
    worker.commands.send("begin")
    for request in requests:
        for _ in range(WARM_UP_COUNTED if request is requests[0] else 2):
            worker.call(request)


def _costs(differences: list[dict[int, float]]) -> Costs:
    totals = [sum(difference.values()) for difference in differences]
    names = (OUTSIDE, *STAGES)
    return Costs(
        statistics.median(totals),
        min(totals),
        max(totals),
        {name: statistics.median(d[number] for d in differences) for number, name in enumerate(names)},
    )


@contextmanager
def _counting_streams(checkout: Checkout, upstream: Upstream, further: str) -> Iterator[tuple[Probed, Path]]:
    url = f"http://127.0.0.1:{upstream.port}"
    with counting(checkout, further=STREAMS_TOML.format(url=url) + further) as (worker, folder):
        worker.caller.told = upstream.told
        yield worker, folder


@contextmanager
def counting(checkout: Checkout, *, further: str = "") -> Iterator[tuple[Probed, Path]]:
    """A worker under callgrind, and the folder of its counts. `further`: tables of its configuration."""
    program = shutil.which("valgrind")
    if program is None:
        raise BenchFault("no valgrind on PATH")
    environment = {
        "BENCH_PROBE_EXTENSION": str(_extension(checkout)),
        "PYTHONHASHSEED": "0",  # the same collisions in every run
    }
    with tempfile.TemporaryDirectory(prefix="bench-callgrind-") as folder:
        wrapper = (program, *OPTIONS, f"--callgrind-out-file={folder}/out.%p", f"--log-file={folder}/log.%p")
        with probed(checkout, models=(), wrapper=wrapper, environment=environment, further=further) as worker:
            yield worker, Path(folder)


def _extension(checkout: Checkout) -> Path:
    """The library for the interpreter of the checkout."""
    code = "import sysconfig; print(sysconfig.get_paths()['include'])"
    folder = subprocess.check_output([checkout.python, "-c", code], text=True).strip()
    return build(SOURCE, "-shared", "-fPIC", "-Wno-unused-parameter", f"-I{folder}")

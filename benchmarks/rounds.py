"""Runs scenarios in interleaved rounds: A B C A B C …, each contender alone, each round from a fresh start.

A machine changes under a bench (other tenants, clock, heat), so contenders are compared within one round, where they
ran minutes apart, and never by figures of different rounds.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

import msgspec

from benchmarks.contenders import Contender, Place, Running
from benchmarks.cores import share_out
from benchmarks.fault import BenchFault
from benchmarks.load import Load, Result, Spread, http_request, run_load
from benchmarks.processes import CoreMeter, CpuMeter, rss, seat_taken
from benchmarks.scenarios import Point, Scenario
from benchmarks.upstream import mock_upstream

IMPORTER = "gateway.runtime.importer"  # the module of the process that copies ledger lines to the database


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """What one contender did at one point of one round."""

    scenario: str
    point: str
    contender: str
    round: int
    figures: dict[str, float] = {}
    faults: str = ""  # why figures are missing, or not to be trusted
    result: Result | None = None  # what the load generator counted, whole


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """How long, how often, where."""

    rounds: int
    seconds: float
    warmup: float
    cores: tuple[int, ...]
    tell: Callable[[str], None]  # progress, for a person


def run_scenario(scenario: Scenario, contenders: list[Contender], plan: Plan) -> list[Sample]:
    """All rounds of one scenario."""
    samples: list[Sample] = []
    for number in range(1, plan.rounds + 1):
        for contender in contenders:
            if scenario.scaling and not contender.scales:
                continue
            plan.tell(f"{scenario.name}: round {number} of {plan.rounds}, {contender.name}")
            samples += _turn(scenario, contender, number, plan)
    return with_added_delays(samples)


def _turn(scenario: Scenario, contender: Contender, number: int, plan: Plan) -> Iterator[Sample]:
    """One contender's part of one round: every point in one process, or a process for each."""
    for batch in [[point] for point in scenario.points] if scenario.fresh else [list(scenario.points)]:
        left = list(batch)
        try:
            with _started(scenario, contender, batch[0].workers, plan) as (server, place):
                while left:
                    taken = measure(left[0].load, server, place, _settled(plan, left[0]))
                    yield _sample(scenario, left.pop(0), contender, number, taken)
        except BenchFault as fault:  # the other contenders go on
            for point in left:
                yield Sample(
                    scenario=scenario.name, point=point.name, contender=contender.name, round=number, faults=str(fault)
                )


def _settled(plan: Plan, point: Point) -> Plan:
    """The plan with as much warm-up as the point needs."""
    return msgspec.structs.replace(plan, warmup=max(plan.warmup, point.settles))


@contextmanager
def _started(scenario: Scenario, contender: Contender, workers: int, plan: Plan) -> Iterator[tuple[Running, Place]]:
    """A mock upstream of its own and the contender, in a folder that goes away."""
    cores = share_out(plan.cores, workers=1 if scenario.halves else workers)
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as name,
        mock_upstream(Path(name), cores=cores.load) as upstream,
        seat_taken(Path(name), cores.contender) if scenario.halves and workers == 1 else nullcontext(),
    ):
        place = Place(Path(name), cores=cores, upstream=upstream, models=scenario.models, workers=workers)
        with contender.running(place) as server:
            yield server, place


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """A load's result, and what the contender's processes used meanwhile."""

    result: Result
    cpu: float  # seconds, of all its processes
    importer_cpu: float  # a part of `cpu`; 0 for a contender without an importer
    store_cpu: float
    others_cpu: float  # what anybody else used on the contender's cores
    rss_before: int  # bytes
    rss_after: int
    until_held: float  # seconds from the start of the load to the measured time


def measure(
    load: Load,
    server: Running,
    place: Place,
    plan: Plan,
    *,
    requests: Sequence[bytes] = (),
    on_end: Callable[[], None] | None = None,
) -> Measurement:
    """Run a load once, and read the processes when its measured time begins and ends.

    `requests`, all of one length, are sent in turn; without them it is the same one again and again. `on_end` is called
    when the measured time is over, while connections are still open.
    """
    store_pids = (server.store_pid,) if server.store_pid else ()
    meters: list[CpuMeter | CoreMeter] = []
    used: list[float] = []
    memory: list[int] = []
    began: list[float] = []

    def begin() -> None:
        began.append(time.monotonic())
        meters.extend((CpuMeter(server.pids), CpuMeter(store_pids), CoreMeter(place.cores.contender)))
        meters.append(CpuMeter(server.pids, module=IMPORTER))

    def end() -> None:
        used.extend(meter.used() for meter in meters)
        memory.append(rss(server.pids))
        if on_end is not None:
            on_end()

    before, started = rss(server.pids), time.monotonic()
    result = run_load(
        load,
        port=server.port,
        request=b"".join(requests) or http_request(load, path=server.path, headers=server.headers),
        variants=len(requests) or 1,
        folder=place.folder,
        cores=place.cores.load,
        warmup=plan.warmup,
        seconds=plan.seconds,
        on_begin=begin,
        on_end=end,
    )
    return Measurement(
        result=result,
        cpu=used[0],
        importer_cpu=used[3],
        store_cpu=used[1],
        others_cpu=max(0.0, used[2] - used[0]),
        rss_before=before,
        rss_after=memory[0],
        until_held=began[0] - started - plan.warmup,
    )


def _sample(scenario: Scenario, point: Point, contender: Contender, number: int, taken: Measurement) -> Sample:
    return Sample(
        scenario=scenario.name,
        point=point.name,
        contender=contender.name,
        round=number,
        figures=figures_of(point, taken, stored=contender.stored, pinned=contender.pinned),
        faults=taken.result.faults,
        result=taken.result,
    )


def figures_of(point: Point, taken: Measurement, *, stored: bool, pinned: bool) -> dict[str, float]:
    """The figures that tables show; what cannot be said is left out.

    `cpu_us` is of all processes. Its two parts are `importer_us`, if there is an importer, and `request_us` of all
    others: workers, supervisor.
    """
    result, load = taken.result, point.load
    work = result.chunks if load.mode == "streams" else result.completed
    found = {
        "rate": result.completed / result.seconds,
        "busy": 100 * taken.cpu / result.seconds / point.workers,
        "rss_mib": taken.rss_after / 2**20,
    }
    if pinned:
        found["others"] = 100 * taken.others_cpu / result.seconds / point.workers
    if work:
        found["chunk_us" if load.mode == "streams" else "cpu_us"] = taken.cpu / work * 1e6
        if load.mode != "streams":
            found["request_us"] = (taken.cpu - taken.importer_cpu) / work * 1e6
            if taken.importer_cpu:
                found["importer_us"] = taken.importer_cpu / work * 1e6
        if stored:
            found["store_us"] = taken.store_cpu / work * 1e6
    if load.mode == "streams":
        interval = int(load.model.rpartition("x")[2]) / 1000
        found["chunk_rate"] = result.chunks / result.seconds
        found["on_time"] = 100 * found["chunk_rate"] * interval / load.connections
    if load.mode == "idle":
        found["held"] = result.held
        found["open_rate"] = result.held / max(taken.until_held, 0.001)
        found["each_kib"] = (taken.rss_after - taken.rss_before) / max(result.held, 1) / 1024
    for name, spread in (("", result.latency), ("chunk_", result.added), ("first_", result.first_chunk)):
        found |= _percentiles(name, spread)
    return found


def _percentiles(prefix: str, spread: Spread | None) -> dict[str, float]:
    return {f"{prefix}p50": spread.p50, f"{prefix}p99": spread.p99} if spread else {}


def with_added_delays(samples: list[Sample]) -> list[Sample]:
    """Each sample with its percentiles less those of `direct` in the same round, where `direct` took part."""
    direct = {(s.point, s.round): s.figures for s in samples if s.contender == "direct"}
    delays = ("p50", "p99", "chunk_p50", "chunk_p99", "first_p50")
    return [
        msgspec.structs.replace(
            sample,
            figures=sample.figures
            | {
                f"added_{key}": sample.figures[key] - base[key]
                for key in delays
                if (base := direct.get((sample.point, sample.round))) and key in base and key in sample.figures
            },
        )
        for sample in samples
    ]

"""What is measured: scenarios, each a few points with one kind of load, and the figures its table shows."""

from __future__ import annotations

import msgspec

from benchmarks.load import Load


class Figure(msgspec.Struct, frozen=True):
    """One column: which measured figure, how it is headed, and which direction is better when it is compared."""

    key: str
    title: str
    digits: int = 0
    better: str = ""  # "more" or "less": a ratio is shown, above 1 when the reference is better


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """One load on one set-up."""

    name: str
    load: Load
    workers: int = 1
    settles: float = 0  # seconds of warm-up that it needs at least


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """Points that share a table form."""

    name: str
    title: str
    points: tuple[Point, ...]
    figures: tuple[Figure, ...]
    fresh: bool = False  # a new process for each point: memory once used is not given back
    scaling: bool = False  # points differ in workers: each is compared with the contender's own first point
    halves: bool = False  # each worker has half a core, so that two fit beside a load that keeps cores of its own

    @property
    def models(self) -> tuple[str, ...]:
        """Every model its points ask for, and `mock`, which the readiness check asks for."""
        return tuple(dict.fromkeys(("mock", *(point.load.model for point in self.points))))


RATE = Figure("rate", "req/s", better="more")
CPU = Figure("cpu_us", "CPU µs/req", 1, better="less")
STORE = Figure("store_us", "store µs/req", 1)
BUSY = Figure("busy", "busy %")
OTHERS = Figure("others", "others %")
RSS = Figure("rss_mib", "RSS MiB")
P50, P99 = Figure("p50", "p50 ms", 2), Figure("p99", "p99 ms", 2)
ADDED = (Figure("added_p50", "added p50 ms", 2), Figure("added_p99", "added p99 ms", 2))

JSON = Scenario(
    name="json",
    title="saturated JSON",
    points=(Point(name="64 connections", load=Load(mode="json", connections=64)),),
    figures=(RATE, CPU, STORE, BUSY, OTHERS, P50, P99, RSS),
)

OPEN = Scenario(
    name="open",
    title="open loop JSON",
    points=tuple(
        Point(name=f"{rate} per s", load=Load(mode="open", connections=1000, rate=rate)) for rate in (40, 300, 1000)
    ),
    figures=(Figure("rate", "req/s"), P50, P99, *ADDED, CPU, STORE, BUSY, OTHERS),
)

STREAMS = Scenario(
    name="streams",
    title="streams",
    points=tuple(
        Point(
            name=f"{streams} × {interval} ms",
            load=Load(mode="streams", connections=streams, model=f"mock-100x{interval}", chunks=100),
            # Streams begin at random within half of the warm-up. In less than their own length they would stay a herd,
            # each thousand starting in the same second; this way as many start in any second.
            settles=2 * 100 * interval / 1000,
        )
        for streams, interval in ((100, 20), (1000, 50))
    ),
    figures=(
        Figure("chunk_rate", "chunks/s"),
        Figure("on_time", "of schedule %", 1),
        Figure("chunk_us", "CPU µs/chunk", 1, better="less"),
        Figure("store_us", "store µs/chunk", 1),
        BUSY,
        OTHERS,
        Figure("chunk_p50", "chunk p50 ms", 2),
        Figure("chunk_p99", "chunk p99 ms", 2),
        Figure("added_chunk_p50", "added p50 ms", 2),
        Figure("added_chunk_p99", "added p99 ms", 2),
        Figure("first_p50", "first p50 ms", 2),
        Figure("added_first_p50", "added first ms", 2),
    ),
)

IDLE = Scenario(
    name="idle",
    title="idle streams",
    # One chunk at once, the next in 20 minutes: nothing but keep-alives is under way while they are held.
    points=tuple(
        Point(name=f"{streams} streams", load=Load(mode="idle", connections=streams, model="mock-2x1200000"))
        for streams in (1000, 5000, 9900)
    ),
    figures=(
        Figure("held", "held"),
        Figure("each_kib", "RSS KiB each", 1, better="less"),
        RSS,
        Figure("busy", "busy %", 1),
        Figure("open_rate", "opened/s"),
    ),
    fresh=True,
)

WORKERS = Scenario(
    name="workers",
    title="two workers against one",
    points=tuple(
        Point(name=f"{workers} worker{'s' * (workers > 1)}", load=Load(mode="json", connections=128), workers=workers)
        for workers in (1, 2)
    ),
    figures=(RATE, CPU, STORE, BUSY, OTHERS, P50, P99, RSS),
    fresh=True,
    scaling=True,
)

HALVES = msgspec.structs.replace(WORKERS, name="halves", title="two workers against one, half a core each", halves=True)


def all_scenarios() -> dict[str, Scenario]:
    """By name, in the order they run."""
    return {scenario.name: scenario for scenario in (JSON, OPEN, STREAMS, IDLE, WORKERS, HALVES)}

"""What one Redis call costs this process: RedisLink against redis.asyncio, interleaved in one run.

    python benchmarks/micro_redis.py [--rounds 5] [--seconds 0.4]

Starts a server of its own, runs the same SET with N callers at once, and prints CPU µs per call of this process (which
is what the gateway pays) and calls per second: median, min and max of the rounds. Bounded to about 20 s.
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

from gateway.store import EmbeddedServer, Store

CALLERS = (1, 16, 64)


async def load(call: Callable[[], Awaitable[object]], callers: int, seconds: float) -> tuple[float, float]:
    """(CPU µs per call, calls per second) of `callers` loops over `call`."""
    done, end = 0, time.perf_counter() + seconds

    async def caller() -> None:
        nonlocal done
        while time.perf_counter() < end:
            await call()
            done += 1

    cpu, wall = time.process_time(), time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(callers)))
    return (time.process_time() - cpu) / done * 1e6, done / (time.perf_counter() - wall)


async def compare(socket: str, rounds: int, seconds: float) -> None:
    store = await Store.open(socket)
    link = store.link("")
    contenders: dict[str, Callable[[], Awaitable[object]]] = {
        "redis.asyncio": lambda: store.client.set("k", "value"),
        "RedisLink": lambda: link.call("SET", "k", "value"),
    }
    for callers in CALLERS:
        figures: dict[str, list[tuple[float, float]]] = {name: [] for name in contenders}
        for _ in range(rounds):
            for name, call in contenders.items():
                figures[name].append(await load(call, callers, seconds))
        print(f"\n{callers} caller(s)        µs CPU/call: median (min-max)    calls/s")
        for name, runs in figures.items():
            cpu = [run[0] for run in runs]
            rate = statistics.median(run[1] for run in runs)
            print(f"  {name:14} {statistics.median(cpu):18.1f} ({min(cpu):.1f}-{max(cpu):.1f}) {rate:16,.0f}")
        pairs = [a[0] / b[0] for a, b in zip(figures["redis.asyncio"], figures["RedisLink"], strict=True)]
        print(f"  redis.asyncio costs {statistics.median(pairs):.1f} times as much ({min(pairs):.1f}-{max(pairs):.1f})")
    await store.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.4)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        server = EmbeddedServer(folder)
        server.start_blocking()
        try:
            with suppress(ImportError):
                import uvloop

                asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
            asyncio.run(compare(str(server.socket), options.rounds, options.seconds))
        finally:
            server.stop_blocking()


if __name__ == "__main__":
    main()

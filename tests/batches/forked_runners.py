"""Runners of batches that can be killed cheaply: a process imports everything once and forks one runner at a time.

`python -m tests.batches.forked_runners STORE FOLDER` reads commands, one a line, and answers each with a line:

    go                 fork a runner; the answer is its pid
    go POINT NUMBER    the runner ends itself at the NUMBERth time that it reaches a point (`POINTS`)
    kill               kill it with SIGKILL, and wait for its end
    wait               wait for its end
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

from gateway.batches import results
from gateway.batches.results import ResultLog
from gateway.config.loader import parse
from gateway.config.settings import Settings
from gateway.ledger import Journal
from gateway.runtime.batches import runner
from gateway.runtime.batches.output import BatchFiles
from gateway.runtime.batches.runner import Runner
from gateway.runtime.gateway import Gateway
from gateway.store import Store
from gateway.store.connection import RedisConnection

PEPPER = b"a pepper for tests, nowhere else used"


def settings_of(folder: Path) -> Settings:
    """One model of the fake provider, whose answers take a while."""
    return parse(
        {
            "store": {"data_dir": str(folder)},
            "log": {"access": False},
            "providers": {"fake": {"plugin": "fake", "models": {"m": {"latency": Decimal("0.1")}}}},
            "models": {
                "m": {
                    "provider": "fake",
                    "price": {"input": 1000, "output": 2000},
                    "max_output_tokens": 100,
                    "batch_factor": Decimal("0.5"),
                }
            },
            "batches": {"enabled": True},
        },
        demo=True,
    )


def _before(kind: Any, name: str, number: int, *, after: bool = False) -> None:
    """End the process at the `number`th call of a method, before or after it does its work."""
    method: Callable[..., Any] = getattr(kind, name)
    calls = 0

    def ending(*args: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == number and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        result = method(*args, **options)
        if calls == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(kind, name, ending)


def _torn(number: int) -> None:
    """End the process in the middle of a write."""
    write, calls = os.write, 0

    def torn(descriptor: int, data: bytes) -> int:
        nonlocal calls
        calls += data.startswith(b"[") and b"batch_req_" in data
        if calls == number and b"batch_req_" in data:
            write(descriptor, data[: len(data) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        return write(descriptor, data)

    results.os.write = torn  # type: ignore[attr-defined]


#: Where a runner can end itself, in the order in which a line reaches them.
POINTS: dict[str, Callable[[int], None]] = {
    "before its result": lambda number: _before(ResultLog, "append", number),
    "in its result": _torn,
    "after its result": lambda number: _before(ResultLog, "append", number, after=True),
    "before its settlement": lambda number: _before(Journal, "append", number),
    "after its settlement": lambda number: _before(Journal, "append", number, after=True),
    "before a command": lambda number: _before(RedisConnection, "send", number * 5),
    "before the files": lambda _: _before(BatchFiles, "write_results", 1),
    "between the files": lambda _: _before(BatchFiles, "_store", 2),
    "after the files": lambda _: _before(shutil, "rmtree", 1),
}


async def _run(store_at: str, folder: Path) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    store = await Store.open(store_at, timeout=20.0)
    gateway = await Gateway.build(
        settings_of(folder), store, pepper=PEPPER, journal=Journal(folder / "journal"), machine="runner"
    )
    gateway.watchdog.close()
    await Runner(gateway, stop).run()
    await gateway.close()


def main(store_at: str, folder: Path) -> None:
    """Serve commands until the end of the input."""
    runner.LOOK_EVERY, pid = 0.02, 0
    for command in sys.stdin:
        word, _, rest = command.strip().partition(" ")
        if word == "go":
            pid = os.fork()
            if not pid:
                point, _, number = rest.rpartition(" ")
                if point:
                    POINTS[point](int(number))
                try:
                    asyncio.run(_run(store_at, folder))
                finally:
                    os._exit(0)
        elif word == "kill":
            os.kill(pid, signal.SIGKILL)
        if word in ("kill", "wait"):
            os.waitpid(pid, 0)
        print(pid, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))

"""Engine processes: a real process with a small protocol of its own behind the pool."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from gateway.errors import UpstreamOverloaded, UpstreamTimeout, UpstreamTruncated, UpstreamUnreachable
from gateway.plugins.engine_processes import Engine, Engines
from tests.polling import until

JOB, PIECE, END = 2, 3, 4

WORKER = """
import os, sys
from gateway.plugins.engine_frames import HEADER, READY, frame

inbox, outbox = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(0), "wb")

def send(kind, payload=b""):
    outbox.write(frame(kind, payload))
    outbox.flush()

if sys.argv[1:] == ["broken"]:
    sys.exit(1)
send(READY, str(os.getpid()).encode())
while len(head := inbox.read(HEADER.size)) == HEADER.size:
    job = inbox.read(HEADER.unpack(head)[1])
    if job == b"die":
        os._exit(1)
    send(3, job)
    if job == b"die in the middle":
        os._exit(1)
    if job != b"never end":
        send(4)
"""


@pytest.fixture(autouse=True)
def worker_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module `engine_worker` that the process can import."""
    (tmp_path / "engine_worker.py").write_text(WORKER)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


async def answer(engines: Engines, job: bytes = b"hello") -> tuple[bytes, Engine]:
    """The pieces of one job, and the engine that had it."""
    pieces = b""
    async with engines.acquire(within=60) as engine:
        await engine.send(JOB, job)
        kind, piece = await engine.receive(within=60)
        while not engine.idle:
            pieces += piece
            kind, piece = await engine.receive(within=60)
        assert kind == END
    return pieces, engine


def is_running(pid: int) -> bool:
    """Whether a process has that id."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def pool(*, processes: int = 1, queue: int = 2, command: str = "") -> Engines:
    return Engines("engine_worker", *command.split(), processes=processes, queue=queue, ends={END})


async def test_one_process_runs_jobs_in_sequence_and_ends_with_the_pool() -> None:
    engines = pool()
    pid = int(await engines.start())
    (first, engine), (second, same) = await answer(engines), await answer(engines, b"again")
    assert (first, second) == (b"hello", b"again")
    assert engine is same
    await engines.close()
    assert not is_running(pid)


async def test_cancelled_job_ends_its_process_and_the_next_job_gets_another() -> None:
    engines = pool()
    pid = int(await engines.start())
    async with engines.acquire(within=60) as engine:
        await engine.send(JOB, b"never end")
        assert await engine.receive(within=60) == (PIECE, b"never end")
        with pytest.raises(UpstreamTimeout):
            await engine.receive(within=0.01)
    assert not is_running(pid)
    pieces, other = await answer(engines)
    assert (pieces, other is engine) == (b"hello", False)
    await engines.close()


@pytest.mark.parametrize(("job", "error"), [(b"die", UpstreamUnreachable), (b"die in the middle", UpstreamTruncated)])
async def test_process_that_ends_by_itself_fails_one_call(job: bytes, error: type[Exception]) -> None:
    engines = pool()
    await engines.start()
    with pytest.raises(error):
        await answer(engines, job)
    assert (await answer(engines))[0] == b"hello"
    await engines.close()


async def test_process_that_ended_while_idle_is_replaced() -> None:
    engines = pool()
    await engines.start()
    _, engine = await answer(engines)
    await engine.stop()
    await until(lambda: engine.is_gone)
    assert (await answer(engines))[0] == b"hello"
    await engines.close()


async def test_calls_beyond_the_queue_and_calls_that_wait_too_long_are_refused() -> None:
    engines = pool(queue=1)
    await engines.start()
    async with engines.acquire(within=60) as engine:
        engine.idle = True  # no job: the process is kept
        waiting = asyncio.create_task(answer(engines))
        await until(lambda: engines._waiting == 1)
        with pytest.raises(UpstreamOverloaded, match="overloaded"):
            await answer(engines)
    assert (await waiting)[0] == b"hello"
    async with engines.acquire(within=60):
        with pytest.raises(UpstreamOverloaded):
            async with engines.acquire(within=0.01):
                pass
    await engines.close()


async def test_engine_that_does_not_start_is_an_oserror() -> None:
    with pytest.raises(OSError, match="does not start"):
        await pool(command="broken").start()

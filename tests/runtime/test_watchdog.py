"""A loop that stands still is noticed, its holder named and in the end quarantined; a worker under pressure sheds."""

from __future__ import annotations

import asyncio
import signal
import sys
import types
from collections.abc import Callable
from typing import Any

import pytest

from gateway.metrics.process import resident_bytes
from gateway.runtime.gateway import Gateway
from gateway.runtime.overload import CHECK_EVERY, IDLE_EVERY, OverloadMonitor
from gateway.runtime.watchdog import STALLED, Stall, Watchdog, note_stall
from tests.api.conftest import Client, settings, upstream  # noqa: F401 - fixtures
from tests.api.conftest import client as client
from tests.delays import loop_is_held_for, time_passes
from tests.polling import until

pytestmark = pytest.mark.slow

BLOCKER = """
import time
from tests.delays import loop_is_held_for

def hold(seconds):
    loop_is_held_for(seconds)

def spin(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass

class Mine:
    def serve(self, seconds):
        hold(seconds)
"""


@pytest.fixture
def blocker(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A third party's package with code that blocks."""
    package = types.ModuleType("blocker_package")
    module = types.ModuleType("blocker_package.inner")
    exec(compile(BLOCKER, "/somewhere/blocker_package/inner.py", "exec"), module.__dict__)
    monkeypatch.setitem(sys.modules, "blocker_package", package)
    return module


class Kennel:
    """A watchdog on the running loop, and what it said."""

    def __init__(self) -> None:
        self.stalls: list[Stall] = []
        self.overload = OverloadMonitor(max_lag=0.0, max_memory=0)
        self.watchdog = Watchdog(self.overload, self.stalls.append)
        self.watchdog.packages = {"blocker_package": ["theirs"]}

    async def __aenter__(self) -> Kennel:
        self.overload.start()
        self.watchdog.start()
        started = self.overload.last_check
        await until(lambda: self.overload.last_check > started)
        return self

    async def __aexit__(self, *details: object) -> None:
        self.watchdog.close()
        self.overload.close()

    async def stall_by(self, hold: Callable[[], None], where: str) -> Stall:
        """What is reported of `hold`, which holds the loop in the function `where`.

        A pause of the whole process meanwhile is reported instead: then it is held again.
        """
        for _ in range(10):
            self.stalls.clear()
            hold()
            await until(lambda: self.stalls)
            if not self.stalls[0].location.endswith("whole process"):
                break
        [stall] = [stall for stall in self.stalls if stall.location.endswith(f"in {where}")]
        return stall


@pytest.mark.parametrize("way", ["hold", "spin"])
async def test_a_provider_that_holds_the_loop_is_named_with_file_and_line(blocker: Any, way: str) -> None:
    async with Kennel() as kennel:
        stall = await kennel.stall_by(lambda: getattr(blocker, way)(STALLED + 0.3), way)
    assert stall.package == "blocker_package"
    assert stall.location.startswith("inner.py:")
    assert "/" not in stall.location
    assert STALLED + 0.2 < stall.seconds < STALLED + 3


async def test_stall_outside_of_providers_has_no_provider_name() -> None:
    async with Kennel() as kennel:
        stall = await kennel.stall_by(lambda: loop_is_held_for(STALLED + 0.3), "loop_is_held_for")
    assert stall.package == ""


async def test_event_loop_that_runs_is_not_reported() -> None:
    async with Kennel() as kennel:
        started = kennel.overload.last_check
        await until(lambda: kennel.overload.last_check > started + 2 * STALLED)
    assert [stall for stall in kennel.stalls if not stall.location.endswith("whole process")] == []


async def test_a_provider_that_keeps_holding_the_loop_is_quarantined(
    gateway: Gateway, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    provider = type(gateway.providers["up"][0]).__module__.split(".")
    package = ".".join(provider[:2])
    for _ in range(5):
        response, _ = await client.chat()
        assert response.status == 200
        note_stall(gateway, Stall(0.7, package, "openai.py:1 in chat"))
    response, document = await client.chat()
    assert (response.status, document["error"]["code"]) == (503, "service_unavailable")
    assert 25 <= int(response.headers["Retry-After"]) <= 30
    assert "stood still for 0.70 s by provider up at openai.py:1" in caplog.text
    assert "up is not called for 30 s: the provider plugin's own code keeps failing" in caplog.text


@pytest.mark.holds("scaling.md#limits-1")
async def test_an_overloaded_worker_refuses_before_it_authenticates(gateway: Gateway, client: Client) -> None:
    gateway.overload.close()  # its next beat would find that nothing is late
    gateway.overload.high = True
    async with client.request("POST", "/v1/chat/completions", headers={"Authorization": "Bearer nonsense"}) as response:
        assert response.status == 503
        assert (await response.json())["error"]["code"] == "server_is_overloaded"
        assert response.headers["Retry-After"] == "1"
    gateway.overload.high = False
    response, _ = await client.chat()
    assert response.status == 200


async def pressed(overload: OverloadMonitor, load: Callable[[], None]) -> None:
    overload.start()
    try:
        async with asyncio.timeout(60):
            while not overload.high:
                load()
                await asyncio.sleep(0)
    finally:
        overload.close()


@pytest.mark.holds("scaling.md#limits-1")
async def test_lasting_lag_is_overload_and_ends_again() -> None:
    overload = OverloadMonitor(max_lag=0.05, max_memory=0)
    await pressed(overload, lambda: loop_is_held_for(0.15))
    assert overload.high
    overload.start()
    await until(lambda: not overload.high)
    assert overload.lag < overload.max_lag
    overload.close()


async def test_one_late_check_is_not_an_overload() -> None:
    overload = OverloadMonitor(max_lag=0.2, max_memory=0)
    overload.start()
    loop_is_held_for(overload.max_lag + 0.15)
    await until(lambda: overload.lag > 0.01)
    assert not overload.high
    overload.close()


@pytest.mark.skipif(not resident_bytes(), reason="this system does not tell how much memory is resident")
async def test_memory_over_its_limit_is_overload() -> None:
    overload = OverloadMonitor(max_lag=0.0, max_memory=1 << 20)
    await pressed(overload, lambda: None)
    assert overload.memory > 1 << 20


async def test_provider_that_holds_the_loop_is_named_among_two_with_the_same_code(blocker: Any) -> None:
    one, other = blocker.Mine(), blocker.Mine()
    async with Kennel() as kennel:
        kennel.watchdog.packages = {"blocker_package": ["one", "other"]}
        kennel.watchdog.instances = {id(one): "one", id(other): "other"}
        stall = await kennel.stall_by(lambda: other.serve(STALLED + 0.3), "hold")
    assert stall.provider == "other"


async def test_stall_of_one_provider_is_not_counted_for_others(gateway: Gateway) -> None:
    gateway.watchdog.packages = {"shared": ["one", "other"]}
    for _ in range(5):
        note_stall(gateway, Stall(0.7, "shared", "shared.py:1 in chat", "other"))
    assert {str(circuit.key) for circuit in gateway.health.all() if circuit.cause} == {"other"}


async def test_stall_that_a_large_request_explains_is_not_counted_for_its_provider(
    gateway: Gateway, caplog: pytest.LogCaptureFixture
) -> None:
    gateway.watchdog.packages = {"shared": ["one"]}
    for _ in range(8):
        note_stall(gateway, Stall(0.7, "shared", "shared.py:1 in chat", "one", body=30_000_000))
    assert gateway.health.all_closed
    assert "stood still for 0.70 s by provider one at shared.py:1 in chat with a request of 30000000 b" in caplog.text
    for _ in range(5):
        note_stall(gateway, Stall(0.7, "shared", "shared.py:1 in chat", "one", body=3_000_000))
    assert {str(circuit.key) for circuit in gateway.health.all() if circuit.cause} == {"one"}


async def test_size_of_the_largest_request_that_a_provider_serves_is_reported_with_its_stall(
    gateway: Gateway, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    stalls: list[Stall] = []
    monkeypatch.setattr(gateway.watchdog, "_stalled", stalls.append)
    provider: Any = type(gateway.providers["up"][0])
    chat = provider.chat

    async def blocking(this: Any, request: Any, target: Any) -> Any:
        if request.user == "large":
            loop_is_held_for(STALLED + 0.3)
        return await chat(this, request, target)

    monkeypatch.setattr(provider, "chat", blocking)
    gateway.watchdog.packages = {**gateway.watchdog.packages, "tests": ["up"]}
    content = "word " * 200_000
    response, document = await client.chat(user="large", messages=[{"role": "user", "content": content}])
    assert response.status == 200, document
    await until(lambda: stalls)
    assert stalls[0].body > len(content)


PAUSE = STALLED + 1.0  # seconds
PAUSED = f"""
import asyncio, select, sys, types
from gateway.runtime.overload import CHECK_EVERY, IDLE_EVERY, OverloadMonitor
from gateway.runtime.watchdog import Watchdog

theirs = types.ModuleType("blocker_package")
exec("def work(looks):\\n    before = len(looks)\\n    while len(looks) == before:\\n        pass", theirs.__dict__)

async def main():
    overload, stalls, looks = OverloadMonitor(max_lag=0.0, max_memory=0), [], []
    watchdog = Watchdog(overload, stalls.append)
    watchdog.packages = {{"blocker_package": ["theirs"]}}
    wait = watchdog._stop.wait
    watchdog._stop.wait = lambda seconds: looks.append(seconds) or wait(seconds)

    async def work_until(enough):
        while not enough():
            theirs.work(looks)  # until the watchdog looks, so that it looks before the loop goes on after the pause
            await asyncio.sleep(0)

    overload.start()
    watchdog.start()
    await work_until(lambda: len(looks) > 2)
    print("ready", flush=True)
    await work_until(lambda: select.select([sys.stdin], [], [], 0)[0])
    before = len(looks)  # the pause may meet the loop between two turns, and then there is nothing to tell
    await work_until(lambda: len(looks) > before + 3)
    watchdog.close()
    named = [stall.package for stall in stalls if stall.seconds > {PAUSE} - 0.1]  # a busy machine makes shorter ones
    print(named[0] if named and named[0] else "nobody", flush=True)

asyncio.run(main())
"""


@pytest.mark.slow
async def test_pause_of_the_whole_process_is_not_attributed_to_a_provider() -> None:
    """As of a machine that is moved, or a container that has used up its share of the processors."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PAUSED, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert await process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGSTOP)
        await time_passes(PAUSE)
        process.send_signal(signal.SIGCONT)
        process.stdin.write(b"it is over\n")
        assert await process.stdout.readline() == b"nobody\n"
    finally:
        process.kill()
        await process.wait()


async def fallen_asleep(overload: OverloadMonitor) -> bool:
    """Whether it looks rarely; other tests of this process may use the processor meanwhile."""
    return await until(lambda: overload.asleep)


async def test_process_without_work_looks_rarely_until_the_next_request(gateway: Gateway, client: Client) -> None:
    assert await fallen_asleep(gateway.overload)
    checked = gateway.overload.last_check
    assert gateway.overload.due - checked > CHECK_EVERY * 2
    response, _ = await client.chat()
    assert response.status == 200
    assert not gateway.overload.asleep
    assert gateway.overload.due - gateway.overload.last_check < CHECK_EVERY * 2


async def test_process_with_a_running_call_looks_often() -> None:
    running = ["a call"]
    overload = OverloadMonitor(max_lag=0.0, max_memory=0, running=running)
    overload.start()
    started = overload.last_check
    await until(lambda: overload.last_check > started + 1.5 * IDLE_EVERY)
    assert not overload.asleep
    running.clear()
    assert await fallen_asleep(overload)
    overload.close()


async def test_stall_of_a_process_without_work_is_reported(blocker: Any) -> None:
    async with Kennel() as kennel:
        assert await fallen_asleep(kennel.overload)
        stall = await kennel.stall_by(lambda: blocker.hold(2 * IDLE_EVERY + STALLED + 0.3), "hold")
    assert stall.package == "blocker_package"


async def test_stall_by_the_first_request_after_a_time_without_work_is_reported(blocker: Any) -> None:
    async with Kennel() as kennel:
        assert await fallen_asleep(kennel.overload)
        kennel.overload.wake()
        stall = await kennel.stall_by(lambda: blocker.hold(STALLED + 0.3), "hold")
    assert stall.package == "blocker_package"
    assert stall.seconds < IDLE_EVERY

"""What the settings of the interpreter do."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from gateway.runtime.interpreter import (
    NICENESS,
    SWITCH_AFTER,
    background_executor,
    return_large_blocks,
    switch_threads_often,
    without_collections,
)


@pytest.fixture
def usual_interval() -> Iterator[float]:
    """The interval between switches of threads; it is restored afterwards."""
    usual = sys.getswitchinterval()
    yield usual
    sys.setswitchinterval(usual)


def test_threads_are_switched_ten_times_as_often_as_usual(usual_interval: float) -> None:
    switch_threads_often()
    assert sys.getswitchinterval() == pytest.approx(SWITCH_AFTER) == pytest.approx(usual_interval / 10)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a niceness is that of the whole process")
async def test_background_threads_have_a_lower_priority_than_the_event_loop() -> None:
    own = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    with background_executor() as executor:
        asyncio.get_running_loop().set_default_executor(executor)
        niceness = await asyncio.to_thread(lambda: os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
    assert niceness == max(own, NICENESS)
    assert os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) == own


@pytest.fixture
def unfrozen() -> Iterator[None]:
    """What is left out of collections is in them again afterwards."""
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("unfrozen")
def test_objects_made_without_collections_are_in_no_later_one_and_are_freed_with_their_last_reference() -> None:
    assert gc.isenabled()
    collections: list[str] = []
    gc.callbacks.append(lambda phase, info: collections.append(phase))
    with without_collections():
        assert not gc.isenabled()
        made = [[number] for number in range(10 * gc.get_threshold()[0])]
    assert collections == []
    gc.callbacks.pop()
    assert gc.isenabled()
    frozen = gc.get_freeze_count()
    assert frozen >= len(made)
    del made
    assert gc.get_freeze_count() < frozen


@pytest.mark.usefixtures("unfrozen")
def test_collections_go_on_after_an_error() -> None:
    with pytest.raises(ZeroDivisionError), without_collections():
        _ = 1 // 0
    assert gc.isenabled()


#: Frees blocks as large bodies are freed, and prints the MB that stay.
BODIES = """
from gateway.runtime.interpreter import return_large_blocks
def size():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 >> 20
return_large_blocks()
before, kept = size(), []
for _ in range(3):
    blocks = [bytearray(20 << 20), bytearray(15 << 20), bytearray(10 << 20)]
    kept.append(bytearray(1000))
    del blocks
print(size() - before)
"""


@pytest.mark.holds("scaling.md#limits-8")
@pytest.mark.parametrize(
    "own",
    [{}, {"MALLOC_MMAP_THRESHOLD_": "33554432", "MALLOC_TRIM_THRESHOLD_": "1000000000"}],
    ids=["usual", "own variable"],
)
def test_large_blocks_go_back_to_the_system_unless_the_operator_has_set_it(own: dict[str, str]) -> None:
    try:
        os.confstr("CS_GNU_LIBC_VERSION")
    except ValueError:
        pytest.skip("another library")
    names = {"GLIBC_TUNABLES", "MALLOC_MMAP_THRESHOLD_"}
    environment = {name: value for name, value in os.environ.items() if name not in names} | own
    run = subprocess.run([sys.executable, "-c", BODIES], env=environment, capture_output=True, text=True, check=True)
    assert (int(run.stdout) < 8) is not bool(own), run.stdout


@pytest.mark.parametrize("error", [ValueError, AttributeError, OSError])
def test_other_libraries_are_left_alone(monkeypatch: pytest.MonkeyPatch, error: type[Exception]) -> None:
    def confstr(name: str) -> str:
        raise error

    monkeypatch.setattr(os, "confstr", confstr)
    return_large_blocks()

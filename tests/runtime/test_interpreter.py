"""What the settings of the interpreter do."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import threading
from collections.abc import Iterator

import pytest

from gateway.runtime.interpreter import (
    NICENESS,
    SWITCH_AFTER,
    background_executor,
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

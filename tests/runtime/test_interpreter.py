"""What the settings of the interpreter do."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Iterator

import pytest

from gateway.runtime.interpreter import NICENESS, SWITCH_AFTER, background_executor, switch_threads_often


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

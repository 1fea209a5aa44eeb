"""Settings of the Python interpreter in processes that serve or import."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Final

SWITCH_AFTER: Final = 0.0005  # seconds
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # numbers of malloc.h
LARGE: Final = 4 << 20  # bytes; smaller blocks stay in the heap: each page of a new one costs a page fault
KEPT: Final = 8 << 20  # bytes that stay free at the end of the heap
OWN_VARIABLES: Final = ("GLIBC_TUNABLES", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_")
NICENESS: Final = 5  # more would let other processes delay a thread that has the interpreter's lock


def collect_rarely() -> None:
    """Leave what exists out of all collections, and collect after many more new objects than usual.

    These processes make many objects and few cycles, and a collection looks at every object of its generation. Call it
    once everything is imported.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


@contextmanager
def without_collections() -> Iterator[None]:
    """Make many objects that live long, without the collections that they cause, and leave them out of later ones.

    A collection stops all threads. In a reload of 5,000 models each took 12 to 40 ms of CPU on a busy machine. Sharp
    edge: what is garbage in a cycle at the end of the block is never freed, so nothing that makes much of it belongs
    in the block.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def switch_threads_often() -> None:
    """Let the event loop run after half a millisecond of another thread's Python code, and not after five.

    Plugins compute in threads, such as in `call_settled`. Beside one that computes without a pause, a turn of the loop
    took 5.4 ms at the median, and 0.7 ms after this.
    """
    sys.setswitchinterval(SWITCH_AFTER)


def return_large_blocks() -> None:
    """Let glibc give blocks of `LARGE` bytes and more back to the system when they are freed.

    By default it raises this limit up to 32 MiB when such a block is freed, and keeps twice as much that is free: after
    ten bodies of 20 MB a worker kept 37 MB more. Such a body costs half as much CPU again for this. Nothing happens
    with another library, or where the operator has set glibc's own variables.
    """
    if any(name in os.environ for name in OWN_VARIABLES):
        return
    with suppress(ImportError, AttributeError, ValueError, OSError):
        if os.confstr("CS_GNU_LIBC_VERSION"):  # ValueError or nothing with other libraries
            import ctypes

            mallopt = ctypes.CDLL(None).mallopt
            mallopt(M_MMAP_THRESHOLD, LARGE)
            mallopt(M_TRIM_THRESHOLD, KEPT)


def background_executor() -> ThreadPoolExecutor:
    """Threads for `asyncio.to_thread`, to which the thread of the event loop need not leave its processor.

    They inflate bodies and write uploads: on one core, the loop waited for milliseconds until such a thread paused.
    """
    return ThreadPoolExecutor(thread_name_prefix="background", initializer=_yield_to_others)


def _yield_to_others() -> None:
    if sys.platform != "linux":  # elsewhere a niceness is that of the whole process
        return
    thread = threading.get_native_id()
    with suppress(OSError):  # a sandbox may forbid it; an error here would end all threads of the executor
        if os.getpriority(os.PRIO_PROCESS, thread) < NICENESS:  # only root may lower it
            os.setpriority(os.PRIO_PROCESS, thread, NICENESS)


def new_event_loop() -> asyncio.AbstractEventLoop:
    """uvloop where it is installed (−15 % CPU per request), else asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()

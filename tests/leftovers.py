"""What only Python's cyclic collector could free, for tests that hold that nothing is left to it.

A test that counts uses the fixture `no_collector`, and waits until its requests have left memory, before it asks.
"""

from __future__ import annotations

import gc
from collections import Counter
from types import CoroutineType, FrameType, FunctionType, GeneratorType

from gateway.api.handler import BaseHandler

OURS = ("gateway", "httptools")  # the gateway, its providers and its parsers; the clients of these tests are aiohttp's
NOT_SERVED = ("gateway.testing",)  # a test's own upstream, in aiohttp's hands


def handlers() -> int:
    """How many requests are still in memory."""
    return sum(isinstance(thing, BaseHandler) for thing in gc.get_objects())


def garbage() -> Counter[str]:
    """What only the collector can free, by name: objects of ours, and frames of our code that an exception holds."""
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        gc.collect()
        names = map(_name, gc.garbage)
        return Counter(name for name in names if name.startswith(OURS) and not name.startswith(NOT_SERVED))
    finally:
        gc.set_debug(0)
        gc.garbage.clear()


def _name(thing: object) -> str:
    if isinstance(thing, CoroutineType | GeneratorType):
        return ""  # their frames tell
    if isinstance(thing, FrameType):
        return f"{thing.f_globals.get('__name__')}:{thing.f_code.co_name}"
    kind = thing if isinstance(thing, FunctionType) else type(thing)
    return f"{kind.__module__}.{kind.__qualname__}"

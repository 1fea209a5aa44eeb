"""A plugin that does what it must not: providers that sleep or ignore cancellation, and a hook that stalls."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable

from gateway import CallRecord, Chat, ChatChunk, ChatRequest, Provider, Target, hookimpl

HOSTILE = "mallory"  # the hostile account
STALL = 2.0  # seconds of the hook for each of its calls


class Sleeper(Provider, Chat):
    """Says two words, and then nothing for an hour."""

    name = "sleeper"

    async def stream_chat(self, request: ChatRequest, target: Target) -> AsyncIterator[ChatChunk]:
        yield ChatChunk.text("a ")
        yield ChatChunk.text("b ")
        await asyncio.sleep(3600)


class Deaf(Provider, Chat):
    """Goes on when it is cancelled."""

    name = "deaf"

    async def stream_chat(self, request: ChatRequest, target: Target) -> AsyncIterator[ChatChunk]:
        ends = time.monotonic() + 8.0  # or the process never could
        while time.monotonic() < ends:
            yield ChatChunk.text("on ")
            try:
                await asyncio.sleep(0.05)
            except asyncio.CancelledError:
                continue


@hookimpl
def register_providers(register: Callable[[type[Provider]], None]) -> None:
    register(Sleeper)
    register(Deaf)


@hookimpl
def call_settled(record: CallRecord) -> None:
    if record.account == HOSTILE:
        time.sleep(STALL)

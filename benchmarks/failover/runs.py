"""Runs situations side by side: each has a model of its own at the provider, so none sees the failures of another."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence

import aiohttp
from msgspec import Struct

from benchmarks.failover.heard import Caller, Heard
from benchmarks.failover.provider import Provider
from benchmarks.failover.situations import VERDICTS, Seen, Situation, verdict_of

ALIVE_WITHIN = 10.0  # seconds


class Row(Struct, frozen=True, kw_only=True):
    """The verdict on one situation."""

    name: str
    title: str
    verdict: str
    reason: str
    attempts: int
    seconds: float  # of the last call


def run(
    situations: Sequence[Situation],
    provider: Provider,
    urls: Sequence[str],
    headers: Mapping[str, str],
    *,
    sampling: Mapping[str, object],
) -> list[Row]:
    """The verdicts on a gateway with these base URLs, which get the calls in turn."""

    async def rows() -> list[Row]:
        timeout = aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(timeout=timeout) as session, asyncio.TaskGroup() as group:
            caller = Caller(session, urls, headers, sampling=sampling)
            tasks = [group.create_task(_row(situation, provider, caller)) for situation in situations]
        return [task.result() for task in tasks]

    return asyncio.run(rows())


def counts_of(rows: Sequence[Row]) -> dict[str, int]:
    """How many situations have each verdict."""
    return {verdict: sum(row.verdict == verdict for row in rows) for verdict in VERDICTS}


async def _row(situation: Situation, provider: Provider, caller: Caller) -> Row:
    started = time.monotonic()
    heard = await _calls(situation, caller)
    alive = (await caller.call("healthy", within=ALIVE_WITHIN)).whole if situation.asks_alive else None
    seen = Seen(
        heard=heard,
        attempts=[attempt.at - started for attempt in provider.of(situation.name)],
        fallback=situation.fallback,
        alive=alive,
        recovers_at=provider.recovers_at - started,
    )
    verdict, reason = verdict_of(situation, seen)
    return Row(
        name=situation.name,
        title=situation.title,
        verdict=verdict,
        reason=reason or _return_of(situation, seen),
        attempts=sum(at < seen.recovers_at for at in seen.attempts) if situation.calls > 1 else len(seen.attempts),
        seconds=round(heard[-1].seconds, 2),
    )


def _return_of(situation: Situation, seen: Seen) -> str:
    """How long after an outage the failing model was used again."""
    back = next((at for at in seen.attempts if at >= seen.recovers_at), None)
    return f"back after {back - seen.recovers_at:.0f} s" if situation.calls > 1 and back is not None else ""


async def _calls(situation: Situation, caller: Caller) -> list[Heard]:
    """The calls of a situation, begun at equal distances; they may overlap."""
    due, tasks = time.monotonic(), []
    async with asyncio.TaskGroup() as group:
        for _ in range(situation.calls):
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            tasks.append(group.create_task(caller.call(situation.name, within=situation.within)))
            due += situation.every
    return [task.result() for task in tasks]

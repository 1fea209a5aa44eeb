"""The ledger held against what the upstream wrote, call by call, and what every chaos test ends with.

`FakeUpstream.seen` is the truth: how many chunks it wrote for whom. Sharp edge: the last chunk it wrote to a connection
that was cut may have been delivered to nobody, which is why every comparison has a bound of a chunk.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterable

from gateway.testing import FakeUpstream
from gateway.testing.fake_upstream import Seen
from tests.chaos.traffic import PER_TOKEN, Call
from tests.polling import until
from tests.processes.served import Served, children

SPENT = {"use", "reclaim", "adj"}


async def charged(gateway: Served, accounts: Iterable[str] = ("test",)) -> dict[str, int]:
    """By request id, how many chunks were charged for."""
    amounts: dict[str, int] = defaultdict(int)
    async with gateway.session() as session:
        for account in accounts:
            async for line in session.ledger.lines(account):
                if line.kind in SPENT:
                    amounts[line.request_id] -= line.amount
    assert all(amount % PER_TOKEN == 0 for amount in amounts.values())
    return {request_id: amount // PER_TOKEN for request_id, amount in amounts.items()}


def written(upstream: FakeUpstream) -> dict[str, int]:
    """By a call's name, how many chunks the upstream wrote for it."""
    chunks: dict[str, int] = defaultdict(int)
    for seen in upstream.seen:
        chunks[seen.json["user"]] += _chunks(seen)
    return chunks


def _chunks(seen: Seen) -> int:
    """Content alone: the first frame has the role, and after the words come the end, the usage and [DONE]."""
    asked = seen.json
    words = len(asked["messages"][-1]["content"].split())
    if not asked.get("stream"):
        return words if seen.outcome == "answered" else 0
    return min(max(seen.frames - 1, 0), words)


async def off(
    gateway: Served, upstream: FakeUpstream, calls: list[Call], accounts: Iterable[str] = ("test",)
) -> dict[str, int]:
    """By call, how many chunks it was charged more or less than the upstream wrote; calls refused must cost nothing."""
    ledger, truth = await charged(gateway, accounts), written(upstream)
    named = {call.request_id: call for call in calls if call.request_id}
    strangers = {request_id: amount for request_id, amount in ledger.items() if request_id not in named}
    nameless = sum(truth[call.name] for call in calls if not call.request_id)
    assert sum(strangers.values()) <= nameless + len(strangers), f"charged to nobody's call: {list(strangers)[:5]}"
    return {call.name: ledger.get(request_id, 0) - truth[call.name] for request_id, call in named.items()}


async def nothing_held(gateway: Served, *, within: float) -> float:
    """Wait until no hold is left; after how many seconds."""
    started = time.monotonic()

    async def free() -> bool:
        await asyncio.sleep(0.1)
        return (await gateway.account()).held == 0

    await until(free, within=within)
    return time.monotonic() - started


async def all_is_well(gateway: Served, *, workers: int, processes: int) -> None:
    """The audit command is content, nothing is held, nobody is served, no process is left over.

    `processes`: the workers and the embedded store; the importer runs beside them.
    """
    audit = await asyncio.to_thread(gateway.run, "audit")
    assert audit.returncode == 0, audit.stdout + audit.stderr
    assert (await gateway.account()).held == 0
    await until(lambda: len(children(gateway.pid)) == processes + 1, within=10.0)
    samples = await gateway.metrics()
    assert samples["gateway_workers"] == workers
    assert samples["gateway_in_flight{endpoint=chat}"] == 0

"""What admit and settle cost: µs of Redis's time and µs of the worker's, by admissions per event-loop tick and account.

    python benchmarks/micro_ledger.py

Redis's time is what its own statistics say about EVALSHA, the worker's is process CPU time, asyncio's tasks included.
Runs about ten seconds, starts an embedded store in a temporary folder, and pins the two to a core each.
"""

import asyncio
import os
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from gateway.accounts.accounts import Accounts
from gateway.accounts.authenticator import Authenticator
from gateway.accounts.keys import Keys
from gateway.billing.call_record import CallRecord
from gateway.billing.price import Price
from gateway.billing.quote import Quote
from gateway.billing.usage import Usage
from gateway.ledger import GroupLimits, Hold, Ledger
from gateway.ledger.api_key import ApiKey
from gateway.store import EmbeddedServer, Store

PEPPER = b"benchmark pepper, not a secret"
CALLS = 640  # of one round
ROUNDS = 8  # the best one counts: the others met somebody else's work
NO_LIMITS: dict[str, GroupLimits] = {}
LIMITS = {"default": GroupLimits(rpm=100_000_000, tpm=900_000_000, concurrency=1_000_000)}
EVERYONE = frozenset({"default"})
Figures = tuple[float, float]
USAGE = Usage(in_text=812, out_text=204)
QUOTE = Quote("gpt-5-mini", EVERYONE, Price(), USAGE, USAGE, hold=1_000_000, tokens=1500)
RECORD = CallRecord(
    request_id="",
    endpoint="chat",
    account="",
    key="",
    model="gpt-5-mini",
    provider="openai",
    outcome="ok",
    status=200,
    usage=USAGE,
    tokens_in=USAGE.tokens_in,
    tokens_out=USAGE.tokens_out,
    cost=1234,
    attempts=1,
    duration=0.0,
    first_token=None,
    stream=False,
    served_model="gpt-5-mini",
    upstream_model="gpt-5-mini",
)


async def redis_microseconds(store: Store) -> float:
    stats = (await store.client.info("commandstats")).get("cmdstat_evalsha", {"usec": 0})
    return float(stats["usec"])


async def timed(
    store: Store, items: list[Any], at_once: int, run: Callable[[list[Any]], Awaitable[list[Any]]]
) -> tuple[list[Any], Figures]:
    """Run the items, so many in a tick; the results, and per item the µs of Redis and of this process."""
    redis, worker, done = await redis_microseconds(store), time.process_time(), []
    for start in range(0, len(items), at_once):
        done += await run(items[start : start + at_once])
    spent = time.process_time() - worker
    return done, ((await redis_microseconds(store) - redis) / len(items), spent / len(items) * 1e6)


async def admit(ledger: Ledger, callers: list[tuple[str, ApiKey]]) -> list[Hold]:
    return await asyncio.gather(*(ledger.admit(request_id, key, QUOTE) for request_id, key in callers))


async def settle(ledger: Ledger, holds: list[Hold]) -> list[Hold]:
    for hold in holds:
        ledger.book(hold, RECORD)
    await ledger.drain()
    return holds


async def measure(store: Store, ledger: Ledger, keys: list[ApiKey], at_once: int) -> str:
    rounds: list[tuple[Figures, Figures]] = []
    for number in range(ROUNDS):
        run = f"req_{at_once:04x}{len(keys):04x}{number:08x}"
        callers = [(f"{run}{n:016x}", keys[n % len(keys)]) for n in range(CALLS)]
        holds, admitting = await timed(store, callers, at_once, partial(admit, ledger))
        _, settling = await timed(store, holds, at_once, partial(settle, ledger))
        rounds.append((admitting, settling))
    text = f"{at_once:3d} at once on {len(keys):2d} accounts"
    for verb, figures in zip(("admit", "settle"), zip(*rounds, strict=True), strict=True):
        best = [min(figure) for figure in zip(*figures, strict=True)]
        text += f"   {verb}: redis {best[0]:5.1f} worker {best[1]:5.1f}"
    return text


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        server = EmbeddedServer(folder)
        await server.start()
        try:
            if hasattr(os, "sched_setaffinity") and (os.cpu_count() or 1) > 1:
                os.sched_setaffinity(server.pid or 0, {0})
                os.sched_setaffinity(0, {1})
            store = await Store.open(server.socket, timeout=5.0)
            for groups, title in ((NO_LIMITS, "no limits"), (LIMITS, "with RPM, TPM and concurrency of the group")):
                print(title)
                await store.client.flushall()
                ledger = Ledger(store, groups)
                callers = [await caller(store, ledger, f"a{n}") for n in range(64)]
                for at_once, count in ((1, 1), (8, 1), (64, 1), (64, 64)):
                    print("  " + await measure(store, ledger, callers[:count], at_once))
            await store.close()
        finally:
            await server.stop()


async def caller(store: Store, ledger: Ledger, account: str) -> ApiKey:
    await Accounts(store, ledger).create(account, balance=10**15)
    return await Authenticator(store, PEPPER).authenticate((await Keys(store, PEPPER).create(account)).text)


if __name__ == "__main__":
    asyncio.run(main())

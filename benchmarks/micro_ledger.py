"""What admit and settle cost: µs of Redis's time and µs of the worker's, by asks per event-loop tick and account.

    python benchmarks/micro_ledger.py

Redis's time is what its own statistics say about EVALSHA, the worker's is process CPU time. Runs about ten seconds,
starts an embedded store in a temporary folder, and pins the two to a core each where the system allows that.
"""

import asyncio
import os
import tempfile
import time

from gateway.accounts import Accounts
from gateway.auth import ApiKey, Authenticator
from gateway.keys import Keys
from gateway.ledger import Ask, GroupLimits, Hold, Ledger, Outcome
from gateway.store import EmbeddedServer, Store

PEPPER = b"benchmark pepper, not a secret"
CALLS = 6400
EVERYONE = frozenset({"default"})
OUTCOME = Outcome(1234, provider="openai", model="gpt-5-mini", usage={"in_text": 812, "out_text": 204}, tokens=1016)


async def redis_microseconds(store: Store) -> float:
    stats = (await store.client.info("commandstats")).get("cmdstat_evalsha", {"usec": 0})
    return float(stats["usec"])


async def measure(store: Store, ledger: Ledger, keys: list[ApiKey], at_once: int) -> str:
    taken = {"admit": [0.0, 0.0], "settle": [0.0, 0.0]}

    async def timed(verb: str, calls: list) -> list:
        redis, worker = await redis_microseconds(store), time.process_time()
        done = []
        for start in range(0, len(calls), at_once):
            done += await asyncio.gather(*(call() for call in calls[start : start + at_once]))
        taken[verb][1] = (time.process_time() - worker) / CALLS * 1e6
        taken[verb][0] = (await redis_microseconds(store) - redis) / CALLS
        return done

    def ask(n: int) -> Ask:
        return Ask(f"req_{at_once}_{n:029d}", keys[n % len(keys)], "gpt-5-mini", EVERYONE, 1_000_000, 1500)

    holds: list[Hold] = await timed("admit", [lambda n=n: ledger.admit(ask(n)) for n in range(CALLS)])
    await timed("settle", [lambda hold=hold: ledger.settle(hold, OUTCOME) for hold in holds])
    figures = "  ".join(f"{verb}: redis {t[0]:5.1f} worker {t[1]:5.1f}" for verb, t in taken.items())
    return f"{at_once:3d} at once, {len(keys):2d} accounts   {figures}"


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        server = EmbeddedServer(folder)
        await server.start()
        try:
            if hasattr(os, "sched_setaffinity") and (os.cpu_count() or 1) > 1:
                os.sched_setaffinity(server.pid or 0, {0})
                os.sched_setaffinity(0, {1})
            store = await Store.open(server.socket, timeout=5.0)
            groups = {"default": GroupLimits(rpm=100_000_000, tpm=900_000_000, concurrency=1_000_000)}
            for limits, title in (({}, "no limits"), (groups, "RPM, TPM and concurrency of the group")):
                await store.client.flushall()
                ledger = Ledger(store, limits)
                accounts, keys, auth = Accounts(store, ledger), Keys(store, PEPPER), Authenticator(store, PEPPER)
                callers = []
                for n in range(64):
                    await accounts.create(f"a{n}", balance=10**15)
                    callers.append(await auth.authenticate((await keys.create(f"a{n}")).text))
                print(title)
                for at_once, count in ((1, 1), (8, 1), (64, 1), (64, 64)):
                    await store.client.flushdb() if False else None
                    print("  " + await measure(store, ledger, callers[:count], at_once + count - 1))
            await store.close()
        finally:
            await server.stop()


if __name__ == "__main__":
    asyncio.run(main())

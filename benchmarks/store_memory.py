"""What the store holds at a steady rate of calls once lines are trimmed and markers expire, part by part.

::

    python -m benchmarks store-memory                          # 200 calls a second, a day lasts a minute: four minutes
    python -m benchmarks store-memory --rate 500 --day 120 --json memory.json

Calls are admitted and settled by the gateway's own ledger and idempotency records, and the importer copies and trims
their lines. Only time is shortened: lines leave after two days and markers and idempotency records expire after one, as
they do by default, but a day has `--day` seconds. Bytes of a line, a marker and a record are measured at the end, when
as much leaves as comes. From them the memory at real days is computed. Sharp edge: tables of keys grow by doubling, so
the real bytes of a marker may be some tens of bytes more or less.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import click
import msgspec
from msgspec import Struct
from rich.console import Console
from rich.table import Table

from benchmarks.scale import size
from benchmarks.store_parts import Part, parts_of, used_memory, version_of
from benchmarks.usual_call import BALANCE, PEPPER, QUOTE, record_of
from gateway.accounts.accounts import Accounts
from gateway.accounts.authenticator import Authenticator
from gateway.accounts.keys import Keys
from gateway.database.address import DatabaseAddress
from gateway.database.engine import Database
from gateway.history import sweep
from gateway.history.service import HistoryService
from gateway.history.sql_thread import SqlThread
from gateway.inference import idempotency
from gateway.inference.idempotency import Claim, Idempotency
from gateway.ledger import Ledger, archive_checkpoint, import_hints, scripts
from gateway.ledger.api_key import ApiKey
from gateway.metrics import Metrics
from gateway.store import EmbeddedServer, Store
from gateway.store.command import Script

REAL_DAY = 86_400
DAY_MS = "86400000"  # in the scripts
LINE_DAYS, MARKER_DAYS = 2, 1  # the default of store.keep_lines; a marker and an idempotency record
RATES = (200, 1000)  # calls a second, for which the table computes
STEP = 0.05  # seconds between two groups of calls
SAMPLES = 12  # of a day
PERIODS = {"lines": LINE_DAYS, "markers": MARKER_DAYS, "idempotency": MARKER_DAYS}


class Load(Struct, frozen=True, kw_only=True):
    """What is asked of the store; a real day lasts `day` seconds."""

    rate: int
    day: float
    accounts: int
    share: float  # of the calls with an Idempotency-Key
    answer: int  # bytes of a stored answer
    seconds: float  # that a call runs, on average
    compact: bool  # store.compact_lines


class Found(Struct, kw_only=True):
    """The document: bytes of the store before the first call and at the end, and the parts."""

    load: Load
    version: str
    calls: int
    before: int
    used: int
    lowest: int  # of the last day
    highest: int
    parts: dict[str, Part]

    @property
    def rest(self) -> float:
        """Bytes that are in no part: buffers, scripts, the difference of two readings."""
        return self.used - self.before - sum(part.bytes for name, part in self.parts.items() if name != "accounts")


@click.command()
@click.option("--rate", default=200, show_default=True, type=click.IntRange(10, 5000), help="Calls a second.")
@click.option("--day", default=60.0, show_default=True, type=click.FloatRange(2, 3600), help="Seconds of a day.")
@click.option("--accounts", default=20, show_default=True, type=click.IntRange(1), help="That the calls are of.")
@click.option("--share", default=0.1, show_default=True, type=click.FloatRange(0, 1), help="With an Idempotency-Key.")
@click.option("--answer", default=1500, show_default=True, type=click.IntRange(1), help="Bytes of a stored answer.")
@click.option("--latency", default=1.0, show_default=True, type=click.FloatRange(0, 60), help="Seconds of a call.")
@click.option("--compact", is_flag=True, help="store.compact_lines.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write everything measured to FILE.")
def store_memory(
    *,
    rate: int,
    day: float,
    accounts: int,
    share: float,
    answer: int,
    latency: float,
    compact: bool,
    json_file: Path | None,
) -> None:
    """Measure the store's memory per line, marker and idempotency record at a steady rate, with trimming."""
    messages, tables = Console(stderr=True), Console(width=None if sys.stdout.isatty() else 120)
    load = Load(rate=rate, day=day, accounts=accounts, share=share, answer=answer, seconds=latency, compact=compact)
    shorten(load)
    found = asyncio.run(measure(load, messages))
    if json_file:
        json_file.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n")
    tables.print(table_of(found))
    swing = (found.highest - found.lowest) / found.used
    tables.print(
        f"{found.calls:,} calls; used memory {size(found.before)} before the first, {size(found.used)} at the end, "
        f"of which {size(found.rest)} is in no part; {swing:.1%} between the lowest and the highest value of the "
        f"last day. {found.version}.",
        highlight=False,
    )


def shorten(load: Load) -> None:
    """Let a day last `load.day` seconds, in this process."""
    original = scripts.load_script

    def shortened(name: str) -> Script:
        return Script(original(name).source.replace(DAY_MS, str(round(load.day * 1000))))

    for module in (scripts, idempotency):
        vars(module)["load_script"] = shortened
    archive_checkpoint.MIN_AGE = timedelta(seconds=load.day)
    sweep.PASS = min(sweep.PASS, load.day / 60)


async def measure(load: Load, messages: Console) -> Found:
    """Fill the store until as much leaves it as comes, then look."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        server, sql = EmbeddedServer(folder), SqlThread()
        await server.start()
        database = Database.open(DatabaseAddress(file=Path(folder) / "gateway.db"))
        try:
            store = await Store.open(server.socket, timeout=20.0)
            service = HistoryService(
                store,
                lambda: database,
                sql,
                Metrics(),
                keep_lines=timedelta(seconds=LINE_DAYS * load.day),
                keep_history=timedelta(days=2555),
                keep_addresses=timedelta(days=30),
            )
            done = asyncio.Event()
            importing = asyncio.create_task(service.run(done))
            found = await _measure(load, store, messages)
            done.set()
            await importing
            await store.close()
            return found
        finally:
            sql.close()
            database.close()
            await server.stop()


async def _measure(load: Load, store: Store, messages: Console) -> Found:
    calls = Calls(store, load)
    await calls.open()
    before, samples = await used_memory(store), list[int]()
    running = asyncio.create_task(calls.run())
    days = LINE_DAYS + 1.5
    try:
        for step in range(round(days * SAMPLES)):
            await asyncio.wait([running], timeout=load.day / SAMPLES)
            if running.done():
                running.result()
            samples.append(await used_memory(store))
            if step % SAMPLES == SAMPLES - 1:
                messages.print(f"day {step // SAMPLES + 1}: {size(samples[-1])}", highlight=False)
        parts = await parts_of(store)
        used = await used_memory(store)
    finally:
        running.cancel()
        await asyncio.wait([running])
        await calls.close()
    last = samples[-SAMPLES:]
    return Found(
        load=load,
        version=await version_of(store),
        calls=calls.settled,
        before=before,
        used=used,
        lowest=min(last),
        highest=max(last),
        parts=parts,
    )


class Calls:
    """Calls of random accounts at a steady rate."""

    def __init__(self, store: Store, load: Load) -> None:
        self._store = store
        self._load = load
        self._hints = import_hints.ImportHints(store)
        self._ledger = Ledger(store, {}, on_lines=self._hints.add, compact_lines=load.compact)
        self._records = Idempotency(store)
        self._keys: list[ApiKey] = []
        self._running: set[asyncio.Task[None]] = set()
        self.settled = 0

    async def open(self) -> None:
        """Create the accounts and their keys."""
        accounts, keys = Accounts(self._store, self._ledger), Keys(self._store, PEPPER)
        for number in range(self._load.accounts):
            name = f"account-{number}"
            await accounts.create(name, balance=BALANCE)
            self._keys.append(await Authenticator(self._store, PEPPER).authenticate((await keys.create(name)).text))
        self._hints.start()

    async def run(self) -> None:
        """Begin calls until it is cancelled."""
        began, count = time.monotonic(), 0
        while True:
            due = int((time.monotonic() - began) * self._load.rate)
            for _ in range(due - count):
                task = asyncio.create_task(self._call())
                self._running.add(task)
                task.add_done_callback(self._ended)
            count = due
            await asyncio.sleep(STEP)

    async def close(self) -> None:
        """Wait for the running calls."""
        while self._running:
            await asyncio.wait(self._running)
        await self._ledger.drain()
        await self._records.drain()
        self._hints.stop()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.result()

    async def _call(self) -> None:
        key, request_id = random.choice(self._keys), "req_" + secrets.token_hex(16)
        claim = await self._claim(key, request_id) if random.random() < self._load.share else None
        hold = await self._ledger.admit(request_id, key, QUOTE)
        seconds = random.uniform(0.0, 2 * self._load.seconds)
        await asyncio.sleep(seconds)
        self._ledger.book(hold, record_of(key, request_id, seconds))
        self.settled += 1
        if claim is not None:
            claim.keep(secrets.token_bytes(self._load.answer))
            claim.complete(200, {"Content-Type": "application/json", "x-gateway-cost": "0.000001234"})

    async def _claim(self, key: ApiKey, request_id: str) -> Claim:
        name, digest = secrets.token_hex(16), secrets.token_hex(32)
        found = await self._records.claim(key, name, digest=digest, request_id=request_id, model=QUOTE.model)
        assert isinstance(found, Claim)
        return found


def table_of(found: Found) -> Table:
    """Each part as measured, and at real days for each of `RATES`."""
    title = f"{found.load.rate} calls a second, a day of {found.load.day:g} s, {found.load.share:.0%} with a key"
    table = Table(title=title)
    for column in ("part", "objects", "expected", "bytes each", *(f"{rate:,} calls/s" for rate in RATES)):
        table.add_column(column, justify="left" if column == "part" else "right")
    for row in rows_of(found):
        table.add_row(*row)
    return table


def rows_of(found: Found) -> Iterator[tuple[str, ...]]:
    """The rows; the last one has the sums."""
    sums = [0.0] * len(RATES)
    for name, days in PERIODS.items():
        part, share = found.parts[name], found.load.share if name == "idempotency" else 1.0
        real = [rate * share * days * REAL_DAY * part.each for rate in RATES]
        sums = [total + value for total, value in zip(sums, real, strict=True)]
        expected = f"{found.load.rate * share * days * found.load.day:,.0f}"
        yield f"{name}, {days * 24} h", f"{part.count:,}", expected, f"{part.each:.0f}", *map(size, real)
    holds = found.parts["holds"]
    real = [rate * found.load.seconds * holds.each for rate in RATES]
    expected = f"{found.load.rate * found.load.seconds:,.0f}"
    yield "holds of running calls", f"{holds.count:,}", expected, f"{holds.each:.0f}", *map(size, real)
    yield "sum", "", "", "", *(size(total + value) for total, value in zip(sums, real, strict=True))

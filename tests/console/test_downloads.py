"""Files are made while they are sent: other pages are answered meanwhile, and the memory is that of one piece."""

from __future__ import annotations

import asyncio
import csv
import io
import socket
import threading
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from itertools import pairwise
from typing import Any

import aiohttp
import pytest

from benchmarks.micro_reports import Site, fill
from gateway.console.pages import account as account_pages
from gateway.history.call_pages import read_calls
from gateway.reports import call_lists
from gateway.web.piecewise import MOST_OF_ONE
from tests.console.client import Browser, Console
from tests.console.history import ago, calls
from tests.polling import until

CALLS = Site(rows=100_000, accounts=1, models=2, days=10, keys=5)
OWN = "/accounts/big-0"
FILE = f"{OWN}/usage.csv?range=30d"
SMALL = 65_536  # bytes of the client's socket buffer


class Pages:
    """Counts the pages of calls that are read, and the turns of the loop before each; page `fails_at` fails."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.turns = 0
        self.turns_before = list[int]()
        self.fails_at = 0

        def counted(*args: Any, **rest: Any) -> Any:
            self.turns_before.append(self.turns)
            if self.read == self.fails_at:
                raise RuntimeError("the disk is gone")
            return read_calls(*args, **rest)

        monkeypatch.setattr(call_lists, "read_calls", counted)

    @property
    def read(self) -> int:
        """How many there were."""
        return len(self.turns_before)

    async def count_turns(self) -> None:
        """Count until it is cancelled."""
        while True:
            self.turns += 1
            await asyncio.sleep(0)


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> Pages:
    return Pages(monkeypatch)


@asynccontextmanager
async def slow_client(browser: Browser, path: str) -> AsyncIterator[asyncio.StreamReader]:
    """Asks for a path, and takes no more bytes than the test reads."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL)
    sock.setblocking(False)
    host, port = browser.url.removeprefix("http://").split(":")
    await asyncio.get_running_loop().sock_connect(sock, (host, int(port)))
    reader, writer = await asyncio.open_connection(sock=sock, limit=SMALL)
    cookies = "; ".join(f"{name}={value}" for name, value in browser.cookies.items())
    writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nCookie: {cookies}\r\n\r\n".encode())
    try:
        yield reader
    finally:
        writer.transport.abort()


async def big(c: Console) -> Browser:
    """The owner of an account with many calls."""
    fill(await c.services.database(), CALLS)
    await c.services.store.accounts.create("big-0", balance=1)
    return await c.as_("owner", **{"big-0": "owner"})


@pytest.mark.slow
async def test_other_pages_are_answered_while_a_long_file_is_sent(console: Any, pages: Pages) -> None:
    async with console() as c:
        owner, other = await big(c), await c.as_("other", acme="member")
        counting = asyncio.create_task(pages.count_turns())
        async with owner.session.get(f"{owner.url}{FILE}") as answer:
            rows = (await answer.content.read(SMALL)).count(b"\n")
            assert "Overview" in (await other.get("/")).text
            assert pages.read < CALLS.rows // call_lists.PAGE  # the file is not made yet
            async for chunk, _ in answer.content.iter_chunks():
                rows += chunk.count(b"\n")
        counting.cancel()
        assert rows == CALLS.rows + 1
        assert pages.read >= CALLS.rows // call_lists.PAGE
        assert all(before < after for before, after in pairwise(pages.turns_before))


@pytest.mark.slow
async def test_client_that_does_not_read_stops_the_reading_and_one_that_leaves_ends_it(
    console: Any, pages: Pages
) -> None:
    async with console() as c:
        owner = await big(c)
        async with slow_client(owner, FILE) as reader:
            assert b" 200 " in await reader.readline()
            await until(lambda: pages.read > 1)
            before = -1
            while before != pages.read:  # until all buffers of the sockets are full
                before = pages.read
                for _ in range(5):
                    await owner.get("/profile")
            # The whole file is about 15 MB; the buffers of the two sockets hold some of it.
            assert pages.read < CALLS.rows // call_lists.PAGE // 2
            assert len(c.site.surface.downloads) == 1
        await until(lambda: len(c.site.surface.downloads) == 0)
        assert pages.read < CALLS.rows // call_lists.PAGE // 2


async def test_file_has_all_calls_of_the_range_in_their_order(
    console: Any, pages: Pages, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_lists, "PAGE", 3)
    async with console() as c:
        owner = await c.as_("owner", acme="owner")
        ids = await calls(c, *(ago(minutes=minutes) for minutes in range(20, 13, -1)))
        file = (await owner.get("/accounts/acme/usage.csv")).html
        assert [row["request_id"] for row in csv.DictReader(io.StringIO(file))] == ids[::-1]
        assert pages.read == 3
        empty = (await owner.get("/accounts/acme/usage.csv?model=none")).html
        assert empty.splitlines() == [file.splitlines()[0]]
        assert (await owner.ask("HEAD", "/accounts/acme/usage.csv")).status == 200


@pytest.mark.holds("admin-api.md#reports-statements-and-csv-files-1")
async def test_file_that_fails_halfway_is_not_taken_for_whole(
    console: Any, pages: Pages, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_lists, "PAGE", 2)
    async with console() as c:
        owner = await c.as_("owner", acme="owner")
        await calls(c, *(ago(minutes=minutes) for minutes in range(20, 10, -1)))
        pages.fails_at = 1
        assert (await owner.ask("GET", "/accounts/acme/usage.csv")).status == 500
        pages.fails_at = pages.read + 3
        with pytest.raises(aiohttp.ClientError):
            await owner.ask("GET", "/accounts/acme/usage.csv")
        assert len(c.site.surface.downloads) == 0


@pytest.mark.slow
async def test_client_that_takes_no_piece_in_time_is_cut(console: Any, pages: Pages, monkeypatch: Any) -> None:
    monkeypatch.setattr("gateway.console.handler.PIECE_WITHIN", 0.2)
    async with console() as c:
        owner = await big(c)
        async with slow_client(owner, FILE) as reader:
            assert b" 200 " in await reader.readline()
            await until(lambda: len(c.site.surface.downloads) == 0)
        assert pages.read < CALLS.rows // call_lists.PAGE // 2


async def test_file_of_calls_leaves_the_database_thread_of_the_pages_alone(console: Any, monkeypatch: Any) -> None:
    async with console() as c:
        owner = await c.as_("owner", acme="owner")
        own = await c.services.sql.run(threading.current_thread)
        readers: list[threading.Thread] = []

        def read_nothing(*_: Any, **__: Any) -> list[Any]:
            readers.append(threading.current_thread())
            return []

        monkeypatch.setattr(call_lists, "read_calls", read_nothing)
        assert (await owner.ask("GET", "/accounts/acme/usage.csv")).status == 200
        assert readers and own not in readers


@pytest.mark.holds("admin-api.md#reports-statements-and-csv-files-1")
async def test_one_person_gets_a_few_files_at_the_same_time(console: Any) -> None:
    async with console() as c:
        user, other = await c.user("ann@example.com", acme="owner"), await c.as_("ben", acme="owner")
        ann = await c.signed_in(user)
        with ExitStack() as running:
            for _ in range(MOST_OF_ONE):
                running.enter_context(c.site.surface.downloads.place(f"user:{user.id}"))
            answer = await ann.ask("GET", "/accounts/acme/usage.csv")
            assert answer.status == 429 and f"You have {MOST_OF_ONE} downloads running" in answer.text
            assert (await other.ask("GET", "/accounts/acme/usage.csv")).status == 200
        assert (await ann.ask("GET", "/accounts/acme/usage.csv")).status == 200


async def test_statement_lists_some_charges_and_its_file_all(console: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(account_pages, "MOST_CHARGED", 2)
    async with console() as c:
        owner = await c.as_("owner", acme="owner")
        for model in ("m1", "m2", "m3"):
            await calls(c, ago(minutes=1), model=model)
        path = f"/accounts/acme/statements/{ago(minutes=1)[:7]}"
        page = (await owner.get(path)).text
        assert "m2" in page and "m3" not in page and "These are the first 2 of 3. The CSV file has all of them." in page
        file = csv.DictReader(io.StringIO((await owner.get(f"{path}/lines.csv")).html))
        assert [row["model"] for row in file if row["section"] == "charges"] == ["m1", "m2", "m3"]

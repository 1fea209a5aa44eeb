"""Answers in pieces, files and lines alike: what the access log and the browser learn of their end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any

import aiohttp
import pytest

from gateway.console.replies import Download, Reply, Stream
from gateway.console.route import PageRoute, PageRouter
from gateway.console.visit import Visit
from gateway.log import AccessLine
from tests.console.client import Console
from tests.console.test_waits import leave
from tests.polling import until

Pieces = AsyncGenerator[bytes]


def download(pieces: Pieces) -> Reply:
    return Download("calls.csv", "text/csv", pieces)


def serve(c: Console, pieces: Pieces, kind: Callable[[Pieces], Reply]) -> list[AccessLine]:
    """Make /pieces the only page; the result gets the access lines."""

    async def page(visit: Visit) -> Reply:
        return kind(pieces)

    c.site.router = PageRouter([PageRoute(method="GET", path="/pieces", audience="signed_in", function=page)])
    lines = list[AccessLine]()
    c.site.surface.access_log.write = lines.append  # type: ignore[method-assign, assignment]
    return lines


@pytest.mark.parametrize("kind", [download, Stream])
async def test_client_that_leaves_early_is_in_the_access_log(console, kind: Any) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def endless() -> Pieces:
        try:
            yield b"one\n"
            begun.set()
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with console() as c:
        ann = await c.as_("ann")
        lines = serve(c, endless(), kind)
        asked = asyncio.create_task(ann.ask("GET", "/pieces"))
        await begun.wait()
        await leave(asked)
        await ended.wait()
        await until(lambda: lines)
        assert [(line.status, line.outcome) for line in lines] == [(499, "client_closed")]


@pytest.mark.parametrize("kind", [download, Stream])
async def test_answer_that_fails_halfway_is_cut_and_one_that_ends_is_whole(console, kind: Any) -> None:
    async def pieces(*, fails: bool) -> Pieces:
        yield b"one\n"
        if fails:
            raise RuntimeError("the disk is gone")

    async with console() as c:
        ann = await c.as_("ann")
        failed = serve(c, pieces(fails=True), kind)
        with pytest.raises(aiohttp.ClientError):
            await ann.ask("GET", "/pieces")
        await until(lambda: failed)
        whole = serve(c, pieces(fails=False), kind)
        assert (await ann.ask("GET", "/pieces")).html == "one\n"
        await until(lambda: whole)
        assert [(line.status, line.outcome) for line in failed + whole] == [(200, "internal_error"), (200, "ok")]

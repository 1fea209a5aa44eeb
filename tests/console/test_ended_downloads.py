"""A file that is sent stops soon after the rights of its reader have ended, and is not taken for whole."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from benchmarks.micro_reports import Site, fill
from gateway.admin_api.resources import reports
from gateway.web import late_answers
from tests.admin_api.both_databases import database_address, database_url
from tests.console.client import ROOT, Browser, Console
from tests.console.test_downloads import SMALL, slow_client
from tests.console.test_late_writes import end
from tests.delays import time_passes
from tests.polling import until

__all__ = ["database_address", "database_url"]

ROWS = 40_000
EVERY = 0.1  # seconds, instead of some
END = b"0\r\n\r\n"


async def reader_of(c: Console) -> tuple[str, Browser]:
    """An owner of an account with many calls."""
    fill(await c.services.database(), Site(rows=ROWS, accounts=1, models=2, days=10, keys=5))
    await c.services.store.accounts.create("big-0", balance=1)
    owns: dict[str, Any] = {"big-0": "owner"}
    ann = await c.user("ann@example.com", **owns)
    return ann.id, await c.signed_in(ann)


@pytest.mark.holds("people.md#who-is-who-12", "security.md#scopes-of-admin-tokens-8")
@pytest.mark.parametrize("how", ["removed", "disabled", "signed out", "stays"])
async def test_file_of_a_slow_reader_stops_after_the_rights_have_ended(
    console: Any, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(late_answers, "EVERY", EVERY)
    async with console() as c:
        user, browser = await reader_of(c)
        async with slow_client(browser, "/accounts/big-0/usage.csv?range=30d") as reader:
            received = await reader.read(SMALL)
            assert b" 200 " in received
            if how == "removed":
                await (await c.services.people()).memberships.remove(ROOT, user, "big-0")
            else:
                await end(c, how, user)
            await time_passes(2 * EVERY)
            try:
                while not received.endswith(END) and (chunk := await reader.read(SMALL)):
                    received += chunk
            except ConnectionError:
                assert how != "stays"
        assert received.endswith(END) == (how == "stays")
        assert (received.count(b"\n") >= ROWS) == (how == "stays")
        await until(lambda: len(c.site.surface.downloads) == 0)


@pytest.mark.holds("admin-api.md#requests-and-answers-8", "security.md#scopes-of-admin-tokens-8")
@pytest.mark.parametrize("is_revoked", [True, False])
async def test_file_over_the_api_stops_after_the_token_was_revoked(
    console: Any, monkeypatch: pytest.MonkeyPatch, is_revoked: bool
) -> None:
    go_on = asyncio.Event()

    async def each(pieces: list[bytes]) -> AsyncIterator[bytes]:
        yield b"first\n"
        async with asyncio.timeout(30.0):
            await go_on.wait()
        yield b"second\n"

    monkeypatch.setattr(late_answers, "EVERY", EVERY)
    monkeypatch.setattr(reports, "_each", each)
    async with console() as c:
        people = await c.services.people()
        token = await people.tokens.create(ROOT, "t", ["read"])
        headers = {"Authorization": f"Bearer {token.text}"}
        async with (
            aiohttp.ClientSession(headers=headers) as session,
            session.get(f"{c.url}/admin/v1/usage/csv") as answer,
        ):
            assert (answer.status, await answer.content.readline()) == (200, b"first\n")
            if is_revoked:
                await people.tokens.revoke(ROOT, token.record.id)
            await time_passes(2 * EVERY)
            go_on.set()
            if is_revoked:
                with pytest.raises(aiohttp.ClientError):
                    await answer.read()
            else:
                assert await answer.read() == b"second\n"

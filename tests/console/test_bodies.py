"""Bodies of strangers: refused from the head on where a session is needed, small and quick where none is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlencode, urlsplit

import pytest
from argon2 import PasswordHasher

from gateway.console import form_body
from gateway.console.form_body import MAX_FORM, MAX_PUBLIC_FORM
from gateway.people.password_hashes import PasswordHashes
from tests.console.client import PASSWORD, Browser, Console
from tests.console.conftest import OpenConsole
from tests.polling import until

SOON = 60.0  # seconds; a body that is waited for in vain has another status
FORM = "Content-Type: application/x-www-form-urlencoded\r\n"


class Raw:
    """A connection on which a test writes what it wants."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def ask(self, line: str, headers: str = "", body: bytes = b"") -> tuple[int, str]:
        """Send a head, and what there is of a body; status and head of the answer."""
        self.writer.write(f"{line} HTTP/1.1\r\nHost: h\r\n{headers}\r\n".encode() + body)
        async with asyncio.timeout(SOON):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
        return int(head[9:12]), head


@asynccontextmanager
async def connected(c: Console) -> AsyncIterator[Raw]:
    address = urlsplit(c.url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    try:
        yield Raw(reader, writer)
    finally:
        writer.close()


def session_of(browser: Browser) -> str:
    return f"Cookie: gateway-session={browser.cookies['gateway-session']}\r\n"


@pytest.mark.holds("operations/network.md#connections-5", "security.md#shares-3")
@pytest.mark.parametrize("length", ["Content-Length: 100000", "Transfer-Encoding: chunked"])
@pytest.mark.parametrize("path", ["/accounts/acme/keys/new", "/site/new-account", "/profile/name"])
async def test_stranger_is_sent_to_sign_in_before_the_body_is_read(
    console: OpenConsole, path: str, length: str
) -> None:
    async with console() as c, connected(c) as raw:
        status, head = await raw.ask(f"POST {path}", f"{FORM}{length}\r\n")
        assert (status, "Location: /sign-in" in head) == (303, True)


@pytest.mark.holds("security.md#shares-3")
async def test_person_without_the_right_is_refused_before_the_body_is_read(console: OpenConsole) -> None:
    async with console() as c:
        browser = await c.as_("mia", acme="member")
        async with connected(c) as raw:
            status, _ = await raw.ask("POST /site/new-account", f"{FORM}{session_of(browser)}Content-Length: 1000\r\n")
            assert status == 403


async def test_path_that_does_not_exist_is_refused_before_the_body_is_read(console: OpenConsole) -> None:
    async with console() as c, connected(c) as raw:
        assert (await raw.ask("POST /nowhere", "Content-Length: 1000\r\n"))[0] == 404


@pytest.mark.holds("operations/network.md#connections-5", "security.md#shares-3")
async def test_form_for_everybody_is_small(console: OpenConsole) -> None:
    async with console() as c:
        async with connected(c) as raw:
            assert (await raw.ask("POST /sign-in", f"{FORM}Content-Length: {MAX_PUBLIC_FORM + 1}\r\n"))[0] == 413
        async with connected(c) as raw:
            chunk = b"3001\r\n" + b"a" * 0x3001 + b"\r\n"
            assert (await raw.ask("POST /sign-in", f"{FORM}Transfer-Encoding: chunked\r\n", chunk))[0] == 413


@pytest.mark.holds("operations/network.md#connections-5")
async def test_form_of_a_person_who_is_signed_in_may_be_longer(console: OpenConsole) -> None:
    async with console() as c:
        browser = await c.as_("ann", role="operator")
        async with connected(c) as raw:
            headers = f"{FORM}{session_of(browser)}Content-Length: "
            status, _ = await raw.ask("POST /site/new-account", f"{headers}{MAX_FORM + 1}\r\n")
            assert status == 413
        async with connected(c) as raw:
            body = urlencode({"name": "x" * (MAX_PUBLIC_FORM + 1)}).encode()
            status, _ = await raw.ask("POST /site/new-account", f"{headers}{len(body)}\r\n", body)
            assert status == 403  # it was read: it has no token of the page


async def test_longest_passwords_fit_into_a_form_for_everybody(console: OpenConsole) -> None:
    longest = "\N{GRINNING FACE}" * 256
    async with console() as c:
        browser = await c.browser()
        page = await browser.get("/sign-in")
        form = {"xsrf": page.hidden()["xsrf"], "email": "ann@example.com", "password": longest, "again": longest}
        assert (await browser.ask("POST", "/sign-in", {**form, "more": longest})).status == 401


@pytest.mark.holds("operations/network.md#connections-5", "security.md#shares-3")
async def test_form_for_everybody_that_drips_is_cut(console: OpenConsole, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(form_body, "PUBLIC_FORM_WITHIN", 0.2)
    async with console() as c, connected(c) as raw:
        assert (await raw.ask("POST /sign-in", f"{FORM}Content-Length: 100\r\n", b"a"))[0] == 408


async def test_connection_serves_on_after_a_short_body_was_refused(console: OpenConsole) -> None:
    async with console() as c, connected(c) as raw:
        body = urlencode({"name": "x" * 1000}).encode()
        status, _ = await raw.ask("POST /site/new-account", f"{FORM}Content-Length: {len(body)}\r\n", body)
        assert status == 303
        assert (await raw.ask("GET /healthz"))[0] == 404


@pytest.mark.holds("operations/network.md#connections-5", "security.md#shares-3")
async def test_token_is_checked_before_the_body_is_read(console: OpenConsole) -> None:
    async with console() as c, connected(c) as raw:
        headers = "Authorization: Bearer nobody\r\nContent-Type: application/json\r\nContent-Length: 500000\r\n"
        assert (await raw.ask("POST /admin/v1/accounts", headers))[0] == 401


async def test_head_with_bare_line_feeds_is_refused(console: OpenConsole) -> None:
    async with console() as c, connected(c) as raw:
        raw.writer.write(b"GET /sign-in HTTP/1.1\nHost: h\n\n")
        async with asyncio.timeout(SOON):
            assert (await raw.reader.readline()).startswith(b"HTTP/1.1 400 ")


@pytest.mark.holds("operations/network.md#connections-6", "security.md#shares-4")
async def test_person_signs_in_while_twenty_addresses_send_passwords(
    console: OpenConsole, hashes: PasswordHashes
) -> None:
    async with console() as c:
        await c.user("ann@example.com", password=PASSWORD, acme="owner")
        browser = await c.browser()
        page = await browser.get("/sign-in")
        hashes._hasher = PasswordHasher(time_cost=4, memory_cost=4096, parallelism=1)  # some 10 ms
        served: list[str] = []

        async def guess(address: str) -> None:
            await hashes.verify(None, "a password of nobody", address)
            served.append(address)

        crowd = [asyncio.create_task(guess(f"198.51.100.{number % 20}")) for number in range(400)]
        await until(lambda: len(served) > 20)
        before = len(served)
        form = {**page.hidden(), "email": "ann@example.com", "password": PASSWORD}
        assert (await browser.ask("POST", "/sign-in", form)).status == 303
        assert len(served) - before < len(crowd) / 2
        for task in crowd:
            task.cancel()
        await asyncio.gather(*crowd, return_exceptions=True)

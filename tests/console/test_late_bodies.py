"""A body that ends long after its head changes nothing with rights that have ended meanwhile."""

from __future__ import annotations

import asyncio
from urllib.parse import urlencode, urlsplit

import pytest

from tests.admin_api.both_databases import database_address, database_url
from tests.console.client import ROOT, Browser, Console
from tests.console.conftest import OpenConsole

__all__ = ["database_address", "database_url"]

SOON = 60.0  # seconds
FORM = "application/x-www-form-urlencoded"


class Half:
    """A request whose body is sent but for its last byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, last: bytes) -> None:
        self._reader, self._writer, self._last = reader, writer, last

    @classmethod
    async def of(cls, url: str, path: str, body: bytes, *headers: str) -> Half:
        """Send it; the server has read the head when this returns."""
        address = urlsplit(url)
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        lines = [f"POST {path} HTTP/1.1", "Host: h", f"Content-Length: {len(body)}", "Expect: 100-continue", *headers]
        writer.write("\r\n".join([*lines, "", ""]).encode())
        async with asyncio.timeout(SOON):
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")  # it is admitted
        writer.write(body[:-1])
        return cls(reader, writer, body[-1:])

    async def end(self) -> tuple[int, str]:
        """Send the last byte: status and head of the answer."""
        self._writer.write(self._last)
        async with asyncio.timeout(SOON):
            head = (await self._reader.readuntil(b"\r\n\r\n")).decode()
        self._writer.close()
        return int(head[9:12]), head


async def half_form(c: Console, browser: Browser, path: str, **form: str) -> Half:
    """A form of the person in this browser."""
    body = urlencode({"xsrf": await browser.token(), **form}).encode()
    cookie = f"Cookie: gateway-session={browser.cookies['gateway-session']}"
    return await Half.of(c.url, path, body, cookie, f"Content-Type: {FORM}")


@pytest.mark.holds("people.md#who-is-who-9", "security.md#scopes-of-admin-tokens-8")
@pytest.mark.parametrize("how", ["member elsewhere", "disabled", "signed out"])
async def test_owner_who_loses_the_role_while_the_form_is_sent_makes_no_key(console: OpenConsole, how: str) -> None:
    async with console() as c:
        people, ann = await c.services.people(), await c.user("ann@example.com", acme="owner")
        half = await half_form(c, await c.signed_in(ann), "/accounts/acme/keys/new", name="late")
        if how == "disabled":
            await people.users.disable(ROOT, ann.id)
        elif how == "signed out":
            await people.sessions.end_all(ROOT, ann.id)
        else:
            await people.memberships.remove(ROOT, ann.id, "acme")
        status, head = await half.end()
        assert status in (303, 401, 403, 404) and ("Location: /sign-in" in head) == (how != "member elsewhere"), head
        assert await c.services.store.keys.list("acme") == []


async def test_operator_who_is_demoted_while_the_form_is_sent_opens_no_account(console: OpenConsole) -> None:
    async with console() as c:
        await c.user("root@example.com", role="operator")
        rob = await c.user("rob@example.com", role="operator")
        half = await half_form(c, await c.signed_in(rob), "/site/new-account", name="late", group="vip")
        await (await c.services.people()).users.edit(ROOT, rob.id, {"role": "none"})
        assert (await half.end())[0] == 403
        assert [account.name for account in await c.services.store.accounts.list()] == ["acme", "other"]


async def test_form_that_is_sent_late_works_while_the_rights_stay(console: OpenConsole) -> None:
    async with console() as c:
        half = await half_form(c, await c.as_("ann", acme="owner"), "/accounts/acme/keys/new", name="late")
        assert (await half.end())[0] < 400
        assert [key.name for key in await c.services.store.keys.list("acme")] == ["late"]


@pytest.mark.holds("people.md#who-is-who-9", "security.md#scopes-of-admin-tokens-8")
@pytest.mark.parametrize("is_revoked", [True, False])
async def test_token_that_is_revoked_while_the_body_is_sent_credits_nothing(
    console: OpenConsole, is_revoked: bool
) -> None:
    async with console() as c:
        tokens = (await c.services.people()).tokens
        made = await tokens.create(ROOT, "t", ["credits"])
        half = await Half.of(
            c.url,
            "/admin/v1/accounts/acme/credits",
            b'{"amount": "100"}',
            f"Authorization: Bearer {made.text}",
            "Content-Type: application/json",
            "Idempotency-Key: late",
        )
        if is_revoked:
            await tokens.revoke(ROOT, made.record.id)
        status, _ = await half.end()
        assert (status == 401) == is_revoked and (status < 300) != is_revoked
        balance = (await c.services.store.accounts.show("acme")).balance
        assert (balance == 25_000_000_000) == is_revoked


@pytest.mark.holds("security.md#scopes-of-admin-tokens-8")
@pytest.mark.parametrize("path", ["/accounts/acme/keys", "/keys/{key}/rotate", "/keys/{key}/revoke"])
async def test_token_that_is_revoked_while_an_empty_body_is_sent_changes_nothing(
    console: OpenConsole, path: str
) -> None:
    """A body in chunks may end after a long time without a byte."""
    async with console() as c:
        tokens, keys = (await c.services.people()).tokens, c.services.store.keys
        key, made = await keys.create("acme"), await tokens.create(ROOT, "t", ["keys"])
        address = urlsplit(c.url)
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        lines = [f"POST /admin/v1{path.format(key=key.id)} HTTP/1.1", "Host: h", "Transfer-Encoding: chunked"]
        lines += ["Expect: 100-continue", f"Authorization: Bearer {made.text}"]
        writer.write("\r\n".join([*lines, "", ""]).encode())
        async with asyncio.timeout(SOON):
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")  # it is admitted
            await tokens.revoke(ROOT, made.record.id)
            writer.write(b"0\r\n\r\n")
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 401 ")
        writer.close()
        assert [(one.id, one.state) for one in await keys.list("acme")] == [(key.id, "active")]


async def test_page_is_not_shown_to_a_person_whose_session_ends_while_an_empty_body_is_sent(
    console: OpenConsole,
) -> None:
    async with console() as c:
        people, ann = await c.services.people(), await c.user("ann@example.com", acme="owner")
        browser = await c.signed_in(ann)
        address = urlsplit(c.url)
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        lines = ["GET /accounts/acme/keys HTTP/1.1", "Host: h", "Transfer-Encoding: chunked", "Expect: 100-continue"]
        lines += [f"Cookie: gateway-session={browser.cookies['gateway-session']}"]
        writer.write("\r\n".join([*lines, "", ""]).encode())
        async with asyncio.timeout(SOON):
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")
            await people.sessions.end_all(ROOT, ann.id)
            writer.write(b"0\r\n\r\n")
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 303 ")
        writer.close()

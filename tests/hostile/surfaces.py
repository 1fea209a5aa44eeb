"""The surfaces that strangers send requests to: `/v1`, and the admin API and the pages on the port of the console."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from msgspec import structs

from gateway.accounts.accounts import Accounts
from gateway.admin_api.body_limits import LIMITS as CONSOLE_LIMITS
from gateway.api.protocol_errors import ProtocolErrors
from gateway.console.form_body import MAX_FORM
from gateway.http_server.limits import ServerLimits
from gateway.http_server.server import HTTPServer
from gateway.runtime.gateway import Gateway
from gateway.testing import FakeUpstream
from tests.console.client import ROOT, Console
from tests.console.conftest import OpenConsole

from .garbage import Forge
from .raw import Answer, Check, assert_clean, assert_refusal

SCOPES = ["accounts", "keys", "read"]
#: The console reads compressed bytes as the body itself: it inflates nothing, so a bomb is as small as it was sent.
ADMIN = {"gzip_bomb": {400}, "wrong_media": {400, 415}}
#: A form without the token of its page is forbidden, and a stranger is sent to sign in.
PAGES = {
    "bad_credential": {303},
    "bad_gzip": {400, 403},
    "flipped": {0, 303, 400, 401, 403, 404, 405, 408, 413, 415},
    "gzip_bomb": {400},
    "odd_expectation": {403},
}


class Surface(NamedTuple):
    """One of them, with requests that are admitted until their body is read."""

    address: tuple[str, int]
    forge: Forge
    most: int  # bytes of a body
    refused: Check  # checks an answer that is an error
    state: Callable[[], Awaitable[Any]]  # what no refused request changes


Open = Callable[..., AbstractAsyncContextManager[Surface]]


def assert_console_refusal(answer: Answer, *, head: bool = False) -> None:
    """A 4xx with an error of the admin API, a page or a line of text, which gives nothing of the inside away."""
    assert 400 <= answer.status < 500, answer
    media = answer.headers["content-type"].partition(";")[0]
    assert media in ("application/json", "text/html", "text/plain"), answer
    if "x-request-id" in answer.headers:  # a handler's
        assert answer.headers["x-content-type-options"] == "nosniff", answer
        assert answer.headers["cache-control"] == "no-store", answer
    if media == "application/json" and not head:
        assert list(answer.error) == ["message", "type", "param", "code"], answer
    assert_clean(answer)


def open_v1(gateway: Gateway, upstream: FakeUpstream, forge: Forge) -> Open:
    """Opens `/v1` for these requests."""

    async def state() -> Any:
        return len(upstream.seen), await Accounts(gateway.store, gateway.ledger).show("acme")

    @asynccontextmanager
    async def opened(**limits: Any) -> AsyncIterator[Surface]:
        server = HTTPServer(gateway.application(), ServerLimits(**limits), on_protocol_error=ProtocolErrors(gateway))
        sock = socket.create_server(("127.0.0.1", 0))
        await server.start(sock)
        try:
            most = gateway.settings.server.limits.max_json_body
            yield Surface(sock.getsockname(), forge, most, assert_refusal, state)
        finally:
            server.close_listener()
            await server.drain(0.0)

    return opened


def open_console(console: OpenConsole, make: Callable[[Console], Awaitable[tuple[Forge, int]]]) -> Open:
    """Opens the port of the console; `make` says what is sent to it."""

    @asynccontextmanager
    async def opened(**limits: Any) -> AsyncIterator[Surface]:
        async with console(limits=structs.replace(CONSOLE_LIMITS, **limits)) as c:
            forge, most = await make(c)

            async def state() -> Any:
                store, people = c.services.store, await c.services.people()
                return await store.accounts.list(), await store.keys.list("acme"), len(await people.tokens.list(ROOT))

            url = urlsplit(c.url)
            assert url.hostname is not None and url.port is not None
            yield Surface((url.hostname, url.port), forge, most, assert_console_refusal, state)

    return opened


async def admin_api(c: Console) -> tuple[Forge, int]:
    """New accounts, with a token that may open them."""
    token = await (await c.services.people()).tokens.create(ROOT, "a program", SCOPES)
    forge = Forge(
        b"Authorization: Bearer " + token.text.encode(),
        target=b"/admin/v1/accounts",
        readable=b"/admin/v1/accounts",
        prefix=b"/admin/v1/",
        nothing=(b"/admin/v1/nope", b"/admin/v1/accounts/nope", b"/admin/v1/accounts/acme/disable"),
        statuses=ADMIN,
    )
    return forge, 2**20


async def pages(c: Console) -> tuple[Forge, int]:
    """The form for new keys, in the browser of an owner."""
    browser = await c.as_("ann", acme="owner")
    forge = Forge(
        b"Cookie: gateway-session=" + browser.cookies["gateway-session"].encode(),
        credential_start=b"Cookie: gateway-session=",
        target=b"/accounts/acme/keys/new",
        readable=b"/profile",
        prefix=b"/",
        nothing=(b"/nope", b"/accounts/acme/nope", b"/accounts/nope/keys", b"/sign-out"),
        media=b"application/x-www-form-urlencoded",
        statuses=PAGES,
    )
    return forge, MAX_FORM

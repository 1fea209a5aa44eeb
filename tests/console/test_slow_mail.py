"""Strangers who ask for many e-mails delay neither pages nor sign-ins, also while the mail server is silent."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from gateway.admin.mail_tasks import REQUESTED
from tests.console.client import Browser, Shown
from tests.console.identity_provider import SECRET, identity_provider
from tests.console.oidc_world import TABLE, come
from tests.console.opening import MODELS

MAIL = """
[mail]
host = "127.0.0.1"
port = {port}
from = "gateway@example.com"
"""
SOON = 60.0  # seconds
SILENT = 120.0  # seconds that a message to a silent server takes


async def sign_up(browser: Browser, number: int, *, network: str = "198.51.100.1") -> Shown:
    form = {**(await browser.get("/sign-up")).hidden(), "email": f"x{number}@nobody.example"}
    return await browser.ask("POST", "/sign-up", form, headers={"X-Forwarded-For": network})


@pytest.mark.holds("security.md#shares-5")
@pytest.mark.parametrize("path", ["/accounts/acme/usage", "/accounts/acme", "/accounts/acme/reports"])
async def test_pages_and_provider_sign_ins_are_answered_while_strangers_wait_for_mail(
    console: Any, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setenv("OIDC_TEST_SECRET", SECRET)
    monkeypatch.setattr("gateway.admin.mail.TIMEOUT", SILENT)
    with socket.create_server(("127.0.0.1", 0), backlog=200) as silent:
        mail = MAIL.format(port=silent.getsockname()[1])
        async with identity_provider() as corp:
            table = TABLE.format(name="corp", issuer=corp.issuer, label="Corp")
            async with console(models=MODELS + mail + table, signup="open") as c:
                owner, stranger = await c.as_("owner", acme="owner"), await c.browser()
                for number in range(20):
                    assert (await sign_up(stranger, number)).status == 200
                async with asyncio.timeout(SOON):
                    assert (await owner.ask("GET", path)).status == 200
                    assert (await come(await c.browser())).status == 303
                silent.close()  # the threads end


@pytest.mark.holds("security.md#shares-5")
async def test_network_that_waits_for_many_mails_is_refused_and_another_one_is_not(
    console: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.admin.mail.TIMEOUT", SILENT)
    with socket.create_server(("127.0.0.1", 0), backlog=200) as silent:
        mail = MAIL.format(port=silent.getsockname()[1])
        async with console(models=MODELS + mail, signup="open") as c:
            stranger = await c.browser()
            for number in range(REQUESTED.most):
                assert (await sign_up(stranger, number)).status == 200
            refused = await sign_up(stranger, 99)
            assert (refused.status, "your network asked for wait to be sent" in refused.text) == (429, True)
            forgotten = {**(await stranger.get("/password/forgotten")).hidden(), "email": "ann@example.com"}
            sent = {"X-Forwarded-For": "198.51.100.1"}
            assert (await stranger.ask("POST", "/password/forgotten", forgotten, headers=sent)).status == 429
            assert (await sign_up(stranger, 100, network="192.0.2.1")).status == 200
            silent.close()

"""The database or the store is away, or a body is strange: a clear error, and the next request works."""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

import pytest

from gateway.admin.actor import command_line
from gateway.admin.store_services import StoreServices
from gateway.config.settings import Settings
from tests.admin_api.client import Api, NamedActors

ROOT = command_line("root")


async def test_database_that_is_away_is_opened_once_it_is_back(api, settings: Settings) -> None:
    file = settings.data_dir / "gateway.db"
    file.mkdir()  # SQLite cannot open a folder
    async with api() as a:
        answer = await a.ask("GET", "/accounts", token="gwa_" + "x" * 43)
        assert (answer.status, answer.error["code"]) == (503, "service_unavailable")
        assert str(file) not in answer.error["message"]
        file.rmdir()
        await a.as_operator()
        assert len((await a.get("/accounts"))["data"]) == 2


async def test_store_that_is_away_gets_503(api) -> None:
    async with api(NamedActors(root=ROOT)) as a:
        await a.services.store.store.close()
        answer = await a.ask("GET", "/accounts", token="root")
        assert (answer.status, answer.error["type"]) == (503, "service_unavailable_error")


async def test_change_of_keys_that_is_not_on_the_store_s_disk_is_marked(api, monkeypatch: pytest.MonkeyPatch) -> None:
    async def unconfirmed(self: StoreServices) -> list[str]:
        return ["the store does not answer"]

    async with api(NamedActors(root=ROOT)) as a:
        user = await a.post("/users", {"email": "ann@example.com"}, token="root")
        path = f"/users/{user['id']}"
        member = f"/accounts/acme/members/{user['id']}"
        assert (await a.ask("PUT", member, {"role": "member"}, token="root")).status == 200
        monkeypatch.setattr(StoreServices, "unconfirmed", unconfirmed)
        for method, changed in (
            ("POST", f"{path}/disable"),
            ("POST", f"{path}/enable"),
            ("DELETE", member),
            ("DELETE", path),
        ):
            answer = await a.ask(method, changed, token="root")
            assert (answer.status, answer.headers.get("x-gateway-unconfirmed")) == (200, "true"), changed


async def sent(api: Api, *parts: bytes) -> bytes:
    """What the server answers to raw bytes, until it closes the connection."""
    address = urlsplit(api.url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    try:
        for part in parts:
            writer.write(part)
            await writer.drain()
        return await asyncio.wait_for(reader.read(), 30.0)
    except ConnectionError:
        return b""
    finally:
        writer.close()


async def test_body_that_is_too_long_is_refused_whatever_its_length_says(api) -> None:
    async with api(NamedActors(root=ROOT)) as a:
        head = b"POST /admin/v1/accounts HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n"
        known = b"Authorization: Bearer root\r\n"
        chunk = b"10000\r\n" + b"x" * 65_536 + b"\r\n"
        chunked = b"Transfer-Encoding: chunked\r\n\r\n"
        answers = [
            await sent(a, head + known + b"Content-Length: 9999999999\r\n\r\n"),
            await sent(a, head + known + chunked, *[chunk] * 17),
            await sent(a, head + chunked),
            await sent(a, head + b"Content-Length: 9999999999\r\n\r\n"),
        ]
        statuses = [answer.split(b" ", 2)[1] for answer in answers]
        assert statuses == [b"413", b"413", b"401", b"401"]
        assert all(b"Connection: close" in answer for answer in answers)
        assert (await a.ask("GET", "/accounts", token="root")).status == 200

"""Reports, exports and imports take long: a token has few of them under way, and all together have a few more."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

import aiohttp
import pytest

from gateway.admin.accounts import AccountAdmin
from gateway.admin.actor import EVERYTHING, Actor
from gateway.admin.running_calls import FoundCalls
from gateway.admin_api import handler
from gateway.admin_api.api import READS_AT_ONCE, SHARE
from gateway.admin_api.resources import configuration
from gateway.inference.running_calls import CallQuery
from gateway.people import personal_data
from gateway.reports import reports as report_service
from gateway.reports.line_pages import LinePage, LinePages
from gateway.reports.usage_report import Report
from gateway.setup.configuration_check import Findings
from gateway.web.piecewise import PIECE
from gateway.web.request_limits import CHECKS, EXPORTS, IMPORTS, REPORTS, RUNNING
from tests.admin_api.client import Answer, Api, NamedActors
from tests.captured_log import logged
from tests.held import Held, held
from tests.polling import until

__all__ = ["held"]

EACH = 2  # places of a request: one of the token, one of all
NAMES = [f"t{number}" for number in range(20)]
ACCOUNTS = {"content": "name,group\nacme,vip\n"}


def actors() -> NamedActors:
    """Twenty tokens that may do everything."""
    return NamedActors(**{name: Actor(kind="token", id=f"tok_{name}", scopes=EVERYTHING) for name in NAMES})


def ask(a: Api, name: str, path: str, *, times: int = 1) -> list[asyncio.Task[Answer]]:
    return [asyncio.create_task(a.ask("GET", path, token=name)) for _ in range(times)]


async def under_way(a: Api, requests: int) -> None:
    await until(lambda: len(a.services.places) == EACH * requests)


async def refused(a: Api, name: str, path: str, text: str) -> None:
    async with asyncio.timeout(20.0):
        answer = await a.ask("GET", path, token=name)
    assert (answer.status, answer.error["code"]) == (429, "rate_limit_exceeded")
    assert text in answer.error["message"] and answer.headers["x-should-retry"] == "true"


@pytest.mark.holds("admin-api.md#reports-statements-and-csv-files-2")
@pytest.mark.parametrize("path", ["/usage", "/usage/csv", "/usage?margin=true"])
async def test_token_has_few_reports_under_way(api, held: Held, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    held.put(monkeypatch, report_service, "_read")
    async with api(actors()) as a:
        waiting = ask(a, "t0", "/usage") + ask(a, "t0", "/usage/csv")
        try:
            await under_way(a, REPORTS.most)
            await refused(a, "t0", path, "You have two reports under way")
            waiting += ask(a, "t1", path)
            await under_way(a, REPORTS.most + 1)
        finally:
            held.go.set()
        assert {answer.status for answer in await asyncio.gather(*waiting)} == {200}
        await under_way(a, 0)


@pytest.mark.holds("admin-api.md#reports-statements-and-csv-files-2")
async def test_all_tokens_together_have_few_reports_under_way(api, held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    held.put(monkeypatch, report_service, "_read")
    most = REPORTS.most_of_site or 0
    async with api(actors()) as a:
        waiting = [task for name in NAMES[: most // 2] for task in ask(a, name, "/usage", times=2)]
        try:
            await under_way(a, most)
            await refused(a, NAMES[-1], "/usage/csv", "Others have reports under way")
        finally:
            held.go.set()
        assert {answer.status for answer in await asyncio.gather(*waiting)} == {200}


@pytest.mark.holds("admin-api.md#reports-statements-and-csv-files-2")
async def test_report_of_a_client_that_left_frees_its_place(
    api, held: Held, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    held.put(monkeypatch, report_service, "_read")
    async with api(actors()) as a:
        waiting = ask(a, "t0", "/usage", times=2)
        try:
            await under_way(a, 2)
            async with aiohttp.ClientSession() as session:
                left = asyncio.create_task(
                    session.get(f"{a.url}/admin/v1/usage", headers={"Authorization": "Bearer t1"})
                )
                await under_way(a, 3)
                left.cancel()
                await under_way(a, 2)
        finally:
            held.go.set()
        assert {answer.status for answer in await asyncio.gather(*waiting)} == {200}
    await logged(capfd, '"path":"/admin/v1/usage","status":499')


@pytest.mark.holds("admin-api.md#reports-statements-and-csv-files-2")
async def test_report_counts_until_its_client_has_it_or_is_cut(api, monkeypatch: pytest.MonkeyPatch) -> None:
    document = {"rows": ["x" * 1000] * 30_000}  # more than the buffers of a connection
    text = json.dumps(document).encode()
    pieces = [text[start : start + PIECE] for start in range(0, len(text), PIECE)]
    monkeypatch.setattr(Report, "json_pieces", lambda report: iter(pieces))
    monkeypatch.setattr(handler, "PIECE_WITHIN", 1.0)
    async with api(actors()) as a:
        address = urlsplit(a.url)
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        writer.write(b"GET /admin/v1/usage HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer t0\r\n\r\n")
        try:
            assert b" 200 " in await reader.readline()
            assert len(a.services.places) == EACH
            await under_way(a, 0)
            with pytest.raises(ConnectionError):
                await reader.read()
        finally:
            writer.close()
        assert await a.get("/usage", token="t0") == document


@pytest.mark.holds("admin-api.md#reports-statements-and-csv-files-2")
async def test_token_has_one_export_under_way_and_all_together_a_few(
    api, held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    held.put(monkeypatch, personal_data, "_usage")
    async with api(actors()) as a:
        user = (await a.post("/users", {"email": "ann@example.com"}, token="t0"))["id"]
        path = f"/users/{user}/export"
        waiting = ask(a, "t0", path)
        try:
            await until(lambda: held.calls == 1)
            await refused(a, "t0", path, "You have an export of personal data under way")
            waiting += ask(a, "t1", path) + ask(a, "t2", path)
            await under_way(a, EXPORTS.most_of_site or 0)
            await refused(a, "t3", path, "Others have exports of personal data under way")
        finally:
            held.go.set()
        assert {answer.status for answer in await asyncio.gather(*waiting)} == {200}


@asynccontextmanager
async def open_imports(a: Api, *names: str, chunked: bool = False) -> AsyncIterator[list[asyncio.StreamWriter]]:
    """Connections with the heads of imports, whose bodies do not come."""
    address = urlsplit(a.url)
    body = "Transfer-Encoding: chunked" if chunked else "Content-Length: 100"
    writers = []
    try:
        for name in names:
            _, writer = await asyncio.open_connection(address.hostname, address.port)
            writers.append(writer)
            head = (
                f"POST /admin/v1/imports/accounts HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {name}\r\n{body}\r\n\r\n"
            )
            writer.write(head.encode())
            await writer.drain()
        yield writers
    finally:
        for writer in writers:
            writer.close()


@pytest.mark.holds("admin-api.md#reports-statements-and-csv-files-2")
async def test_import_counts_from_its_head_until_its_client_leaves(api) -> None:
    async with api(actors()) as a:
        most = IMPORTS.most_of_site or 0
        async with open_imports(a, "t0"):
            await under_way(a, 1)
            for path in ("/imports/accounts", "/imports/keys", "/imports/users"):
                answer = await a.ask("POST", path, ACCOUNTS, token="t0")
                assert answer.status == 429 and "You have an import under way" in answer.error["message"]
            async with open_imports(a, *NAMES[1:most]):
                await under_way(a, most)
                answer = await a.ask("POST", "/imports/accounts", ACCOUNTS, token="t9")
                assert answer.status == 429 and "Others have imports under way" in answer.error["message"]
        await under_way(a, 0)
        assert (await a.ask("POST", "/imports/accounts", ACCOUNTS, token="t0")).status == 200
        await under_way(a, 0)


async def test_import_that_is_refused_or_fails_frees_its_place(api, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(*args: object, **options: object) -> None:
        raise RuntimeError("a bug")

    async with api(actors()) as a:
        async with open_imports(a, "t0", chunked=True) as [writer]:
            await under_way(a, 1)
            with suppress(ConnectionError):  # the server closes it at 16 MiB
                for _ in range(300):
                    writer.write(b"10000\r\n" + b"x" * 65_536 + b"\r\n")
                    await writer.drain()
            await under_way(a, 0)
        assert (await a.ask("POST", "/imports/accounts", raw=b"{", token="t0")).status == 400
        monkeypatch.setattr(AccountAdmin, "move", fails)
        assert (await a.ask("POST", "/imports/accounts", ACCOUNTS, token="t0")).status == 500
        await under_way(a, 0)


@pytest.mark.holds("admin-api.md#reports-statements-and-csv-files-2")
async def test_lists_of_running_calls_are_limited_and_cancellations_are_not(
    api, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = asyncio.Event()
    async with api(actors()) as a:
        list_, running = a.workers.list, a.workers.start("req_running", "acme")

        async def slow(query: CallQuery) -> FoundCalls:
            await go_on.wait()
            return await list_(query)

        monkeypatch.setattr(a.workers, "list", slow)
        waiting = ask(a, "t0", "/calls", times=RUNNING.most)
        try:
            await under_way(a, RUNNING.most)
            await refused(a, "t0", "/calls?limit=5", "You have four lists of running calls under way")
            assert (await a.ask("POST", f"/calls/{running}/cancel", token="t0")).status == 200
            sites = (RUNNING.most_of_site or 0) // RUNNING.most
            waiting += [task for name in NAMES[1:sites] for task in ask(a, name, "/calls", times=RUNNING.most)]
            await under_way(a, RUNNING.most_of_site or 0)
            await refused(a, NAMES[-1], "/calls", "Others have lists of running calls under way")
        finally:
            go_on.set()
        assert {answer.status for answer in await asyncio.gather(*waiting)} == {200}


@pytest.mark.holds("admin-api.md#reports-statements-and-csv-files-2")
async def test_checks_of_the_configuration_and_the_plugins_are_limited(api, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = asyncio.Event()

    async def slow(*args: object) -> Findings:
        await go_on.wait()
        return Findings("")

    monkeypatch.setattr(configuration, "check_in_thread", slow)
    async with api(actors()) as a:
        path = "/configuration/check"
        waiting = [asyncio.create_task(a.ask("POST", path, {}, token="t0")) for _ in range(CHECKS.most)]
        try:
            await under_way(a, CHECKS.most)
            assert (await a.ask("POST", path, {}, token="t0")).status == 429
            await refused(a, "t0", "/plugins", "You have two checks of the configuration")
        finally:
            go_on.set()
        assert {answer.status for answer in await asyncio.gather(*waiting)} == {200}


@pytest.mark.holds("admin-api.md#reports-statements-and-csv-files-3", "security.md#shares-5")
async def test_token_with_many_slow_reads_leaves_turns_to_others(
    api, held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    running, go_on = list[str](), asyncio.Event()

    async def slow(pages: object, actor: Actor, account: str, **rest: object) -> LinePage:
        running.append(actor.id)
        await go_on.wait()
        return LinePage([], None)

    monkeypatch.setattr(LinePages, "page", slow)
    async with api(actors()) as a:
        waiting = ask(a, "t0", "/accounts/acme/lines", times=2 * READS_AT_ONCE)
        try:
            await until(lambda: len(running) == SHARE)
            async with asyncio.timeout(20.0):
                assert (await a.ask("GET", "/accounts/acme", token="t1")).status == 200
                assert (await a.ask("GET", "/openapi.json", token="t0")).status == 200
            assert len(running) == SHARE
        finally:
            go_on.set()
        assert {answer.status for answer in await asyncio.gather(*waiting)} == {200}


@pytest.mark.holds("admin-api.md#reports-statements-and-csv-files-3")
async def test_nearest_name_is_left_out_while_others_are_compared(api, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on, begun = asyncio.Event(), list[str]()

    async def slow(store: object, name: str) -> str:
        begun.append(name)
        await go_on.wait()
        return '; nearest: "acme"'

    monkeypatch.setattr("gateway.admin_api.api.nearest_account", slow)
    async with api(actors()) as a:
        first = asyncio.create_task(a.ask("GET", "/accounts/acne", token="t0"))
        try:
            await until(lambda: begun)
            async with asyncio.timeout(20.0):
                second = await a.ask("GET", "/accounts/acmi", token="t0")
            assert (second.status, second.error["message"]) == (404, "no account 'acmi'")
        finally:
            go_on.set()
        assert (await first).error["message"].endswith('; nearest: "acme"')

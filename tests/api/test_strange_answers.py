"""Lone surrogates, NUL and U+FFFF in the answers of upstreams and in calls: the history imports and shows the lines.

Each string and key of an answer, an event or an error has a lone surrogate and one other text, one at a time.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from argon2 import PasswordHasher

from gateway.accounts.accounts import Accounts
from gateway.config.settings import Settings
from gateway.database.address import DatabaseAddress
from gateway.database.engine import Database
from gateway.history.sql_thread import SqlThread
from gateway.ledger import Ledger
from gateway.metrics import Metrics
from gateway.people.password_hashes import PasswordHashes
from gateway.runtime.gateway import Gateway
from gateway.testing import FakeUpstream, Reply
from tests.api.conftest import Client, settled
from tests.api.rich_requests import REQUESTS, rich_settings
from tests.console.client import ROOT
from tests.console.opening import opened_console
from tests.databases import database, database_address
from tests.history.importing import Importing
from tests.providers import converse_dialect
from tests.reports.endpoints import BODIES, CHAT
from tests.reports.test_bodies_unusual_chats import EVENTS, WHOLE
from tests.strange_texts import STRANGE, places, with_text

__all__ = ["database", "database_address"]

JSON = {"Content-Type": "application/json"}
ERROR = {
    "error": {"message": "No.", "type": "invalid_request_error", "param": "messages", "code": "bad", "status": "X"}
}
TOOL_CALLS = [{"id": "call_1", "type": "function", "function": {"name": "tide", "arguments": "{}"}}]
#: Answers of OpenAI's dialect with more texts.
RICH = {
    **WHOLE["openai"],
    "service_tier": "default",
    "system_fingerprint": "fp",
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "Hi", "refusal": "No", "tool_calls": TOOL_CALLS},
            "finish_reason": "tool_calls",
        }
    ],
}

pytestmark = [pytest.mark.usefixtures("plain_labels"), pytest.mark.no_standard]


@pytest.fixture
def settings(tmp_path: Path, upstream: FakeUpstream) -> Settings:
    """Models of each endpoint and dialect, and tags."""
    return rich_settings(upstream, tmp_path)


@pytest.fixture
def sql() -> Iterator[SqlThread]:
    """The thread of the database calls."""
    thread = SqlThread()
    yield thread
    thread.close()


def strange(document: Any, *, turn: int = 0) -> Iterator[bytes]:
    """The document with a lone surrogate, and one other text in turn, in each place."""
    first, *others = STRANGE.values()
    for number, place in enumerate(places(document), turn):
        yield with_text(document, place, first)
        yield with_text(document, place, others[number % len(others)])


def events_with(frames: list[bytes]) -> Iterator[list[bytes]]:
    """The stream with those texts in the documents of its events, and in their names."""
    for at, frame in enumerate(frames):
        head, mark, data = frame.rpartition(b"data: ")
        if data.startswith(b"{"):
            for text in strange(json.loads(data), turn=at):
                yield [*frames[:at], head + mark + text + b"\n\n", *frames[at + 1 :]]


async def ask(client: Client, session: aiohttp.ClientSession, document: dict[str, Any]) -> int:
    """The status of a chat call, once its answer was read."""
    try:
        async with session.post(client.base_url + CHAT, json=document, headers=client.headers) as response:
            await response.read()
            return response.status
    except aiohttp.ClientPayloadError:
        return 200  # a stream that was cut


@pytest.mark.parametrize("dialect", [*WHOLE, "rich"])
async def test_strange_text_in_any_place_of_an_answer_is_no_failure(
    client: Client, upstream: FakeUpstream, accounts: Accounts, ledger: Ledger, dialect: str
) -> None:
    model, answer = ("chat-openai", RICH) if dialect == "rich" else (f"chat-{dialect}", WHOLE[dialect])
    async with aiohttp.ClientSession() as session:
        for body in strange(answer):
            upstream.enqueue(Reply(headers=JSON, body=body))
            assert await ask(client, session, {"model": model, **BODIES[CHAT]}) in (200, 502), body
    await assert_right(accounts, ledger)


@pytest.mark.parametrize("dialect", EVENTS)
async def test_strange_text_in_any_place_of_a_stream_is_no_failure(
    client: Client, upstream: FakeUpstream, accounts: Accounts, ledger: Ledger, dialect: str
) -> None:
    async with aiohttp.ClientSession() as session:
        for frames in events_with(EVENTS[dialect]):
            upstream.enqueue(Reply(headers={"Content-Type": "text/event-stream"}, frames=frames))
            document = {"model": f"chat-{dialect}", **BODIES[CHAT], "stream": True}
            assert await ask(client, session, document) in (200, 502), frames
    await assert_right(accounts, ledger)


@pytest.mark.parametrize("kind", [":event-type", ":exception-type"])
async def test_strange_text_in_any_place_of_a_stream_of_bedrock_is_no_failure(
    client: Client, upstream: FakeUpstream, accounts: Accounts, ledger: Ledger, kind: str
) -> None:
    """In the documents of its frames, and in the headers of the frames."""
    fields: list[tuple[str, Any]] = converse_dialect.document("tools.events")
    frames = [converse_dialect.event(name, **members) for name, members in fields]
    document = {"model": "chat-bedrock", **BODIES[CHAT], "stream": True}
    type_ = kind.strip(":").removesuffix("-type")
    async with aiohttp.ClientSession() as session:
        for at, (name, members) in enumerate(fields):
            rest = {":content-type": "application/json", ":message-type": type_}
            headers = [{kind: name, **rest}, {kind: f"{name}\0\uffff", **rest}, {kind: name, **rest, ":x": "\0"}]
            changed = [converse_dialect.frame(headers[0], text) for text in strange(members, turn=at)]
            changed += [converse_dialect.frame(one, json.dumps(members).encode()) for one in headers]
            for one in changed:
                upstream.enqueue(converse_dialect.streamed(*frames[:at], one, *frames[at + 1 :]))
                assert await ask(client, session, document) in (200, 400, 429, 502, 503), one
    await assert_right(accounts, ledger)


@pytest.mark.parametrize("status", [400, 404, 429, 500])
@pytest.mark.parametrize("dialect", WHOLE)
async def test_strange_text_in_any_place_of_an_error_is_no_failure(
    client: Client, upstream: FakeUpstream, accounts: Accounts, ledger: Ledger, dialect: str, status: int
) -> None:
    async with aiohttp.ClientSession() as session:
        for document in (ERROR, {"type": "error", "message": "No."}):
            for body in strange(document):
                upstream.enqueue(Reply(status=status, headers=JSON, body=body))
                answered = await ask(client, session, {"model": f"chat-{dialect}", **BODIES[CHAT]})
                assert answered in (400, 404, 429, 502, 503), (answered, body)
    await assert_right(accounts, ledger)


async def assert_right(accounts: Accounts, ledger: Ledger) -> None:
    """The money of all calls is."""
    await settled(accounts)
    assert (await ledger.audit()).mismatches == []


async def many_calls(client: Client, upstream: FakeUpstream) -> None:
    """Calls with strange texts of callers and of upstreams, of every endpoint."""
    headers = {**client.headers, "X-Session-Id": "s\xe9", "User-Agent": "\xff"}
    async with aiohttp.ClientSession(headers=headers) as session:
        for path, document in REQUESTS.values():
            for text in (STRANGE["first surrogate"], STRANGE["NUL"], STRANGE["U+FFFF"]):
                for place in [place for place in places(document) if place[0] in ("metadata", "user", "labels")]:
                    data = io.BytesIO(with_text(document, place, text))
                    async with session.post(client.base_url + path, data=data) as response:
                        await response.read()
        for dialect, answer in (*WHOLE.items(), ("openai", RICH)):
            for body in strange(answer):
                upstream.enqueue(Reply(headers=JSON, body=body))
                await ask(client, session, {"model": f"chat-{dialect}", **BODIES[CHAT]})
        for body in strange(ERROR):
            upstream.enqueue(Reply(status=400, headers=JSON, body=body))
            await ask(client, session, {"model": "chat-openai", **BODIES[CHAT]})


def is_unicode(text: str) -> bool:
    """Whether the text has no lone surrogate."""
    return text.encode("utf-8", "replace").decode() == text


@pytest.fixture
def hashes() -> Iterator[PasswordHashes]:
    """Hashes that cost little."""
    hashes = PasswordHashes(PasswordHasher(time_cost=1, memory_cost=8, parallelism=1))
    yield hashes
    hashes.close()


async def test_lines_of_calls_with_strange_texts_are_imported_and_shown(
    client: Client, gateway: Gateway, accounts: Accounts, upstream: FakeUpstream, sql: SqlThread, database: Database,
    database_address: DatabaseAddress, valkey: Path, tmp_path: Path, hashes: PasswordHashes,
) -> None:  # fmt: skip
    await many_calls(client, upstream)
    await settled(accounts)
    await gateway.settlement.drain()
    importing = Importing(SimpleNamespace(store=gateway.store, ledger=gateway.ledger), database, sql, Metrics())  # type: ignore[arg-type]
    await importing.all("acme")
    await importing.same()
    lines = importing.lines()
    assert len(lines) > 200
    assert not [line for line in lines if "\0" in line.meta_text or not is_unicode(line.meta_text)]
    url = "" if database_address.file else database_address.url.replace("postgresql+psycopg://", "postgresql://")
    (tmp_path / "var").symlink_to(tmp_path)  # where the console has its database
    async with opened_console(valkey, tmp_path, hashes, database_url=url) as c:
        browser = await c.as_("root", role="operator", acme="owner")
        begin = (datetime.now(UTC) - timedelta(days=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
        for kind in ("account", "user", "key", "model", "provider", "endpoint", "outcome", "tag", "hour"):
            status, document = await c.ask_api(["read"], "GET", f"/usage?group_by={kind}&from={begin}")
            assert status == 200, (kind, document)
        token = await (await c.services.people()).tokens.create(ROOT, "a program", ["read"])
        api = await c.browser()
        headers = {"Authorization": f"Bearer {token.text}"}
        table = await api.get(f"/admin/v1/usage/csv?group_by=model&from={begin}", headers=headers)
        assert len(table.html.splitlines()) > 5
        for path in (
            "/accounts/acme/usage", "/accounts/acme/usage.csv", "/accounts/acme/reports", "/accounts/acme/reports.csv",
            "/accounts/acme/reports.json", "/accounts/acme", "/site/calls", "/site/ledger/acme",
        ):  # fmt: skip
            (await browser.get(path)).body.decode()
        for line in [line for line in lines if line.kind == "use"][::25]:
            shown = await browser.get(f"/accounts/acme/usage/{line.request_id}")
            assert line.request_id in shown.text
            status, document = await c.ask_api(["read"], "GET", f"/calls/{line.request_id}")
            assert status == 200, document

"""`GET /v1/usage`: the query, and what is asked of the console process."""

from __future__ import annotations

import asyncio
import json
import stat
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.accounts.keys import Keys
from gateway.config.settings import Settings
from gateway.errors import InvalidValue
from gateway.history.usage_question import UsageQuestion
from gateway.runtime.local_socket import NOTE, LocalServer
from tests.polling import until

from .conftest import Client

Answer = Callable[[UsageQuestion], Awaitable[Any]]


@asynccontextmanager
async def console(settings: Settings, answer: Answer) -> AsyncIterator[None]:
    """A console process whose answers are made by `answer`."""

    async def answers(name: str, payload: bytes) -> bytes:
        assert name == "usage"
        return msgspec.json.encode(await answer(msgspec.msgpack.decode(payload, type=UsageQuestion)))

    settings.data_dir.mkdir(exist_ok=True)
    server = LocalServer(settings.data_dir, answers)
    await server.start()
    try:
        yield
    finally:
        await server.close()


async def get(client: Client, query: str = "") -> tuple[int, Any]:
    async with client.request("GET", f"/v1/usage{query}") as response:
        return response.status, json.loads(await response.read())


async def test_question_has_the_account_of_the_key_and_the_query(client: Client, settings: Settings) -> None:
    asked: list[UsageQuestion] = []

    async def answer(question: UsageQuestion) -> Any:
        asked.append(question)
        return {"object": "usage"}

    async with console(settings, answer):
        status, document = await get(client, "?from=2026-10-01&to=2026-10-31T00:00:00Z&group_by=day,model")
        assert (status, document) == (200, {"object": "usage"})
        assert (await get(client))[0] == 200
        assert (await get(client, "/"))[0] == 200  # a slash makes no difference
    first, default, *_ = asked
    assert (first.account, first.user, list(first.group_by)) == ("acme", "", ["day", "model"])
    assert (first.until - first.since) == 30 * 86_400 * 1_000_000
    assert (list(default.group_by), default.until - default.since) == (["day"], 30 * 86_400 * 1_000_000)


async def test_key_of_a_member_asks_for_the_calls_of_its_user_only(
    client: Client, settings: Settings, keys: Keys, bearer: dict[str, str]
) -> None:
    asked: list[UsageQuestion] = []

    async def answer(question: UsageQuestion) -> Any:
        asked.append(question)
        return {}

    new = await keys.create("acme", user="usr_1")
    async with (
        console(settings, answer),
        client.request("GET", "/v1/usage", headers={"Authorization": f"Bearer {new.text}"}) as response,
    ):
        assert response.status == 200
    assert [(question.key, question.user) for question in asked] == [(new.id, "usr_1")]


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("?from=yesterday", "from"),
        ("?from=2026-10-02&to=2026-10-01", "to"),
        ("?from=2020-01-01&to=2026-10-01", "from"),
        ("?from=2026-08-01&to=2026-10-01&group_by=hour", "from"),
        ("?group_by=provider", "group_by"),
        ("?group_by=day,hour", "group_by"),
        ("?account=umbra", "account"),
        ("?from=2026-10-01%00", "from"),
        ("?group_by=model%00", "group_by"),
    ],
)
async def test_wrong_query_is_refused_without_a_question(client: Client, query: str, param: str) -> None:
    status, document = await get(client, query)
    assert (status, document["error"]["param"]) == (400, param)


async def test_answer_without_a_console_is_503_and_its_errors_are_passed_on(client: Client, settings: Settings) -> None:
    status, document = await get(client)
    assert (status, document["error"]["code"]) == (503, "service_unavailable")

    async def refuse(question: UsageQuestion) -> Any:
        raise InvalidValue("too many rows", param="group_by")

    async def fail(question: UsageQuestion) -> Any:
        raise ValueError("secret")

    async with console(settings, refuse):
        status, document = await get(client)
        assert (status, document["error"]["message"], document["error"]["param"]) == (400, "too many rows", "group_by")
    async with console(settings, fail):
        status, document = await get(client)
        assert (status, "secret" in str(document)) == (503, False)


async def test_account_has_two_questions_at_once_and_a_third_is_refused(client: Client, settings: Settings) -> None:
    waiting, go = 0, asyncio.Event()

    async def answer(question: UsageQuestion) -> Any:
        nonlocal waiting
        waiting += 1
        await go.wait()
        return {}

    async with console(settings, answer):
        first = [asyncio.create_task(get(client)) for _ in range(2)]
        await until(lambda: waiting == 2)
        status, document = await get(client)
        assert (status, document["error"]["code"]) == (429, "concurrency_limit_exceeded")
        go.set()
        assert [status for status, _ in await asyncio.gather(*first)] == [200, 200]


async def nothing(name: str, payload: bytes) -> bytes:
    return b""


async def test_socket_is_only_for_this_user_also_below_a_long_path(tmp_path: Path, settings: Settings) -> None:
    for folder in (tmp_path, tmp_path / ("x" * 120)):
        folder.mkdir(exist_ok=True)
        server = LocalServer(folder, nothing)
        await server.start()
        path = Path((folder / NOTE).read_text().strip())
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        await server.close()

"""What a request body may cost a worker: memory, disk, and the time of its event loop."""

from __future__ import annotations

import asyncio
import gzip
import io
import json
import random
import time
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from msgspec import structs

from gateway.accounts.accounts import Accounts
from gateway.accounts.key_record import CreatedKey
from gateway.accounts.keys import Keys
from gateway.amounts import NANO
from gateway.log import AccessLine
from gateway.runtime.gateway import Gateway
from gateway.testing import FakeUpstream
from tests.hostile.raw import RawClient, connection
from tests.polling import until

from .conftest import Client

CHAT = "/v1/chat/completions"
FORM = "/v1/audio/transcriptions"
MIB = 1 << 20
LONGEST_HOLD = 0.15  # seconds that a body may hold the loop here; docs/operations/network.md has the measured figure


@pytest.fixture
def address(client: Client) -> tuple[str, int]:
    """Where the gateway listens."""
    return "127.0.0.1", int(client.base_url.rpartition(":")[2])


def chat_body(content: str) -> bytes:
    return json.dumps({"model": "m1", "messages": [{"role": "user", "content": content}]}).encode()


def head(path: str, headers: dict[str, str], length: int, **more: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: x", *(f"{name}: {value}" for name, value in {**headers, **more}.items())]
    return ("\r\n".join([*lines, f"Content-Length: {length}"]) + "\r\n\r\n").encode()


async def post(client: Client, body: bytes, **headers: str) -> tuple[int, dict[str, Any]]:
    async with client.request("POST", CHAT, headers={**client.headers, **headers}, data=io.BytesIO(body)) as response:
        return response.status, await response.json()


# gzip ----------------------------------------------------------------------------------------------------------------


def compressible(size: int) -> str:
    """Text of which gzip makes about a sixtieth."""
    words, chance = "a line of a report that repeats itself " * 13, random.Random(1)
    return "".join(f"{words}{chance.randrange(2**32):08x}\n" for _ in range(size // len(words)))


@pytest.mark.holds("operations/network.md#request-bodies-1")
async def test_gzip_body_of_a_revoked_key_is_inflated_to_64_kib_at_most(
    client: Client, keys: Keys, api_key: CreatedKey, upstream: FakeUpstream
) -> None:
    body = gzip.compress(chat_body(compressible(3 * MIB)))
    assert len(body) < 65_536
    await client.chat()  # the worker knows the key now
    await keys.revoke(api_key.id)
    tracemalloc.start()
    try:
        status, _ = await post(client, body, **{"Content-Encoding": "gzip"})
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert status == 401
    assert peak < 2 * MIB, f"{peak / MIB:.1f} MiB"
    assert len(upstream.seen) == 1


async def test_gzip_body_that_inflates_like_real_text_is_accepted(client: Client, upstream: FakeUpstream) -> None:
    content = compressible(3 * MIB)
    status, _ = await post(client, gzip.compress(chat_body(content)), **{"Content-Encoding": "gzip"})
    assert status == 200
    assert upstream.seen[0].json["messages"][0]["content"] == content


@pytest.mark.holds("operations/network.md#request-bodies-2")
async def test_gzip_body_more_than_a_hundred_times_its_size_is_refused(client: Client, upstream: FakeUpstream) -> None:
    status, answer = await post(client, gzip.compress(chat_body("x" * 8 * MIB)), **{"Content-Encoding": "gzip"})
    assert (status, answer["error"]["code"]) == (413, "request_too_large")
    assert not upstream.seen


async def test_small_gzip_body_may_have_any_ratio(client: Client, upstream: FakeUpstream) -> None:
    status, _ = await post(client, gzip.compress(chat_body("x" * 60_000)), **{"Content-Encoding": "gzip"})
    assert status == 200


@pytest.mark.parametrize("rest", [b"\0", gzip.compress(b"{}", mtime=0)], ids=["a byte", "another member"])
async def test_bytes_after_a_compressed_json_body_are_refused(
    client: Client, upstream: FakeUpstream, rest: bytes
) -> None:
    status, answer = await post(client, gzip.compress(chat_body("Hi")) + rest, **{"Content-Encoding": "gzip"})
    assert (status, answer["error"]["code"]) == (400, "invalid_json")
    assert not upstream.seen


# Budgets -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def small_budgets(gateway: Gateway) -> Gateway:
    """A worker with room for 3 MiB of bodies, 2 MiB of one account."""
    limits = structs.replace(
        gateway.settings.server.limits,
        max_bodies=3 * MIB,
        max_account_bodies=2 * MIB,
        max_spool=3 * MIB,
        max_account_spool=2 * MIB,
    )
    server = structs.replace(gateway.settings.server, limits=limits)
    gateway._use(structs.replace(gateway.settings, server=server), gateway.catalog, gateway.router)
    return gateway


@asynccontextmanager
async def unfinished(address: tuple[str, int], start: bytes) -> AsyncIterator[RawClient]:
    """A request whose body does not end."""
    async with connection(address) as raw:
        await raw.send(start)
        yield raw


async def bearer_of(accounts: Accounts, keys: Keys, name: str) -> dict[str, str]:
    await accounts.create(name, balance=NANO)
    return {"Authorization": f"Bearer {(await keys.create(name)).text}", "Content-Type": "application/json"}


@pytest.mark.holds("operations/network.md#request-bodies-4")
async def test_unfinished_bodies_of_an_account_are_refused_beyond_its_budget(
    address: tuple[str, int], bearer: dict[str, str], small_budgets: Gateway, client: Client
) -> None:
    memory = small_budgets.bodies.memory
    async with AsyncExitStack() as stack:
        start = head(CHAT, bearer, 2 * MIB) + b"x" * (MIB - 1000)
        first = await stack.enter_async_context(unfinished(address, start))
        await stack.enter_async_context(unfinished(address, start))
        await until(lambda: memory.used == 2 * (MIB - 1000))
        third = await stack.enter_async_context(unfinished(address, start))
        answer = await third.read()
        assert answer is not None
        assert (answer.status, answer.error["code"]) == (429, "concurrency_limit_exceeded")
        assert answer.headers["retry-after"] == "1"
        assert (await client.chat())[0].status == 200, "a small request needs no room"
        first.reset()
        await until(lambda: memory.used == MIB - 1000)
        assert (await post(client, chat_body("x" * 500_000)))[0] == 200
    await until(lambda: memory.used == 0)


@pytest.mark.holds("operations/network.md#request-bodies-4")
async def test_bodies_of_all_accounts_are_refused_beyond_the_workers_budget(
    address: tuple[str, int], bearer: dict[str, str], small_budgets: Gateway, accounts: Accounts, keys: Keys
) -> None:
    memory = small_budgets.bodies.memory
    other = await bearer_of(accounts, keys, "other")
    async with AsyncExitStack() as stack:
        for headers in (bearer, bearer, other):
            start = head(CHAT, headers, 2 * MIB) + b"x" * (MIB - 1000)
            await stack.enter_async_context(unfinished(address, start))
        await until(lambda: memory.used == 3 * (MIB - 1000))
        refused = await stack.enter_async_context(unfinished(address, head(CHAT, other, MIB) + b"x" * (MIB - 1000)))
        answer = await refused.read()
        assert answer is not None
        assert (answer.status, answer.error["code"]) == (503, "server_is_overloaded")
    await until(lambda: memory.used == 0)


@pytest.mark.parametrize("length", [60_000, 0])
async def test_small_unfinished_bodies_count_in_the_budget(
    address: tuple[str, int], bearer: dict[str, str], small_budgets: Gateway, length: int
) -> None:
    memory = small_budgets.bodies.memory
    start = head(CHAT, bearer, 60_000) + b"x" * 50_000
    if not length:
        start = start.replace(b"Content-Length: 60000", b"Transfer-Encoding: chunked").replace(
            b"\r\n\r\n", b"\r\n\r\nea60\r\n"
        )
    async with unfinished(address, start):
        assert await until(lambda: memory.used == 50_000)
    assert await until(lambda: memory.used == 0)


async def test_inflated_bytes_count_in_the_budget(client: Client, small_budgets: Gateway) -> None:
    body = gzip.compress(chat_body(compressible(3 * MIB)))
    status, answer = await post(client, body, **{"Content-Encoding": "gzip"})
    assert (status, answer["error"]["code"]) == (429, "concurrency_limit_exceeded")
    await until(lambda: small_budgets.bodies.memory.used == 0)


@pytest.mark.holds("operations/network.md#request-bodies-5")
async def test_unfinished_uploads_of_an_account_are_refused_beyond_its_share_of_the_disk(
    address: tuple[str, int], bearer: dict[str, str], small_budgets: Gateway
) -> None:
    disk = small_budgets.bodies.disk
    headers = {**bearer, "Content-Type": "multipart/form-data; boundary=edge"}
    part = b'--edge\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n'
    start = head(FORM, headers, 3 * MIB) + part + bytes(MIB)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(unfinished(address, start))
        await until(lambda: disk.used > MIB // 2)
        await stack.enter_async_context(unfinished(address, start))
        await until(lambda: disk.used > MIB)
        third = await stack.enter_async_context(unfinished(address, start + bytes(MIB)))
        answer = await third.read()
        assert answer is not None
        assert (answer.status, answer.error["code"]) == (429, "concurrency_limit_exceeded")
    await until(lambda: disk.used == small_budgets.bodies.files.used == small_budgets.bodies.memory.used == 0)


# The time of the event loop ------------------------------------------------------------------------------------------


async def longest_hold(work: Any) -> float:
    """Seconds of CPU time in one turn of the event loop, at most, while `work` ran; other processes do not count."""
    longest, running = 0.0, True

    async def watch() -> None:
        nonlocal longest
        before = time.thread_time()
        while running:
            await asyncio.sleep(0)
            now = time.thread_time()
            longest, before = max(longest, now - before), now

    watching = asyncio.create_task(watch())
    try:
        await work
    finally:
        running = False
        await watching
    return longest


def chat_text(messages: bytes, more: bytes = b"") -> bytes:
    return b'{"model":"nobody has it","messages":[%b]%b}' % (messages, more)


HI = b'{"role":"user","content":"Hi"}'
PART = b'{"type":"text","text":""}'
# A body is made by its test: all of them take 250 MB.
DENSE = {
    "32 MiB of empty parts": lambda: chat_text(b'{"role":"user","content":[%b]}' % b",".join([PART] * 1_250_000)),
    "32 MiB of small messages": lambda: chat_text(b",".join([HI] * 1_050_000)),
    "32 MiB of numbers": lambda: chat_text(HI, b',"x":[%b]' % b",".join([b"1"] * 16_000_000)),
    "1 MiB of unknown objects": lambda: chat_text(HI, b',"x":[%b]' % b",".join([b"{}"] * 345_000)),
    "1 MiB of bad messages": lambda: chat_text(b",".join([HI] * 33_000) + b',{"role":"user"}'),
    "1 MiB of parts": lambda: chat_text(b'{"role":"user","content":[%b]}' % b",".join([PART] * 39_000)),
    "32 MiB of brackets": lambda: b'{"model":"m1","messages":' + b"[" * 33_000_000,
    "32 MiB of one text": lambda: chat_text(b'{"role":"user","content":"%b"}' % (b"x" * 33_000_000)),
    "32 MiB of texts that are not ASCII": lambda: chat_text(
        b",".join([b'{"role":"user","content":"%b"}' % ("é€ " * 5_000).encode()] * 1_080)
    ),
    "32 MiB of backslashes": lambda: chat_text(b'{"role":"user","content":"%b"}' % (b"\\\\" * 16_000_000)),
}


# Those of 32 MiB with many values take the longest; a quick run has the others.
QUICK = {
    "1 MiB of unknown objects",
    "1 MiB of bad messages",
    "1 MiB of parts",
    "32 MiB of brackets",
    "32 MiB of one text",
}


@pytest.mark.holds("operations/network.md#request-bodies-3")
@pytest.mark.parametrize("case", [pytest.param(one, marks=() if one in QUICK else pytest.mark.slow) for one in DENSE])
async def test_dense_body_does_not_hold_the_event_loop(
    address: tuple[str, int], bearer: dict[str, str], gateway: Gateway, case: str
) -> None:
    body = DENSE[case]()
    status = 0

    async def work() -> None:
        nonlocal status
        async with connection(address) as raw:
            await raw.send(head(CHAT, bearer, len(body)))
            for start in range(0, len(body), MIB):
                await raw.send(body[start : start + MIB])
            answer = await raw.read()
            status = answer.status if answer is not None else 0

    held = await longest_hold(work())
    for _ in range(2):  # a busy neighbour of this processor makes a turn longer, and never shorter
        if held < LONGEST_HOLD:
            break
        held = min(held, await longest_hold(work()))
    assert status in (400, 403)
    print(f"{case}: {held * 1000:.0f} ms")
    assert held < LONGEST_HOLD


class OtherClient:
    """The client of another account, which has its turn."""

    client_gone = False


@pytest.mark.parametrize("size", [100_000, 400_000], ids=["to be decoded", "to be examined"])
async def test_body_of_a_client_that_leaves_gives_up_its_turn(
    address: tuple[str, int],
    bearer: dict[str, str],
    gateway: Gateway,
    monkeypatch: pytest.MonkeyPatch,
    size: int,
) -> None:
    decoded: list[int] = []
    access: list[AccessLine] = []
    monkeypatch.setattr("gateway.api.endpoints.chat.ChatEndpoint.decode", lambda *rest: decoded.append(1))
    monkeypatch.setattr(gateway.access_log, "write", access.append)
    paced, memory, body = gateway.paced_steps, gateway.bodies.memory, chat_body("x" * size)
    async with (
        paced.turn("other", OtherClient()),
        unfinished(address, head(CHAT, bearer, len(body)) + body) as raw,
    ):
        await until(lambda: len(paced._waiting) == 2)
        raw.reset()
        await until(lambda: memory.used == 0)
    assert [(line.status, line.outcome) for line in access] == [(499, "client_closed")]
    assert not decoded


async def test_message_with_too_many_parts_is_refused(client: Client) -> None:
    parts = [{"type": "text", "text": ""}] * 5_001
    response, answer = await client.chat(messages=[{"role": "user", "content": parts}])
    assert response.status == 400
    assert answer["error"]["code"] == "array_above_max_length"
    assert answer["error"]["param"] == "messages[0].content"

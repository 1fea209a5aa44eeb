"""The same attacks on `/v1`, on the admin API and on the pages: refused in time, in little memory, nothing changed.

Other modules of this folder are about one of them. Forms with files (`test_forms`), image addresses
(`test_request_forgery`) and answers of plugins (`test_poison_…`, `test_typed_errors`) are matters of `/v1`: the console
takes no files, and what it sends to models goes through `/v1`. It has access matrices of its own:
`tests/console/test_access.py` and `tests/admin_api/test_access.py`. A crowd of unfinished heads before each port is in
`tests/reports/test_crowd_of_unfinished_heads.py`.
"""

from __future__ import annotations

import asyncio
import resource
import socket
import tracemalloc
import zlib
from collections.abc import Iterator
from dataclasses import replace

import pytest
from msgspec import structs

from gateway.config.settings import Settings
from gateway.http_server.connection_limit import ANSWERED_AT_ONCE
from gateway.runtime.client_limits import CONSOLE_CONNECTIONS
from gateway.runtime.descriptors import raise_limit
from tests.console.conftest import console, database_url, hashes
from tests.http_server.test_refusals import MALFORMED
from tests.polling import until
from tests.quick import examples

from .garbage import BAD_JSON, Forge, garbage
from .raw import connection, send_garbage
from .surfaces import Open, Surface, admin_api, open_console, open_v1, pages

__all__ = ["console", "database_url", "hashes"]

SURFACES = ("/v1", "admin API", "pages")
DIALECTS = (
    "/v1/completions", "/v1/responses", "/v1/responses/input_tokens", "/v1/messages", "/v1/messages/count_tokens",
    "/v1beta/models/m1:generateContent", "/v1beta/models/m1:streamGenerateContent?alt=sse",
    "/v1beta/models/m1:countTokens", "/v1beta/models/m1:embedContent", "/openai/deployments/m1/chat/completions",
    "/v1/batches",
)  # fmt: skip
IDLE = 1_500
CROWD = ("127.0.0.2", "127.0.0.3", "127.0.0.4")
OTHER = "127.0.0.9"
POST_TO_ROOT = b"POST / HTTP/1.1\r\nHost: x\r\n"
PROMPT = {"header_timeout": 0.3, "body_idle_timeout": 0.3, "keepalive_timeout": 0.6, "min_body_rate": 1000}


#: On every surface, and on the paths of each dialect.
in_every_dialect = pytest.mark.parametrize("surface", SURFACES + DIALECTS, indirect=True)


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Bodies of `/v1` are small, and batches are served."""
    limits = structs.replace(settings.server.limits, max_json_body=2**21)
    batches = structs.replace(settings.batches, enabled=True)
    return structs.replace(settings, server=structs.replace(settings.server, limits=limits), batches=batches)


@pytest.fixture(params=SURFACES)
def surface(request: pytest.FixtureRequest) -> Open:
    """Opens one of the surfaces with some `ServerLimits`; a path is one of `/v1`, for a dialect."""
    if request.param.startswith("/"):
        key = request.getfixturevalue("api_key").text
        forge = Forge.of_key(key)
        if request.param != "/v1":
            forge = replace(forge, target=request.param.encode())
        return open_v1(request.getfixturevalue("gateway"), request.getfixturevalue("upstream"), forge)
    return open_console(request.getfixturevalue("console"), admin_api if request.param == "admin API" else pages)


@pytest.fixture
def descriptors() -> Iterator[None]:
    """Both ends of many connections are in this process."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    raise_limit()
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


async def serves(attacked: Surface, source: str = OTHER) -> None:
    """A good request is answered."""
    async with connection(attacked.address, source) as client:
        await client.send(attacked.forge.get())
        answer = await client.read()
        assert answer is not None and answer.status == 200, answer


@in_every_dialect
async def test_malformed_requests_are_refused_and_change_nothing(surface: Open) -> None:
    async with surface() as attacked:
        before = await attacked.state()
        cases = garbage(examples(168), attacked.forge)
        assert await send_garbage(attacked.address, cases, attacked.refused) == examples(168)
        assert await attacked.state() == before
        await serves(attacked)


@in_every_dialect
async def test_nothing_is_smuggled_behind_a_malformed_request(surface: Open) -> None:
    async with surface() as attacked:
        smuggled, start = attacked.forge.get(), attacked.forge.head()[:-2]
        for name, data in MALFORMED.items():
            if name == "bad Host":  # it is about the host and not about the end of a request; `/v1` has no use for it
                continue
            async with connection(attacked.address) as client:
                await client.send(data.replace(POST_TO_ROOT, start) + smuggled)
                assert [answer.status for answer in await client.read_all()] == [400], name
        await serves(attacked)


@in_every_dialect
async def test_body_of_a_refused_request_is_not_taken_for_the_next_request(surface: Open) -> None:
    async with surface() as attacked:
        smuggled = attacked.forge.get()
        stranger = b"POST " + attacked.forge.target + b" HTTP/1.1\r\nHost: x\r\n"
        bodies = (
            b"Content-Length: %d\r\n\r\n%b" % (len(smuggled), smuggled),
            b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(smuggled), smuggled),
        )
        for body in bodies:
            async with connection(attacked.address) as client:
                await client.send(stranger + body + attacked.forge.get(close=True))
                statuses = [answer.status for answer in await client.read_all()]
                assert statuses in ([401], [303], [401, 200], [303, 200]), body


@in_every_dialect
async def test_heads_and_bodies_that_never_arrive_are_408(surface: Open) -> None:
    async with surface(**PROMPT) as attacked:
        forge = attacked.forge
        starts = [
            forge.head(b"Content-Length: 100"),
            forge.head(b"Content-Length: 100") + b"{",
            forge.chunked(b""),
            forge.chunked(b"5\r\nab"),
            forge.head()[:10],
            forge.head()[:-4],
        ]

        async def stall(start: bytes) -> None:
            async with connection(attacked.address) as client:
                await client.send(start)
                [answer] = await client.read_all()
                attacked.refused(answer)
                assert (answer.status, answer.error["code"]) == (408, "request_timeout"), start

        await asyncio.gather(*(stall(start) for start in starts * 2))
        await serves(attacked)


async def test_heads_and_bodies_that_drip_are_408(surface: Open) -> None:
    async with surface(**PROMPT) as attacked:

        async def drip(start: bytes, rest: bytes) -> None:
            async with connection(attacked.address) as client:
                await client.send(start)
                reading = asyncio.create_task(client.read())
                for byte in rest:
                    await client.send(bytes([byte]))
                    if (await asyncio.wait({reading}, timeout=0.05))[0]:
                        break
                answer = await reading
                assert answer is not None and answer.status == 408, start

        forge = attacked.forge
        long = b"a" * 400
        await asyncio.gather(drip(forge.head()[:-2], b"A: " + long), drip(forge.head(b"Content-Length: 9999"), long))


async def test_silent_and_idle_connections_are_closed_without_an_answer(surface: Open) -> None:
    async with surface(**PROMPT) as a, connection(a.address) as silent, connection(a.address) as idle:
        await idle.send(a.forge.get())
        answer = await idle.read()
        assert answer is not None and answer.status == 200
        assert await asyncio.gather(silent.read_all(), idle.read_all()) == [[], []]


async def test_body_over_the_limit_is_413_before_it_has_arrived(surface: Open) -> None:
    async with surface() as attacked:
        forge, media = attacked.forge, b"Content-Type: " + attacked.forge.media
        length = b"Content-Length: %d" % (attacked.most + 1)
        for lines in ([length], [length, b"Expect: 100-continue"]):
            async with connection(attacked.address) as client:
                await client.send(forge.head(media, *lines))
                answer = await client.read()
                assert answer is not None and answer.status == 413
                attacked.refused(answer)
        async with connection(attacked.address) as client:
            await client.send(forge.chunked(b""))
            chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
            for _ in range(attacked.most // 0x10000 + 1):
                await client.send(chunk)
            answer = await client.read()
            assert answer is not None and answer.status == 413
            attacked.refused(answer)


async def test_compressed_body_takes_little_memory(surface: Open) -> None:
    squeeze = zlib.compressobj(9, wbits=31)
    bomb = squeeze.compress(b" " * 20_000_000) + squeeze.flush()
    async with surface() as attacked, connection(attacked.address) as client:
        await serves(attacked)
        tracemalloc.start()
        try:
            await client.send(attacked.forge.post(bomb, b"Content-Encoding: gzip"))
            answer = await client.read()
            assert tracemalloc.get_traced_memory()[1] < 4_000_000
        finally:
            tracemalloc.stop()
        assert answer is not None and answer.status in (400, 413)


@pytest.mark.slow
async def test_another_address_is_served_beside_1500_connections_that_wait(surface: Open, descriptors: None) -> None:
    """Idle after a request, silent from the start, or with an unfinished head or body, in turn."""
    loop = asyncio.get_running_loop()
    patient = {"header_timeout": 60.0, "body_idle_timeout": 60.0}  # nothing is closed because it is late
    async with surface(max_connections=CONSOLE_CONNECTIONS, **patient) as attacked:
        forge = attacked.forge
        says = (forge.get(), *(b"", forge.head()[:-2], forge.post(BAD_JSON)[:-1]) * 5)
        crowd: list[socket.socket] = []

        async def join(number: int) -> None:
            crowd.append(sock := socket.socket())
            sock.setblocking(False)
            sock.bind((CROWD[number % len(CROWD)], 0))
            await loop.sock_connect(sock, attacked.address)
            await loop.sock_sendall(sock, says[number % len(says)])

        try:
            for first in range(0, IDLE, 100):
                await asyncio.gather(*(join(number) for number in range(first, first + 100)))
            await until(lambda: open_of(crowd) <= CONSOLE_CONNECTIONS + ANSWERED_AT_ONCE, within=20.0)
            assert open_of(crowd) > CONSOLE_CONNECTIONS // 2
            for _ in range(5):
                await serves(attacked)
        finally:
            for sock in crowd:
                sock.close()


def open_of(crowd: list[socket.socket]) -> int:
    """How many of these connections the server has not closed."""
    return sum(map(_is_open, crowd))


def _is_open(sock: socket.socket) -> bool:
    try:
        while sock.recv(65_536):
            pass
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False

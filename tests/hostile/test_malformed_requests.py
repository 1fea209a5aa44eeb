"""Three thousand malformed requests against a gateway that runs as a process of its own: always the wire's error body.

2,100 bodies of tests/schemas/malformed.py with a good key, and 900 requests that HTTP itself forbids. Afterwards the
same worker serves, no bigger than before, and neither an upstream nor an account has heard of any of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tornado.ioloop import IOLoop

from gateway.accounts.accounts import Account, Accounts
from gateway.config.loader import load
from gateway.ledger import Ledger
from gateway.store import EmbeddedServer, Store
from gateway.testing import FakeUpstream
from gateway.testing.running import ACCOUNT, BALANCE, RunningGateway, running_gateway
from tests.schemas.malformed import malformed_bodies

from .garbage import Forge, garbage
from .raw import assert_refusal, connection, send_garbage

pytestmark = pytest.mark.slow

BODIES, REQUESTS = 2_100, 900
LANES = 8  # connections at a time
GROWTH = 24 * 2**20  # bytes a worker may keep: buffers, arenas and caches of eight busy connections

CONFIG = """
[providers.up]
plugin = "openai"
base_url = "{base_url}"

[models."m1"]
provider = "up"
price = {{ input = 1, output = 2 }}

[models."gpt-5-mini"]
provider = "up"
price = {{ input = 1, output = 2 }}
"""

# A busy machine may stop the gateway for a second: a connection whose bytes wait unread meanwhile is closed.
LIMITS = """
[server.limits]
max_json_body = 2097152
body_timeout = 4.0
header_timeout = 4.0
"""


@pytest.fixture
def upstream(io_loop: IOLoop) -> Iterator[FakeUpstream]:
    server = FakeUpstream()
    io_loop.run_sync(server.start)
    yield server
    io_loop.run_sync(server.close)


@pytest.fixture
def served(upstream: FakeUpstream) -> Iterator[RunningGateway]:
    """A gateway process with one worker and small limits."""
    with running_gateway(CONFIG.format(base_url=upstream.base_url)) as gateway:
        gateway.stop()
        gateway.config.write_text(gateway.config.read_text() + LIMITS)
        gateway.start()
        yield gateway


def address_of(gateway: RunningGateway) -> tuple[str, int]:
    return "127.0.0.1", int(gateway.base_url.rsplit(":", 1)[1].split("/")[0])


def workers_of(gateway: RunningGateway) -> list[int]:
    """Process ids of the workers; the embedded store is another child."""
    children = Path(f"/proc/{gateway.pid}/task/{gateway.pid}/children").read_text().split()
    return [int(pid) for pid in children if b"gateway.runtime.worker" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def memory_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


@asynccontextmanager
async def account_of(gateway: RunningGateway) -> AsyncIterator[Account]:
    settings = load(gateway.config)
    async with EmbeddedServer.attach_or_start(settings.data_dir) as address:
        store = await Store.open(address, timeout=20.0)
        try:
            ledger = Ledger(store, {})
            assert (await ledger.audit()).mismatches == []
            yield await Accounts(store, ledger).show(ACCOUNT)
        finally:
            await store.close()


async def send_bodies(address: tuple[str, int], forge: Forge, bodies: Iterator[bytes]) -> int:
    """Post bodies on one connection after the other, as long as each lives; how many were refused."""
    refused = 0
    body = next(bodies, None)
    while body is not None:
        async with connection(address) as client:
            while body is not None:
                await client.send(forge.post(body))
                answer = await client.read()
                assert answer is not None, body[:200]
                assert_refusal(answer)
                assert answer.status == 400, (answer, body[:200])
                refused += 1
                body = next(bodies, None)
                if answer.headers.get("connection") == "close":
                    break
    return refused


async def test_three_thousand_malformed_requests_get_the_error_body_and_change_nothing(
    served: RunningGateway, upstream: FakeUpstream
) -> None:
    address, forge = address_of(served), Forge.of_key(served.api_key)
    await send_garbage(address, garbage(100, forge, seed=2))  # warm, so that the growth is growth
    await send_bodies(address, forge, malformed_bodies(200, seed=2))
    (worker,) = workers_of(served)
    before = memory_of(worker)

    bodies, cases = malformed_bodies(BODIES), garbage(REQUESTS, forge)
    async with asyncio.TaskGroup() as group:
        lanes = [group.create_task(send_bodies(address, forge, bodies)) for _ in range(LANES // 2)]
        lanes += [group.create_task(send_garbage(address, cases)) for _ in range(LANES // 2)]
    assert sum(lane.result() for lane in lanes) == BODIES + REQUESTS

    assert workers_of(served) == [worker], "the worker died"
    assert memory_of(worker) - before < GROWTH
    assert not upstream.seen
    async with account_of(served) as account:
        assert (account.balance, account.held) == (BALANCE, 0)
    log = served.log.read_text(errors="replace")
    assert "Traceback" not in log
    assert " ERROR " not in log
    assert served.api_key not in log


async def test_bodies_and_heads_that_never_arrive_are_408(served: RunningGateway) -> None:
    address, forge = address_of(served), Forge.of_key(served.api_key)
    starts = [
        forge.head(b"Content-Length: 100"),
        forge.head(b"Content-Length: 100") + b"{",
        forge.chunked(b""),
        forge.chunked(b"5\r\nab"),
        b"POST /v1/chat/comp",
        b"POST /v1/chat/completions HTTP/1.1\r\nHost:",
    ]

    async def stall(start: bytes) -> None:
        async with connection(address) as client:
            await client.send(start)
            answer = await client.read()
            assert answer is not None, start
            assert_refusal(answer)
            assert (answer.status, answer.error["code"]) == (408, "request_timeout"), start

    await asyncio.gather(*(stall(start) for start in starts * 5))

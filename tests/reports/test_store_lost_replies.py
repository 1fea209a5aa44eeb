"""Connections to the store that break under load.

- https://github.com/BerriAI/litellm/issues/9024: the connection to Redis is closed by the server, again and again.
- https://github.com/BerriAI/litellm/pull/35273: a Redis that does not answer made every request wait.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import aiohttp
import pytest
from msgspec import structs
from tornado.ioloop import IOLoop

from gateway.accounts.accounts import Accounts
from gateway.accounts.keys import Keys
from gateway.amounts import NANO
from gateway.config.loader import demo_settings
from gateway.config.settings import Settings
from gateway.http_server.server import HTTPServer
from gateway.ledger import Journal
from gateway.runtime.gateway import Gateway
from gateway.store import Store
from tests.conftest import PEPPER
from tests.polling import loop_clock, until
from tests.quick import examples
from tests.store.reply_loser import SCRIPTS, ReplyLoser

CALLS = 1000
CALLERS = 16
REFUSED_WITHIN = 1.3 + 0.7  # seconds: `store.timeout` and a little; the rest is for a slow test machine
BALANCE = 1000 * NANO
BODY = {"model": "fake-chat", "messages": [{"role": "user", "content": "Hi"}], "max_completion_tokens": 5}


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """The fake provider only: an upstream of its own would take most of the time."""
    settings = demo_settings(tmp_path)
    return structs.replace(settings, log=structs.replace(settings.log, access=False))


@pytest.fixture
def loser(io_loop: IOLoop, valkey: Path) -> Iterator[ReplyLoser]:
    """Between the gateway and its store."""
    loser = ReplyLoser(valkey)
    io_loop.run_sync(loser.__aenter__)
    yield loser
    io_loop.run_sync(lambda: loser.__aexit__(None, None, None))


@pytest.fixture
def gateway(io_loop: IOLoop, store: Store, loser: ReplyLoser, settings: Settings) -> Iterator[Gateway]:
    """A gateway with a journal whose store is behind the proxy; `store` has emptied it."""

    async def build() -> Gateway:
        behind = await Store.open(f"redis://127.0.0.1:{loser.port}", timeout=settings.store.timeout)
        journal = Journal(settings.data_dir / "journal")
        return await Gateway.build(settings, behind, pepper=PEPPER, journal=journal)

    gateway = io_loop.run_sync(build)
    gateway.overload.max_lag = 0.0  # the test, its clients and the proxy share the loop, and may hold it
    yield gateway
    loser.every = 0
    io_loop.run_sync(gateway.close)


class Load:
    """What the calls of many callers got."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.keys: list[str] = []  # of each caller
        self.accounts: list[str] = []
        self.statuses: Counter[int] = Counter()
        self.served: Counter[str] = Counter()  # request ids
        self.slowest = 0.0  # seconds of the event loop
        self.refusals: Counter[str] = Counter()

    async def prepare(self, accounts: Accounts, keys: Keys, *, shared: bool) -> None:
        """Make accounts and keys; if all callers share an account, one script serves several of them."""
        self.accounts = [f"team-{number}" for number in range(1 if shared else CALLERS)]
        for name in self.accounts:
            await accounts.create(name, balance=BALANCE)
        for number in range(CALLERS):
            self.keys.append((await keys.create(self.accounts[number % len(self.accounts)])).text)

    async def run(self, count: int) -> None:
        """Send `count` calls, those of a caller one after the other."""
        numbers = iter(range(count))
        connector = aiohttp.TCPConnector(limit=len(self.keys))
        async with aiohttp.ClientSession(connector=connector) as session, loop_clock() as elapsed:
            await asyncio.gather(*(self._call_each(session, key, numbers, elapsed) for key in self.keys))

    async def _call_each(
        self, session: aiohttp.ClientSession, key: str, numbers: Iterator[int], elapsed: Callable[[], float]
    ) -> None:
        headers = {"Authorization": f"Bearer {key}"}
        for _ in numbers:
            started = elapsed()
            async with session.post(f"{self.url}/v1/chat/completions", json=BODY, headers=headers) as response:
                answer = await response.json()
            self.slowest = max(self.slowest, elapsed() - started)
            self.statuses[response.status] += 1
            if response.status == 200:
                self.served[response.headers["x-request-id"]] += 1
            else:
                self.refusals[answer["error"]["code"]] += 1

    async def proved(self, gateway: Gateway, accounts: Accounts) -> None:
        """Each served call is charged once and no other; nothing is held; the lines add up to the balances."""
        journal = gateway.journal
        assert journal is not None
        await gateway.ledger.drain()
        await until(lambda: not journal.unconfirmed)
        charged = Counter[str]()
        for name in self.accounts:
            spent = 0
            async for line in gateway.ledger.lines(name):
                if line.amount < 0:
                    charged[line.request_id] += 1
                    spent -= line.amount
            account = await accounts.show(name)
            assert (account.held, account.balance) == (0, BALANCE - spent)
        twice = {request_id for request_id, count in charged.items() if count > 1}
        assert (twice, charged - self.served, self.served - charged) == (set(), Counter(), Counter())
        assert (await gateway.ledger.audit()).mismatches == []


@pytest.fixture(params=[False, True], ids=["accounts", "account"])
def load(
    request: pytest.FixtureRequest,
    io_loop: IOLoop,
    base_url: str,
    accounts: Accounts,
    keys: Keys,
    http_server: HTTPServer,
) -> Load:
    """Sixteen callers, each with an account of its own, or all with one."""
    load = Load(base_url.replace("localhost", "127.0.0.1"))
    io_loop.run_sync(lambda: load.prepare(accounts, keys, shared=request.param))
    return load


@pytest.mark.holds("operations/redis.md#a-slow-store-2")
@pytest.mark.parametrize(
    ("every", "calls"),
    [
        (7, CALLS),
        pytest.param(3, CALLS // 3, marks=pytest.mark.slow),
        pytest.param(2, CALLS // 3, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("of", [SCRIPTS, pytest.param(None, marks=pytest.mark.slow)], ids=["scripts", "all"])
async def test_calls_are_served_and_charged_once_while_replies_of_the_store_are_lost(
    every: int,
    calls: int,
    of: frozenset[str] | None,
    load: Load,
    gateway: Gateway,
    accounts: Accounts,
    loser: ReplyLoser,
) -> None:
    """https://github.com/BerriAI/litellm/issues/9024"""
    count = examples(calls)
    loser.of, loser.every = of, every
    started = time.monotonic()
    await load.run(count)
    took, loser.every = time.monotonic() - started, 0
    print(
        f"reply {every} of {every} lost: {dict(load.statuses)} of {count} calls in {took:.1f} s, {loser.lost} replies "
        f"lost, {loser.unanswered} commands behind them, {loser.connections} connections, slowest {load.slowest:.2f} s"
    )
    await load.proved(gateway, accounts)
    assert loser.lost > 3
    assert load.statuses[200] >= count * 9 // 10
    assert load.slowest < REFUSED_WITHIN


@pytest.mark.holds("operations/redis.md#a-slow-store-2")
async def test_calls_are_refused_in_time_and_cost_nothing_while_no_script_is_answered(
    load: Load, gateway: Gateway, accounts: Accounts, loser: ReplyLoser
) -> None:
    """https://github.com/BerriAI/litellm/pull/35273"""
    loser.every = 1
    await load.run(2 * CALLERS)
    loser.every = 0
    assert load.statuses == {503: 2 * CALLERS}
    assert load.refusals == {"service_unavailable": 2 * CALLERS}
    assert load.slowest < REFUSED_WITHIN
    await load.proved(gateway, accounts)
    again = Load(load.url)
    again.keys, again.accounts = load.keys, load.accounts

    async def is_back() -> bool:
        await again.run(1)
        return again.statuses[200] > 0

    await until(is_back)
    await again.proved(gateway, accounts)

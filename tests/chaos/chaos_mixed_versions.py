"""A gateway of the version before and one of this version on one store, as during a rolling upgrade.

`tox -e chaos`, or `python -m pytest -s -o python_files='chaos_*.py' tests/chaos/chaos_mixed_versions.py`; each test
prints the figure it reached. The old version comes from the history of the repository. Where the history does not have
it, as in a shallow clone, these tests are skipped.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import os
import random
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from msgspec import structs
from tornado.ioloop import IOLoop

from gateway.routing.circuit_sync import read_circuit_events
from gateway.testing import FakeUpstream, Reply
from gateway.testing.ports import free_ports
from tests.chaos.redis_topologies import DATA, PASSWORD, URL_PASSWORD, Node
from tests.chaos.traffic import CHUNK, MODELS, PER_TOKEN, Call, Traffic, paced, traffic_on
from tests.chaos.truth import SPENT, charged, off, written
from tests.chaos.versions import OLD_COMMIT, Versioned, both_versions, old_source
from tests.polling import until
from tests.processes.conftest import Yard
from tests.processes.served import children

MORE_MODELS = """
[providers.ill]
plugin = "openai"
base_url = "{ill}"

[models.ill-old]
provider = "ill"
free = true

[models.ill-new]
provider = "ill"
free = true
"""
NANO = 1_000_000_000
INTERVAL = 0.02  # seconds between chunks
DELAY = 0.3  # seconds until a JSON answer
PAUSE = 0.1  # seconds between two calls of one caller
BALANCE = 100  # of each account
ACCOUNTS = [f"account-{number}" for number in range(4)]
CALLS = 5000
KILL_EVERY = 2.0  # seconds
UNREAD = 25  # chunks, half a second of them: what the upstream wrote and a killed worker had not read
RELEASED_WITHIN = 5.0
LEASE_RELEASED_WITHIN = 75.0  # a lease of 60 s, and the turn of the worker that reclaims it
CHECKPOINT_EVERY = 5.0  # seconds between two checkpoints of a call in the store
CUT_WITHIN = 1.0
VERSIONS = ["old", "new"]

Gateways = tuple[Versioned, Versioned]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The code of the old version."""
    folder = old_source(tmp_path_factory.mktemp("source"))
    if folder is None:
        pytest.skip(f"git archive does not find {OLD_COMMIT}: this is no clone with the whole history")
    return folder


@pytest.fixture
def store_url(tmp_path: Path) -> Iterator[str]:
    """An empty server that neither gateway owns."""
    node = Node(tmp_path, free_ports(1)[0], **DATA, requirepass=PASSWORD)
    node.start()
    yield f"redis://:{URL_PASSWORD}@127.0.0.1:{node.port}/0"
    node.end()


@pytest.fixture
def ill(io_loop: IOLoop) -> Iterator[FakeUpstream]:
    """An upstream that asks to slow down: versions share what an upstream says of a credential."""
    server = FakeUpstream(lambda _: Reply.error(429, "slow down", headers={"retry-after": "60"}))
    io_loop.run_sync(server.start)
    yield server
    io_loop.run_sync(server.close)


@pytest.fixture
def models(upstream: FakeUpstream, ill: FakeUpstream) -> str:
    """The tables of providers and models that both gateways serve."""
    return MODELS.format(url=upstream.base_url) + MORE_MODELS.format(ill=ill.base_url)


async def key_of(gateway: Versioned, account: str, *options: str, balance: str = str(BALANCE)) -> str:
    """The text of a key of a new account, both made by this gateway's version."""
    await gateway.command("accounts", "create", account, "--balance", balance)
    return str((await gateway.command("keys", "create", account, *options))["key"])


class Answer:
    """A whole answer of a gateway."""

    def __init__(self, response: aiohttp.ClientResponse, body: bytes, sent: float) -> None:
        self.status = response.status
        self.headers = response.headers
        self.body = body
        self.sent = sent


class Client:
    """Sends requests of one key to one gateway, each on a connection of its own."""

    def __init__(self, session: aiohttp.ClientSession, gateway: Versioned, key: str) -> None:
        self._session = session
        self._url = f"{gateway.base_url}/chat/completions"
        self._key = key

    async def chat(self, words: int = 5, *, model: str = "m", once: str = "") -> Answer:
        """One JSON answer of so many words, which are also its limit; `once` is its idempotency key."""
        messages = [{"role": "user", "content": CHUNK * words}]
        body = {"model": model, "messages": messages, "max_tokens": words, "user": "client"}
        headers = {"Authorization": f"Bearer {self._key}"} | ({"Idempotency-Key": once} if once else {})
        sent = time.monotonic()
        async with self._session.post(self._url, json=body, headers=headers) as response:
            return Answer(response, await response.read(), sent)


@asynccontextmanager
async def clients(gateways: Gateways, key: str) -> AsyncIterator[tuple[Client, Client]]:
    """A client of each gateway."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, force_close=True)) as session:
        old, new = gateways
        yield Client(session, old, key), Client(session, new, key)


async def proved(gateways: Gateways) -> None:
    """The audit of each version finds nothing, and nothing is held.

    Each folder has a database of its own, and the store accepts one of them. The other gateway audits the store alone.
    """
    whole = 0
    for gateway in gateways:
        audit = await asyncio.to_thread(gateway.run, "audit")
        said = audit.stdout + audit.stderr
        if audit.returncode == 1 and "history is in another database" in said:
            assert "mismatches: 0" in said
            continue
        assert audit.returncode == 0, said
        whole += 1
    assert whole


async def released(gateway: Versioned, accounts: list[str], *, within: float) -> float:
    """Wait until the accounts have no hold; the seconds that it took."""
    started = time.monotonic()

    async def free() -> bool:
        await asyncio.sleep(0.1)
        return not sum([(await gateway.account_named(account)).held for account in accounts])

    await until(free, within=within)
    return time.monotonic() - started


async def balances_are_exact(gateway: Versioned, accounts: list[str]) -> int:
    """Each balance is what the account had less its charges; the number of tokens charged in all."""
    total = 0
    for account in accounts:
        tokens = sum((await charged(gateway, [account])).values())
        assert (await gateway.account_named(account)).balance == BALANCE * NANO - tokens * PER_TOKEN
        total += tokens
    return total


# Load ----------------------------------------------------------------------------------------------------------------


async def killed_in_turn(gateways: Gateways, enough: Any) -> Counter[str]:
    """Kill a worker of each, then a gateway with all its processes and start the other version there, and again."""
    kills: Counter[str] = Counter()
    for gateway, fate in itertools.cycle(
        [*((gateway, "worker") for gateway in gateways), *((gateway, "gateway") for gateway in gateways)]
    ):
        await asyncio.sleep(random.uniform(0.5, 1.5) * KILL_EVERY)
        if enough():
            return kills
        if fate == "worker":
            await until(lambda gateway=gateway: len(gateway.workers) == 2, within=30.0)
            os.kill(random.choice(gateway.workers), signal.SIGKILL)
        else:
            await gateway.kill_all()
            await gateway.restart_as_other_version()
        kills[fate] += 1
    raise AssertionError


@pytest.mark.holds("operations/processes.md#what-happens-when-a-process-ends-8", "scaling.md#limits-4")
@pytest.mark.gen_test(timeout=600)
async def test_mixed_load_on_both_versions_is_charged_exactly_while_workers_and_gateways_are_killed(
    yard: Yard, upstream: FakeUpstream, source: Path, store_url: str, models: str, share: float
) -> None:
    upstream.tamper = _paced
    gateways = await both_versions(yard, source, store_url, models, workers=2)
    assert [gateway.code() == source for gateway in gateways] == [True, False]
    keys = [await key_of(gateway, name) for gateway, name in zip(itertools.cycle(gateways), ACCOUNTS, strict=False)]
    started = time.monotonic()
    async with AsyncExitStack() as stack:
        traffics = [await stack.enter_async_context(traffic_on(gateway)) for gateway in gateways]
        for traffic, key in itertools.product(traffics, keys):
            traffic.keep(8, 20, key=key, pause=PAUSE)
            traffic.keep(8, 5, key=key, pause=PAUSE, stream=False)

        def served() -> int:
            return sum(call.answered_well for traffic in traffics for call in traffic.calls)

        kills = await killed_in_turn(gateways, lambda: served() >= CALLS * share)
        await asyncio.gather(*(traffic.ended() for traffic in traffics))
    calls = [call for traffic in traffics for call in traffic.calls]
    took = time.monotonic() - started
    waited = await released(gateways[1], ACCOUNTS, within=LEASE_RELEASED_WITHIN)
    away = await off(gateways[1], upstream, calls, ACCOUNTS)
    total = await balances_are_exact(gateways[1], ACCOUNTS)
    cut = {call.name for call in calls if not call.answered_well}
    refused = [call for call in calls if call.status not in (0, 200)]
    whole = [chunks for name, chunks in away.items() if name not in cut]
    unread = [-chunks for name, chunks in away.items() if name in cut]
    streams = sum(call.stream and call.answered_well for call in calls)
    print(
        f"\n{served()} calls of {len(ACCOUNTS)} accounts served in {took:.0f} s by both versions, {streams} of them "
        f"streams; killed: {dict(kills)}; {len(unread)} streams cut, {len(cut) - len(unread)} calls without an answer, "
        f"{len(refused)} refused; whole ones off by {sum(map(abs, whole))} tokens, cut ones charged "
        f"{min(unread, default=0)} to {max(unread, default=0)} fewer than the upstream wrote; {total} tokens charged; "
        f"nothing held {waited:.1f} s after the last call"
    )
    assert not refused, refused[:5]
    assert not any(whole)
    assert min(unread, default=0) >= -1
    assert max(unread, default=0) <= UNREAD
    await proved(gateways)


# Keys, limits, money -------------------------------------------------------------------------------------------------


@pytest.mark.gen_test(timeout=120)
@pytest.mark.parametrize("revoker", VERSIONS)
async def test_key_revoked_by_one_version_is_refused_by_the_other_and_its_streams_are_cut(
    yard: Yard, upstream: FakeUpstream, source: Path, store_url: str, models: str, revoker: str
) -> None:
    paced(upstream, 0.1)
    gateways = await both_versions(yard, source, store_url, models)
    here, there = gateways if revoker == "old" else gateways[::-1]
    key = await key_of(there, "acme")
    key_id = (await here.command("keys", "list", "acme"))[0]["id"]
    async with traffic_on(there) as traffic, clients(gateways, key) as (on_old, on_new):
        client = on_new if revoker == "old" else on_old
        streams = [asyncio.create_task(traffic.make(600, key=key)) for _ in range(20)]
        await until(lambda: traffic.running == len(streams))
        answers: list[Answer] = []
        stop = asyncio.Event()

        async def calling() -> None:
            while not stop.is_set():
                answers.append(await client.chat())

        callers = [asyncio.create_task(calling()) for _ in range(4)]
        await until(lambda: len(answers) > 20)
        await here.command("keys", "revoke", key_id)
        revoked = time.monotonic()
        await asyncio.gather(*streams)
        after = len(answers)
        await until(lambda: len(answers) >= after + 8)
        stop.set()
        await asyncio.gather(*callers)
    late = Counter(answer.status for answer in answers if answer.sent > revoked)
    longest = max(call.ended for call in traffic.calls) - revoked
    print(
        f"\nrevoked by the {revoker} version: {late} of the calls of the other one that began later, "
        f"{len(streams)} streams cut within {longest:.2f} s of the command's return"
    )
    assert set(late) == {401}
    assert longest <= CUT_WITHIN
    assert not any(call.whole for call in traffic.calls)
    await released(here, ["acme"], within=RELEASED_WITHIN)
    await balances_are_exact(here, ["acme"])
    await proved(gateways)


@pytest.mark.gen_test(timeout=120)
async def test_requests_per_minute_and_balance_are_shared_by_both_versions(
    yard: Yard, upstream: FakeUpstream, source: Path, store_url: str, models: str
) -> None:
    gateways = await both_versions(yard, source, store_url, models)
    keys = {
        "sixty": await key_of(gateways[0], "sixty", "--rpm", "60"),
        "poor": await key_of(gateways[1], "poor", balance="0.0005"),  # 100 calls of 5 tokens
    }
    figures = {}
    for account, key in keys.items():
        async with clients(gateways, key) as both:
            started = time.monotonic()
            answers = [await client.chat() for client in both * 10]
            assert {answer.status for answer in answers} == {200}
            answers += await asyncio.gather(*(both[number % 2].chat() for number in range(400)))
            took = time.monotonic() - started
        statuses = Counter(answer.status for answer in answers)
        assert set(statuses) == {200, 429}
        figures[account] = (statuses[200], took)
    print(f"\nserved of 10 calls to each version and then 400 at once to both, and the seconds it took: {figures}")
    served, took = figures["sixty"]
    assert 60 <= served <= 61 + math.ceil(took)
    assert figures["poor"][0] == 100
    await released(gateways[0], ["sixty", "poor"], within=RELEASED_WITHIN)
    assert (await gateways[0].account_named("poor")).balance == 0
    await balances_are_exact(gateways[0], ["sixty"])
    await proved(gateways)


async def _replay(client: Client, *, once: str) -> Answer:
    """The stored answer. The caller of the first call has it a moment before the store has."""

    async def stored() -> Answer | None:
        answer = await client.chat(once=once)
        return None if answer.status == 409 else answer

    found: Answer = await until(stored)
    return found


@pytest.mark.gen_test(timeout=120)
@pytest.mark.parametrize("claimer", VERSIONS)
async def test_idempotency_key_claimed_by_one_version_is_seen_by_the_other(
    yard: Yard, upstream: FakeUpstream, source: Path, store_url: str, models: str, claimer: str
) -> None:
    upstream.tamper = lambda reply: _delayed(reply, 1.0)
    gateways = await both_versions(yard, source, store_url, models)
    key = await key_of(gateways[0], "acme")
    async with clients(gateways, key) as both:
        first, second = both if claimer == "old" else both[::-1]
        call = asyncio.create_task(first.chat(once="order-1"))
        await upstream.wait_started()
        in_flight = await second.chat(once="order-1")
        answer = await call
        replays = [await _replay(client, once="order-1") for client in both]
        other_body = await second.chat(6, once="order-1")
    assert in_flight.status == 409
    assert "Retry-After" in in_flight.headers
    assert answer.status == 200
    for replay in replays:
        assert (replay.status, replay.headers["Idempotent-Replayed"], replay.body) == (200, "true", answer.body)
    assert other_body.status == 400
    assert len(upstream.seen) == 1
    assert list((await charged(gateways[1], ["acme"])).values()) == [5]
    await proved(gateways)


@pytest.mark.gen_test(timeout=120)
@pytest.mark.parametrize("version", VERSIONS)
async def test_key_with_the_cost_header_created_by_one_version_has_it_on_both(
    yard: Yard, source: Path, store_url: str, models: str, version: str
) -> None:
    gateways = await both_versions(yard, source, store_url, models)
    maker = gateways[VERSIONS.index(version)]
    options = {"old": ["--show-cost"], "new": ["--response-headers", "cost"]}
    key = await key_of(maker, "acme", *options[version])
    async with clients(gateways, key) as both:
        costs = [(await client.chat()).headers.get("x-gateway-cost") for client in both]
    assert costs == ["0.000005", "0.000005"]


# Circuits ------------------------------------------------------------------------------------------------------------


@pytest.mark.gen_test(timeout=120)
@pytest.mark.parametrize("opener", VERSIONS)
async def test_circuit_opened_by_one_version_opens_in_the_other(
    yard: Yard, ill: FakeUpstream, source: Path, store_url: str, models: str, opener: str
) -> None:
    gateways = await both_versions(yard, source, store_url, models)
    here = gateways[VERSIONS.index(opener)]
    key = await key_of(here, "acme")
    model = f"ill-{opener}"

    async def shared() -> bool:
        async with here.session() as session:
            return bool(await read_circuit_events(session.store))

    async with clients(gateways, key) as both:
        first, second = both if opener == "old" else both[::-1]
        while not await shared():
            await first.chat(model=model)
            assert len(ill.seen) < 50
        before = len(ill.seen)
        answers = [await second.chat(model=model) for _ in range(4)]  # too few to open a circuit of its own
    print(f"\nopened by the {opener} version after {before} calls of the upstream: {[a.status for a in answers]}")
    assert len(ill.seen) <= before + 1  # the event may be on its way when the first of them begins
    assert {answer.status for answer in answers[1:]} == {429}


# Holds ---------------------------------------------------------------------------------------------------------------


async def flowing(traffic: Traffic, key: str, count: int, *, got: int) -> list[asyncio.Task[Call]]:
    """So many streams, once the client of each has got so many chunks."""
    streams = [asyncio.create_task(traffic.make(500, key=key)) for _ in range(count)]
    await until(lambda: len(traffic.calls) == count and min(call.chunks for call in traffic.calls) >= got, within=60.0)
    return streams


@pytest.mark.gen_test(timeout=120)
@pytest.mark.parametrize("killed", VERSIONS)
async def test_calls_of_a_killed_gateway_are_charged_by_the_other_version_that_starts_on_its_folder(
    yard: Yard, upstream: FakeUpstream, source: Path, store_url: str, models: str, killed: str
) -> None:
    paced(upstream, 0.1)
    gateways = await both_versions(yard, source, store_url, models, workers=2)
    victim = gateways[VERSIONS.index(killed)]
    key = await key_of(victim, "acme")
    async with traffic_on(victim) as traffic:
        streams = await flowing(traffic, key, 40, got=15)
        await victim.kill_all()
        await asyncio.gather(*streams)
    await victim.restart_as_other_version()
    waited = await released(victim, ["acme"], within=RELEASED_WITHIN)
    away = (await off(victim, upstream, traffic.calls, ["acme"])).values()
    got = sum(call.chunks for call in traffic.calls)
    total = await balances_are_exact(victim, ["acme"])
    print(
        f"\n{killed} version killed under 40 streams and the other one started on its folder: nothing held "
        f"{waited:.1f} s later; charged {total} tokens, clients got {got}; off by {min(away)} to {max(away)}"
    )
    assert min(away) >= -2
    assert max(away) <= 1
    assert total >= got
    await proved(gateways)


@pytest.mark.slow
@pytest.mark.gen_test(timeout=240)
@pytest.mark.parametrize("killed", VERSIONS)
async def test_holds_of_a_lost_gateway_are_reclaimed_by_the_other_version(
    yard: Yard, upstream: FakeUpstream, source: Path, store_url: str, models: str, killed: str
) -> None:
    interval = 0.1
    paced(upstream, interval)
    gateways = await both_versions(yard, source, store_url, models)
    victim = gateways[VERSIONS.index(killed)]
    survivor = gateways[1 - VERSIONS.index(killed)]
    key = await key_of(survivor, "acme")
    async with traffic_on(victim) as traffic:
        streams = await flowing(traffic, key, 20, got=round(2 * CHECKPOINT_EVERY / interval))
        await victim.kill_all()
        await asyncio.gather(*streams)
    waited = await released(survivor, ["acme"], within=LEASE_RELEASED_WITHIN)
    truth, ledger = written(upstream), await charged(survivor, ["acme"])
    unread = [truth[call.name] - ledger[call.request_id] for call in traffic.calls]
    kinds = Counter([line.kind async for line in lines_of(survivor, "acme") if line.kind in SPENT])
    total = await balances_are_exact(survivor, ["acme"])
    print(
        f"\n{killed} version lost under 20 streams, with its folder: the other one freed their holds after "
        f"{waited:.1f} s and charged {total} tokens, {min(unread)} to {max(unread)} fewer a call than were written"
    )
    assert kinds == {"reclaim": 20}
    assert min(unread) >= -1
    assert max(unread) <= (CHECKPOINT_EVERY + 1.5) / interval
    assert children(survivor.pid)
    audit = await asyncio.to_thread(survivor.run, "audit")
    assert audit.returncode == 0, audit.stdout + audit.stderr
    await victim.restart_as_other_version()
    await proved(gateways)
    assert await balances_are_exact(survivor, ["acme"]) >= total


async def lines_of(gateway: Versioned, account: str) -> AsyncIterator[Any]:
    async with gateway.session() as session:
        async for line in session.ledger.lines(account):
            yield line


def _paced(reply: Reply) -> Reply:
    return _delayed(reply, DELAY) if reply.frames is None else structs.replace(reply, interval=INTERVAL)


def _delayed(reply: Reply, seconds: float) -> Reply:
    return structs.replace(reply, delay=seconds)

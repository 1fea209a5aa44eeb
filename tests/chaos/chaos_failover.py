"""Twenty failovers of each topology under load, with the replica 0.3 s behind every time: nothing may be missing.

Run by name (`pytest tests/chaos/chaos_failover.py -s`); each test prints the figures it reached. The control shows that
the drill does lose money when the journal is not sent again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from gateway.accounts.accounts import CHANGED
from gateway.store import Store
from gateway.store.slots import slot_of
from tests.chaos.failover import Drill
from tests.chaos.redis_topologies import SERVICE, SentinelTrio, SixNodes, Topology, sentinel_trio, six_nodes, text
from tests.chaos.redis_topologies import until as wait_until
from tests.ledger.records import void
from tests.polling import until
from tests.world import open_world

ROUNDS = 20
LONG = 500  # seconds


@pytest.fixture(scope="module")
def trio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SentinelTrio]:
    with sentinel_trio(tmp_path_factory.mktemp("trio")) as sentinels:
        yield sentinels


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SixNodes]:
    with six_nodes(tmp_path_factory.mktemp("cluster")) as nodes:
        yield nodes


async def drilled(
    topology: Topology, folder, *, rounds: int, replay: bool = True, restarts: bool = False
) -> dict[str, int]:
    drill = Drill(topology.url, folder)
    off = await drill.run(topology, rounds=rounds, replay=replay, restarts=restarts)
    holds = f"{drill.left_holding} nano still held, which was not waited for"
    if replay:
        holds = f"all holds ended {drill.released_within:.1f} s after it ({drill.left_holding} nano by their lease)"
    print(
        f"\n{type(topology).__name__}: {rounds} failovers, {drill.replays} replays, {drill.restarts} restarts, "
        f"{drill.delivered} calls delivered, {drill.unavailable} refused with 503, off by {sum(off.values())} nano in "
        f"{len(off)} accounts; replayed {drill.replayed_within:.1f} s after the last call; {holds}"
    )
    return off


@pytest.mark.holds("operations/redis.md#redis-for-production-13")
@pytest.mark.gen_test(timeout=LONG)
async def test_twenty_failovers_by_sentinels_lose_nothing_and_charge_nothing_twice(trio, tmp_path):
    assert await drilled(trio, tmp_path, rounds=ROUNDS) == {}


@pytest.mark.holds("operations/redis.md#redis-for-production-13")
@pytest.mark.gen_test(timeout=LONG)
async def test_twenty_failovers_of_a_cluster_lose_nothing_and_charge_nothing_twice(cluster, tmp_path):
    async with open_world(cluster.url):
        pass  # emptied
    assert await drilled(cluster, tmp_path, rounds=ROUNDS) == {}


@pytest.mark.holds("operations/redis.md#redis-for-production-13")
@pytest.mark.gen_test(timeout=LONG)
async def test_journals_of_workers_restarted_during_failovers_are_taken_over(trio, tmp_path):
    async with open_world(trio.url):
        pass
    assert await drilled(trio, tmp_path, rounds=ROUNDS // 4, restarts=True) == {}


@pytest.mark.holds("operations/redis.md#redis-for-production-13")
@pytest.mark.gen_test(timeout=120)
async def test_failover_test_finds_the_loss_if_the_journal_is_not_sent_again(trio, tmp_path):
    async with open_world(trio.url):
        pass
    off = await drilled(trio, tmp_path, rounds=1, replay=False)
    assert off
    assert min(off.values()) > 0  # calls that were delivered and are charged nowhere


@pytest.mark.holds("operations/redis.md#redis-for-production-7")
@pytest.mark.gen_test(timeout=120)
async def test_link_disconnects_from_a_replaced_master_that_still_runs(trio):
    async with open_world(trio.url) as w:
        old, seen = w.store.links[0].address.port, []
        w.store.on_reconnect = lambda before, now: seen.append((before.run_id, now.run_id))
        await asyncio.to_thread(trio.sentinels[1].ask, "SENTINEL", "FAILOVER", SERVICE)
        await until(lambda: w.store.links[0].connected and w.store.links[0].address.port != old, within=10)
        assert len(set(seen[-1])) == 2
        hold = await w.admit(await w.caller(), 1000)
        await void(w.ledger, hold)
        assert (await w.accounts.show("acme")).held == 0
        await w.proved()
    await until(lambda: asyncio.to_thread(trio.whole), within=30)


@pytest.mark.gen_test(timeout=120)
async def test_a_revocation_is_received_after_a_failover(trio):
    async with open_world(trio.url) as w:
        await asyncio.to_thread(trio.fail_over)
        key = await w.caller()
        async with w.store.channel(CHANGED) as channel:
            greeting = await channel.message(within=2.0)
            assert greeting is not None and greeting["type"] == "subscribe"
            await w.keys.revoke(key.id)
            heard = await until(lambda: channel.message(within=0.1))
            assert heard["data"].decode() == f"acme:{key.id}"


@pytest.mark.holds("operations/redis.md#redis-for-production-15")
@pytest.mark.gen_test(timeout=120)
async def test_slots_moved_under_load_lose_nothing(cluster, tmp_path):
    """Valkey 9's atomic slot migration, there and back; older servers have no such command."""
    if not await asyncio.to_thread(_can_move, cluster):
        pytest.skip("this server moves slots key by key only")
    async with open_world(cluster.url):
        pass
    mover = Moves(cluster)
    assert await drilled(mover, tmp_path, rounds=4) == {}
    assert mover.moved == 4


class Moves(Topology):
    """A cluster whose `fail_over` moves the slots of one account to another master."""

    def __init__(self, cluster: SixNodes) -> None:
        self.cluster, self.url, self.moved = cluster, cluster.url, 0

    def fail_over(self, *, behind: float = 0.0) -> float:
        slot = slot_of(f"{{a:acct-{self.moved}}}")
        masters = [node for node in self.cluster.nodes if node.info()["role"] == "master"]
        owner = next(node for node in masters if _owns(node, slot))
        target = next(node for node in masters if node is not owner)
        name = text(target.ask("CLUSTER", "MYID"))
        owner.ask("CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", slot, slot, "NODE", name)
        wait_until(lambda: _owns(target, slot), within=20.0)
        self.moved += 1
        return 0.0


def _owns(node, slot: int) -> bool:
    with node.client as client:
        mine = text(client.execute_command("CLUSTER", "MYID"))
        ranges = client.execute_command("CLUSTER", "SLOTS")
    if isinstance(ranges, dict):
        return any(
            low <= slot <= high and text(served["primary"][2] if len(served["primary"]) > 2 else "") == mine
            for (low, high), served in ranges.items()
        )
    return any(low <= slot <= high and text(master[2]) == mine for low, high, master, *_ in ranges)


def _can_move(cluster: SixNodes) -> bool:
    return "migrateslots" in str(cluster.nodes[0].ask("CLUSTER", "HELP")).lower()


async def test_address_is_shown_without_its_password(trio, cluster):
    for url in (trio.url, cluster.url):
        store = await Store.open(url)
        assert "s3cret" not in repr(store.address) + "".join(repr(link.address) for link in store.links)
        await store.close()

"""Sentinels and clusters: which link, what a redirection does, and a failover of each without a loss.

The long runs, and the ledger's own tests on both, are in tests/chaos.
"""

import signal
from collections.abc import Iterator
from typing import Any, cast

import pytest
import redis

from gateway.accounts.accounts import CHANGED
from gateway.accounts.store_claim import claim
from gateway.errors import StoreFate, StoreUnavailable
from gateway.store import Store
from gateway.store.command import Script
from gateway.store.greeting import ServerRejected
from gateway.store.identity import StoreGuard
from gateway.store.links import slot
from gateway.store.slots import slot_of
from tests.chaos.failover import Drill
from tests.chaos.redis_topologies import SentinelTrio, SixNodes, sentinel_trio, six_nodes, text
from tests.ledger.records import void
from tests.polling import until
from tests.world import World, open_world

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SixNodes]:
    with six_nodes(tmp_path_factory.mktemp("cluster")) as nodes:
        yield nodes


@pytest.fixture(scope="module")
def trio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SentinelTrio]:
    with sentinel_trio(tmp_path_factory.mktemp("trio")) as sentinels:
        yield sentinels


def node_of(cluster: SixNodes, link) -> Any:
    return next(node for node in cluster.nodes if node.port == link.address.port)


async def round_trip(world: World) -> None:
    """One call from key to audit, and an operator's revocation heard on the channel."""
    key = await world.caller(balance=5000)
    hold = await world.admit(key, 1000)
    async with world.store.channel(CHANGED) as channel:
        greeting = await channel.message(within=20.0)
        assert greeting is not None and greeting["type"] == "subscribe"
        await world.keys.revoke(key.id)
        heard = await until(lambda: channel.message(within=0.1))
        assert heard["data"].decode() == f"acme:{key.id}"
    assert await world.ledger.renew_leases([hold]) == {hold.request_id: "revoked"}
    await void(world.ledger, hold)
    assert (await world.accounts.show("acme")).held == 0
    await world.proved()


@pytest.mark.holds("operations/redis.md#redis-for-production-1")
@pytest.mark.parametrize(
    ("key", "slot"),
    [("", 0), ("123456789", 0x31C3), ("{123456789}:lg", 0x31C3), ("a{123456789}{x}", 0x31C3), ("{}123456789", 1951)],
)
def test_cluster_slots_follow_the_specification(key, slot):
    assert slot_of(key) == slot


# Cluster -------------------------------------------------------------------------------------------------------------


@pytest.mark.holds("operations/redis.md#redis-for-production-3", "scaling.md#limits-5")
async def test_a_cluster_serves_calls_and_each_key_has_its_slot(cluster):
    async with open_world(cluster.url) as w:
        assert len(w.store.links) == 3
        await round_trip(w)
        for number in range(100):
            key = f"k{number}"
            assert text(await w.store.link(key).call("CLUSTER", "KEYSLOT", key)) == str(slot_of(key))
        assert await w.store.ping() > 0
        (warning,) = await w.store.warnings()
        assert "min-replicas-to-write" in warning


async def test_every_master_of_a_cluster_has_the_identity_and_an_emptied_one_is_not_used(cluster):
    async with open_world(cluster.url) as w:
        identity = await claim(w.store, ("p",))
        assert (await claim(w.store, ("p",))) == identity
    guard = StoreGuard(deployment=identity.deployment, peppers=("p",))
    store = await Store.open(cluster.url, timeout=5.0, guard=guard)
    try:
        await store.probe()
        emptied, *others = store.links
        node_of(cluster, emptied).ask("FLUSHALL")
        with pytest.raises(ServerRejected):
            await store.probe()
        await until(lambda: "has lost its identity" in store.problem)
        assert not emptied.connected
        for link in others:
            assert await link.call("PING") == b"PONG"
    finally:
        await store.close()


@pytest.mark.holds("scaling.md#limits-5")
async def test_redirected_command_is_sent_again_and_the_map_is_updated(cluster):
    async with open_world(cluster.url) as w:
        slots, slot = cast("Any", w.store._topology)._slots, slot_of("{a:acme}")
        right = w.store.link("{a:acme}")
        wrong = next(link for link in w.store.links if link is not right)
        slots[slot] = wrong
        assert await w.store.link("{a:acme}").call("SET", "{a:acme}:x", 1) == b"OK"
        assert w.store.link("{a:acme}") is right
        cast("Any", w.store._topology)._slots[slot] = wrong
        script = Script("return redis.call('INCR', KEYS[1])  -- known to nobody yet")
        assert await w.store.link("{a:acme}").eval(script, ["{a:acme}:x"], []) == 2
        assert w.store.link("{a:acme}") is right


@pytest.mark.holds("operations/redis.md#redis-for-production-15")
async def test_slot_that_is_being_moved_serves_single_keys_and_refuses_scripts(cluster):
    async with open_world(cluster.url) as w:
        slot = slot_of("{a:acme}")
        source, target = w.store.link("{a:acme}"), next(x for x in w.store.links if x is not w.store.link("{a:acme}"))
        from_id, to_id = [text(node_of(cluster, link).ask("CLUSTER", "MYID")) for link in (source, target)]
        await target.call("CLUSTER", "SETSLOT", slot, "IMPORTING", from_id)
        await source.call("CLUSTER", "SETSLOT", slot, "MIGRATING", to_id)
        try:
            assert await source.call("SET", "{a:acme}:new", "there") == b"OK"
            assert await source.call("GET", "{a:acme}:new") == b"there"
            with pytest.raises(redis.exceptions.MovedError):
                node_of(cluster, target).ask("GET", "{a:acme}:new")
            with pytest.raises(StoreUnavailable) as caught:
                await source.eval(Script("return redis.call('INCR', KEYS[1])"), ["{a:acme}:n"], [])
            assert caught.value.fate is StoreFate.REFUSED
        finally:
            for link in (source, target):
                await link.call("CLUSTER", "SETSLOT", slot, "STABLE")
            await target.call("CLUSTER", "SETSLOT", slot, "NODE", from_id)


@pytest.mark.holds("operations/redis.md#redis-for-production-1")
async def test_nothing_settled_is_missing_after_a_failover_of_a_cluster(cluster, tmp_path):
    drill = Drill(cluster.url, tmp_path)
    assert await drill.run(cluster, rounds=1) == {}
    assert drill.replays >= 1
    assert drill.delivered > 200


# Sentinel ------------------------------------------------------------------------------------------------------------


@pytest.mark.holds("operations/redis.md#redis-for-production-2")
async def test_the_master_is_found_through_its_sentinels(trio):
    async with open_world(trio.url) as w:
        assert w.store.links[0].address.port == trio.victim().port
        assert w.store.links[0].address.db == 2
        await round_trip(w)


async def test_dead_sentinel_does_not_prevent_a_connection(trio):
    trio.sentinels[0].end()
    try:
        store = await Store.open(trio.url)
        assert await store.link("").call("PING") == b"PONG"
        await store.close()
    finally:
        trio.sentinels[0].start()


@pytest.mark.holds("operations/redis.md#redis-for-production-2")
async def test_nothing_settled_is_missing_after_a_failover_by_sentinels(trio, tmp_path):
    drill = Drill(trio.url, tmp_path)
    assert await drill.run(trio, rounds=1) == {}
    assert drill.replays >= 1
    assert drill.delivered > 200


@pytest.mark.holds("operations/redis.md#durability-of-commands-5", "operations/redis.md#redis-for-production-12")
@pytest.mark.parametrize("kind", ["trio", "cluster"])
async def test_write_without_a_replica_is_reported_as_doubtful(kind, request, monkeypatch):
    topology = request.getfixturevalue(kind)
    monkeypatch.setattr("gateway.store.durability.WITHIN", 300)
    async with open_world(topology.url) as w:
        await w.accounts.create("acme")
        assert await w.store.unconfirmed() == []
        link = w.store.link(slot("acme"))
        replica = topology.replica_of(node_of(topology, link))
        replica.signal(signal.SIGSTOP)
        try:
            await w.accounts.disable("acme")
            unconfirmed = await w.store.unconfirmed()
        finally:
            replica.signal(signal.SIGCONT)
        assert unconfirmed == [f"no replica of {link.address} said within 0 s that it has it"]

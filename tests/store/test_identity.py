"""The store's identity: what a guard accepts, and what a connection does with a server that it does not."""

from pathlib import Path

import pytest
import redis.asyncio

from gateway.accounts.authenticator import Authenticator
from gateway.errors import InvalidApiKey, StoreUnavailable
from gateway.store import EmbeddedServer, Store
from gateway.store.greeting import ServerRejected
from gateway.store.identity import (
    EVERY,
    IDENTITY,
    SCHEMA,
    StoreGuard,
    StoreIdentity,
    cluster_tags,
    first_tag,
    identity_of,
    known_deployment,
    tagged,
)
from gateway.store.slots import SLOTS, slot_of
from tests.polling import until

pytestmark = pytest.mark.slow

ONE, OTHER = "1" * 32, "2" * 32
PEPPER = b"0123456789abcdef0123456789abcdef"


@pytest.mark.holds("operations/redis.md#the-stores-identity-2")
def test_guard_refuses_everything_but_the_known_store():
    guard = StoreGuard(deployment=ONE, peppers=("p1",))
    right = StoreIdentity(ONE, peppers=("p1",))
    assert guard.problem(right) == ""
    assert "has lost its identity" in guard.problem(None)
    problem = guard.problem(StoreIdentity(OTHER, peppers=("p1",)))
    assert ONE in problem and OTHER in problem
    assert "another pepper" in guard.problem(StoreIdentity(ONE, peppers=("p2",)))
    assert "later version" in guard.problem(StoreIdentity(ONE, schema=SCHEMA + 1))
    assert guard.problem(StoreIdentity(ONE, peppers=("p2", "p1"))) == ""  # a rotation is under way
    assert guard.problem(StoreIdentity(ONE)) == ""
    assert guard.unproved


def test_guard_that_knows_no_store_learns_the_first_one():
    guard = StoreGuard()
    assert guard.problem(None) == ""
    assert guard.problem(StoreIdentity(ONE)) == ""
    assert "has lost its identity" in guard.problem(None)
    assert guard.problem(StoreIdentity(OTHER)) != ""


def test_empty_store_is_accepted_only_by_a_guard_that_was_told_so():
    guard = StoreGuard(deployment=ONE, accepts_empty=True)
    assert guard.problem(None) == ""
    assert guard.problem(StoreIdentity(OTHER)) != ""


def test_every_128th_slot_of_a_cluster_has_a_tag():
    tags = cluster_tags()
    assert [slot_of(tagged(IDENTITY, tag)) for tag in tags] == list(range(0, SLOTS, EVERY))
    assert first_tag(range(5000, 6000)) == tags[40]
    assert first_tag(range(1, EVERY)) is None
    assert tagged(IDENTITY, "") == IDENTITY


@pytest.mark.parametrize(
    ("reply", "identity"),
    [
        ({}, None),
        ({b"schema": b"1"}, None),
        ({b"deployment": b"d"}, StoreIdentity("d")),
        ([b"deployment", b"d", b"peppers", b"a b", b"schema", b"7"], StoreIdentity("d", 7, ("a", "b"))),
    ],
)
def test_identity_is_read_in_both_protocols(reply, identity):
    assert identity_of(reply) == identity


def test_known_deployment_is_kept_and_garbage_is_none(tmp_path):
    known = known_deployment(tmp_path / "deep")
    assert known.read() == ""
    known.write(ONE)
    assert known_deployment(tmp_path / "deep").read() == ONE
    (tmp_path / "deep" / "deployment").write_bytes(b"\xff not an id")
    assert known.read() == ""


async def test_connection_to_another_store_is_refused_until_it_is_the_right_one(redis_server: Path):
    client = redis.asyncio.Redis(unix_socket_path=str(redis_server))
    await client.flushall()
    await client.hset(IDENTITY, mapping={"deployment": ONE, "schema": "1"})
    with pytest.raises(ServerRejected) as caught:
        await Store.open(redis_server, guard=StoreGuard(deployment=OTHER))
    assert OTHER in (caught.value.detail or "")
    store = await Store.open(redis_server, timeout=5.0, guard=StoreGuard(deployment=OTHER), required=False)
    assert OTHER in store.problem
    with pytest.raises(StoreUnavailable):
        await store.probe()
    await client.hset(IDENTITY, "deployment", OTHER)
    await until(store.whole)
    await store.probe()
    assert store.problem == ""
    await store.close()
    await client.aclose()


async def test_unknown_key_is_unavailable_once_the_store_was_emptied(redis_server: Path):
    client = redis.asyncio.Redis(unix_socket_path=str(redis_server))
    await client.flushall()
    await client.hset(IDENTITY, mapping={"deployment": ONE, "schema": "1"})
    store = await Store.open(redis_server, timeout=5.0, guard=StoreGuard(deployment=ONE))
    auth = Authenticator(store, PEPPER)
    with pytest.raises(InvalidApiKey):
        await auth.authenticate("sk-unknown")
    await client.flushall()
    with pytest.raises(ServerRejected):
        await auth.authenticate("sk-unknown")
    assert not store.whole()
    await store.close()
    await client.aclose()


@pytest.mark.holds("operations/redis.md#the-stores-identity-4")
async def test_unknown_key_is_unavailable_after_the_server_has_evicted_keys(tmp_path: Path):
    server = EmbeddedServer(tmp_path)
    await server.start()
    client = redis.asyncio.Redis(unix_socket_path=str(server.socket))
    try:
        await client.config_set("maxmemory-policy", "allkeys-random")
        await client.hset(IDENTITY, mapping={"deployment": ONE, "schema": "1"})
        store = await Store.open(server.socket, timeout=5.0, guard=StoreGuard(deployment=ONE))
        auth = Authenticator(store, PEPPER)
        with pytest.raises(InvalidApiKey):
            await auth.authenticate("sk-unknown")
        await client.mset({f"k{n}": "x" * 1000 for n in range(1000)})
        used = (await client.info("memory"))["used_memory"]
        await client.config_set("maxmemory", used - 200_000)
        await client.set("one", "more")
        assert (await client.info("stats"))["evicted_keys"] > 0
        await client.config_set("maxmemory", 0)
        await client.hset(IDENTITY, mapping={"deployment": ONE, "schema": "1"})  # whether it was evicted or not
        with pytest.raises(ServerRejected) as caught:
            await auth.authenticate("sk-unknown")
        assert "evicted" in (caught.value.detail or "")
        await store.close()
    finally:
        await client.aclose()
        await server.stop()

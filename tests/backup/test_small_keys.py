"""Keys of few elements are read and renamed by scripts, and one by one in a cluster: both ways have the same result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.backup import staged_keys, store_dump
from gateway.backup.records import Part, RecordWriter, read_records
from gateway.backup.staged_keys import discard, place, staged_name
from gateway.backup.store_dump import ELEMENTS, StoreDump
from gateway.backup.store_load import load
from gateway.store.identity import StoreIdentity

SOON = 4_000_000_000_000  # Unix milliseconds


async def fill(w: Any) -> None:
    """An account with members, and keys of every kind and size beside it."""
    await w.caller("acme", balance=1000, user="usr_1")
    client = w.store.client
    await client.hset("{a:acme}:u:usr_2", mapping={"cap": 5, "spent": 7})  # a member without keys
    await client.set("plain", b"\xff")
    await client.set("expires", "x", pxat=SOON)
    await client.hset("hash", mapping={"a": 1, "b": 2})
    await client.sadd("set", "a", "b")
    await client.zadd("zset", {"a": 1.5, "b": 2})
    await client.pexpireat("zset", SOON)
    await client.sadd("large", *(f"member-{n}" for n in range(3 * ELEMENTS)))
    await client.xadd("stream", {"field": "value"})


async def dumped(w: Any, path: Path) -> dict[str, list[tuple[str, int, list[Any]]]]:
    writer = RecordWriter(path)
    await StoreDump(w.store, writer).run()
    writer.close()
    found: dict[str, list[tuple[str, int, list[Any]]]] = {}
    for part in read_records(path):
        values = sorted(part.values) if part.kind == "set" else part.values
        found.setdefault(part.key, []).append((part.kind, part.expires, values))
    return {
        key: [(kind, until, _sorted(kind, values)) for kind, until, values in parts] for key, parts in found.items()
    }


def _sorted(kind: str, values: list[Any]) -> list[Any]:
    return sorted(values) if kind == "set" else values


async def test_backup_of_a_server_and_of_a_cluster_read_the_same(
    world: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world() as w:
        await fill(w)
        by_script = await dumped(w, tmp_path / "one")
        monkeypatch.setattr(store_dump, "_read_small", store_dump._read_strings)
        one_by_one = await dumped(w, tmp_path / "two")
    assert {key: parts for key, parts in by_script.items() if key != "large"} == {
        key: parts for key, parts in one_by_one.items() if key != "large"
    }
    assert by_script["expires"] == [("string", SOON, [b"x"])]
    assert by_script["zset"] == [("zset", SOON, [b"a", b"1.5", b"b", b"2"])]
    assert by_script["{a:acme}:u:usr_2"] == [("hash", 0, [b"cap", b"5"])]
    assert len(by_script["large"]) > 1
    assert {"plain", "hash", "set", "stream"} <= by_script.keys()


@pytest.mark.parametrize("in_cluster", [False, True])
async def test_staged_keys_take_the_place_of_all_others(
    world: Any, monkeypatch: pytest.MonkeyPatch, in_cluster: bool
) -> None:
    monkeypatch.setattr(staged_keys, "_is_cluster", lambda store: in_cluster)
    parts = [
        Part("a", "string", [b"1"]),
        Part("{a:x}:lg", "stream", [[b"1-0", [b"f", b"v"]]]),
        Part("gone", "string", [b"2"]),
    ]
    async with world() as w:
        client = w.store.client
        await client.mset({"a": "before", "b": "before"})
        await load(w.store, [Part("old", "string", [b"3"])], name=staged_name)
        await discard(w.store)
        await load(w.store, parts, name=staged_name)
        await client.delete(staged_name("gone"))
        await place(w.store, StoreIdentity("dep", 1), "restore-1")
        names = {name.decode() for name in await client.keys("*")}
        assert {"a", "{a:x}:lg"} <= names
        assert names & {"b", "gone", "old", staged_name("a"), staged_name("old")} == set()
        assert await client.get("a") == b"1"
        assert await client.xlen("{a:x}:lg") == 1


async def test_key_that_a_backup_has_twice_is_restored_once(world: Any) -> None:
    entry = [[b"1-0", [b"f", b"v"]]]
    async with world() as w:
        twice = [Part("stream", "stream", entry), Part("hash", "hash", [b"a", b"1"])]
        changed = [Part("stream", "stream", entry), Part("hash", "hash", [b"b", b"2"])]
        await load(w.store, [*twice, *changed])
        assert await w.store.client.xlen("stream") == 1
        assert await w.store.client.hgetall("hash") == {b"b": b"2"}

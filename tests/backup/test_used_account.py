"""An account of many keys is read at one moment while its calls go on, and no command reads many of its keys."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from gateway.backup import BackupError, account_pages
from gateway.backup.account_pages import read_account
from gateway.backup.records import Part, RecordWriter, read_records
from gateway.backup.store_dump import StoreDump
from gateway.backup.store_load import load
from gateway.ledger.api_key import ApiKey
from gateway.ledger.paging import scan_pairs
from gateway.store.link import RedisLink
from tests.ledger.records import record_of, settle
from tests.polling import until

NAME = "{a:acme}"
CALLERS = 8


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(account_pages, "KEYS_TOGETHER", 100)
    monkeypatch.setattr(account_pages, "LINES", 20)


class Scripts:
    """What the script of the export has returned."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.keys: list[tuple[int, int]] = []  # per run, and the running calls
        run = RedisLink.eval

        async def noted(link: RedisLink, script: Any, *args: Any, **rest: Any) -> Any:
            reply = await run(link, script, *args, **rest)
            if script is account_pages._script:
                found = account_pages.StoredAccount(*reply)
                keys = max(len(found.keys), len(found.members), 2 * len(found.ids)) // 2
                self.keys.append((keys, len(found.holds) // 2))
            return reply

        monkeypatch.setattr(RedisLink, "eval", noted)


class Load:
    """Calls of an account, one after the other by each caller, until it is stopped."""

    def __init__(self, w: Any, keys: list[ApiKey]) -> None:
        self._w = w
        self._keys = keys
        self.calls = 0
        self._stopped = False

    async def _run(self, seed: int) -> None:
        rng = random.Random(seed)
        while not self._stopped:
            hold = await self._w.admit(rng.choice(self._keys))
            self._w.ledger.book(hold, record_of(rng.randint(0, 900)) if rng.random() < 0.8 else None)
            self.calls += 1
            await asyncio.sleep(0)

    async def __aenter__(self) -> Load:
        self._tasks = [asyncio.create_task(self._run(seed)) for seed in range(CALLERS)]
        await until(lambda: self.calls >= CALLERS)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stopped = True
        for task in self._tasks:
            await task
        await self._w.ledger.drain()


async def filled(w: Any, keys: int = 300) -> list[ApiKey]:
    """The keys of an account; most belong to members with a budget."""
    found = [await w.caller("acme", balance=10**15)]
    for number in range(1, keys):
        settings = {"user": f"usr_{number % 97}"} if number % 3 else {"budget": 10**12, "every": "month"}
        created = await w.keys.create("acme", **settings)
        found.append(await w.auth.authenticate(created.text))
    return found


async def dumped(w: Any, path: Path) -> list[Part]:
    writer = RecordWriter(path)
    await StoreDump(w.store, writer).run()
    writer.close()
    return list(read_records(path))


@pytest.mark.holds("operations/backup.md#backup-and-restore-10")
async def test_backup_of_an_account_that_is_used_is_of_one_moment(
    world: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world() as w:
        keys = await filled(w)
        scripts = Scripts(monkeypatch)
        read, begun = account_pages._hashes, list[int]()

        async def slow(*args: Any) -> Any:
            """Many calls begin and end while a page is read."""
            before = load_.calls
            begun.append(before)
            found = await read(*args)
            if len(begun) <= 6:
                await until(lambda: load_.calls >= before + 5 * CALLERS)
            return found

        monkeypatch.setattr(account_pages, "_hashes", slow)
        async with Load(w, keys) as load_:
            parts = await dumped(w, tmp_path / "store")
            assert load_.calls - begun[0] > 100
        assert len(begun) > 3, "more than one round"
        assert all(keys <= account_pages.LINES + running for keys, running in scripts.keys)
        lines = [part for part in parts if part.key == f"{NAME}:lg"]
        assert lines, "there was something to compare"
        assert sum(part.key.startswith(f"{NAME}:k:") for part in parts) == len(keys)
        await w.store.client.flushall()
        await load(w.store, parts)
        await w.proved()


async def test_no_command_reads_all_keys(world: Any) -> None:
    async with world() as w:
        keys = await filled(w)
        hold = await w.admit(keys[6])
        await w.store.client.config_resetstat()
        found = await read_account(w.store.link(NAME), NAME)
        stats = await w.store.client.info("commandstats")
        assert "cmdstat_smembers" not in stats
        assert (len(found.keys), len(found.ids)) == (2 * len(keys), len(keys))
        of_key = dict(zip(found.keys[::2], found.keys[1::2], strict=True))[keys[6].id.encode()]
        assert dict(zip(of_key[::2], of_key[1::2], strict=True))[b"held"] == b"1000"
        await settle(w.ledger, hold, 5)


async def test_key_that_is_made_and_used_meanwhile_is_in_the_account(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world() as w:
        await filled(w)
        read, made = account_pages._hashes, list[ApiKey]()

        async def slow(*args: Any) -> Any:
            found = await read(*args)
            if len(made) < 2:
                made.append(await w.caller("acme", user="usr_new", budget=10**12))
                hold = await w.admit(made[-1])
                if len(made) == 1:
                    await settle(w.ledger, hold, 5)
            return found

        monkeypatch.setattr(account_pages, "_hashes", slow)
        found = await read_account(w.store.link(NAME), NAME)
        hashes = {id_: dict(zip(fields[::2], fields[1::2], strict=True)) for id_, fields in pairs(found.keys)}
        used, running = (hashes[key.id.encode()] for key in made)
        assert (used[b"spent"], running[b"held"]) == (b"5", b"1000")
        assert {key.id.encode() for key in made} <= set(found.ids)
        member = dict(pairs(dict(pairs(found.members))[b"usr_new"]))
        assert (member[b"spent"], member[b"held"]) == (b"5", b"1000")


def pairs(flat: list[Any]) -> list[tuple[Any, Any]]:
    return list(zip(flat[::2], flat[1::2], strict=True))


async def test_long_archive_checkpoint_is_read_in_pages_and_is_that_of_the_moment(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world() as w:
        await w.caller("acme")
        name, client = f"{NAME}:ca", w.store.client
        await client.hset(name, mapping={"n": 1, "bal": 5, "id": "1-1", "hash": "a"})
        await client.hset(name, mapping={f"k:key_{number}": number for number in range(300)})
        read = scan_pairs

        async def moved(link: Any, key: str) -> Any:
            """Another process trims once while it is read."""
            found = await read(link, key)
            if key == name and await client.hget(name, "n") == b"1":
                await client.hset(name, mapping={"n": 2, "hash": "b", "k:key_7": 70})
            return found

        monkeypatch.setattr(account_pages, "scan_pairs", moved)
        found = await read_account(w.store.link(NAME), NAME)
        assert dict(pairs(found.checkpoint)) == await client.hgetall(name)


async def test_account_that_never_rests_is_named(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(account_pages, "ROUNDS", 3)
    monkeypatch.setattr(account_pages, "LINES", -1)
    async with world() as w:
        await filled(w, 120)
        with pytest.raises(BackupError, match="account acme changes faster than it can be read"):
            await read_account(w.store.link(NAME), NAME)

"""A data directory that the version of commit 06d6d44 made by running is opened, imported and audited clean.

It has an archive, a settlement that the store refused, journals of workers that were killed during streams, and answers
that are kept for a repeated request.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.chaos.versions import OLD_COMMIT, Versioned, old_source
from tests.polling import until
from tests.processes.conftest import Yard
from tests.processes.served import MODELS

DAYS_AGO = 48 * 3_600_000  # milliseconds


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The code of the old version."""
    folder = old_source(tmp_path_factory.mktemp("source"))
    if folder is None:
        pytest.skip(f"git archive does not find {OLD_COMMIT}: this is no clone with the whole history")
    return folder


async def once(gateway: Versioned) -> tuple[dict[str, str], bytes]:
    """Headers and body of a request that is always the same, with an Idempotency-Key."""
    body = {"model": "quick", "messages": [{"role": "user", "content": "Hi"}]}
    headers = {"Authorization": f"Bearer {gateway.api_key}", "Idempotency-Key": "only-once"}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{gateway.base_url}/chat/completions", json=body, headers=headers) as response,
    ):
        assert response.status == 200
        return dict(response.headers), await response.read()


async def age(gateway: Versioned) -> None:
    """Let all lines so far have been booked two days ago."""
    async with gateway.session() as session:
        client: Any = session.store.client
        for name in ("{a:test}:lg", "{a:gone}:lg"):
            entries = await client.xrange(name)
            await client.delete(name)
            for id_, fields in entries:
                milliseconds, _, step = id_.decode().partition("-")
                await client.xadd(name, fields, id=f"{int(milliseconds) - DAYS_AGO}-{step}")


async def refuse_one(gateway: Versioned) -> None:
    """A call whose account is lost while it runs: its settlement is set aside."""
    await gateway.command("accounts", "create", "gone", "--balance", "10")
    gone = str((await gateway.command("keys", "create", "gone"))["key"])
    async with gateway.session() as session:
        client: Any = session.store.client
        own = gateway.api_key
        gateway.api_key = gone
        stream = await gateway.stream("slow").flowing()
        gateway.api_key = own
        kept = {name: await client.dump(name) async for name in client.scan_iter(match="{a:gone}*")}
        await client.delete(*kept)
        await stream.ended()
        path = gateway.data_dir / "journal" / "refused.jsonl"
        await until(lambda: path.exists() and path.read_text().endswith("\n"))
        for name, content in kept.items():
            if not name.endswith((b":rv", b":rx", b":cc")) and b":cc:" not in name:
                await client.restore(name, 0, content, replace=True)
        await client.hset("{a:gone}", "held", 0)


async def old_data(yard: Yard, source: Path, archive: Path) -> tuple[Versioned, bytes]:
    """A gateway whose data directory the old version has made, and which was killed; the body of the kept answer."""
    gateway = yard.make(MODELS, name="upgraded", kind=Versioned, workers=2)
    assert isinstance(gateway, Versioned)
    gateway.source, gateway.count = source, 2
    gateway.use_version(is_old=True)
    await gateway.started(workers=2)
    assert gateway.code() == source
    await gateway.command("accounts", "create", "test", "--balance", "100")
    gateway.api_key = str((await gateway.command("keys", "create", "test", "--budget", "50"))["key"])
    for _ in range(5):
        assert (await gateway.chat()).status == 200
    await refuse_one(gateway)
    await age(gateway)
    moved = await gateway.command("compact", "--all", "--before", "26h", "--archive", str(archive))
    assert (moved["accounts"], moved["lines"]) == (2, 7)
    _, kept = await once(gateway)
    assert (await gateway.chat()).status == 200
    streams = await gateway.flowing(3, "endless")
    await gateway.kill_all()
    for stream in streams:
        await stream.ended()
    return gateway, kept


async def test_data_of_the_old_version_is_opened_imported_and_audited_clean(
    yard: Yard, source: Path, tmp_path: Path
) -> None:
    archive = tmp_path / "old-lines.jsonl"
    gateway, kept = await old_data(yard, source, archive)
    journal = gateway.data_dir / "journal"
    assert list(journal.glob("*.jsonl"))
    assert list(journal.glob("*.board"))
    gateway.use_version(is_old=False)
    await gateway.started(workers=2)

    async def released() -> bool:
        return (await gateway.account()).held == 0

    await until(released)
    headers, body = await once(gateway)
    assert (headers.get("Idempotent-Replayed"), body) == ("true", kept)
    lines = await gateway.charges()
    assert sum(line.meta.get("outcome") != "stop" for line in lines) >= 3  # the streams that were killed are charged
    (refused,) = await gateway.command("refused", "list")
    assert refused["account"] == "gone"  # charged already: the journal of the killed worker had it, too
    assert (await gateway.command("refused", "book", "--all"))[0]["state"] == "booked"
    booked = await gateway.command("usage", "gone")
    assert [line["request_id"] for line in booked if line["kind"] == "use"] == [refused["request_id"]]
    assert (await gateway.chat()).status == 200

    async def imported() -> bool:
        done = await asyncio.to_thread(gateway.run, "audit", "--json")
        report = json.loads(done.stdout)
        return bool(report["history_lines"] == report["lines"] and done.returncode == 0)

    await until(imported)
    in_store = (await gateway.command("audit"))["lines"]
    assert await gateway.command("history", "import-archive", str(archive)) == {"accounts": 2, "lines": 7}
    report = await gateway.command("audit")
    assert (report["lines"], report["history_lines"], report["mismatches"]) == (in_store, in_store + 7, [])
    report = await gateway.command("audit", "--archive", str(archive))
    assert (report["lines"], report["mismatches"]) == (in_store + 7, [])
    usage = await gateway.command("usage", "test")
    assert [line["kind"] for line in usage[:6]] == ["open", "use", "use", "use", "use", "use"]
    key = (await gateway.command("keys", "list", "test"))[0]
    assert (key["state"], key["budget"]) == ("active", "50")
    folder = str(tmp_path / "backup")
    assert (await gateway.command("backup", folder))["history_lines"] == in_store + 7

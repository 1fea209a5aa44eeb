"""Two gateways go to this version and back to the one before, under load, as docs/operations/upgrade.md says."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.versions import archived_source
from tests.delays import operator_waits_for
from tests.polling import until
from tests.processes.conftest import Yard, store_url
from tests.processes.proxies_in_front import small_proxy
from tests.processes.rolling import load, two_gateways
from tests.processes.served import MODELS, Served, unmanaged_environment
from tests.processes.test_importer import imported, rows, url

__all__ = ["store_url", "url"]

BEFORE = "3dacfa3"  # the commit of the version before
FAIL_TIMEOUT = 3.0  # seconds, of the proxy
WITHIN = 120.0  # seconds: the importer has the lowest priority, and other tests use the processor first


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The code of the version before."""
    folder = archived_source(tmp_path_factory.mktemp("source"), BEFORE)
    if folder is None:
        pytest.skip(f"git archive does not find {BEFORE}: this is no clone with the whole history")
    return folder


class Installed(Served):
    """A gateway whose version can be replaced."""

    def install(self, source: Path | None) -> None:
        """Use the code of this folder from now on, or that of this version."""
        self.environment = unmanaged_environment()
        if source is not None:
            self.environment["PYTHONPATH"] = str(source)


async def stopped(gateway: Served) -> None:
    os.kill(gateway.pid, signal.SIGTERM)
    assert await gateway.ended() == 0


async def rolled(gateways: Sequence[Installed], source: Path | None) -> None:
    """A rolling restart with another version."""
    for gateway in gateways:
        gateway.install(source)
        await stopped(gateway)
        await gateway.started()
        await operator_waits_for(FAIL_TIMEOUT + 0.5)


async def is_upgraded(gateways: Sequence[Served]) -> bool:
    """Whether an importer of this version uses the database."""
    return any([(await gateway.metrics()).get("gateway_database_up") == 1.0 for gateway in gateways])


@pytest.mark.holds("operations/upgrade.md#upgrade-and-return-1")
@pytest.mark.gen_test(timeout=600)
@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
async def test_upgrade_and_both_ways_of_return_lose_no_call(
    yard: Yard, source: Path, store_url: str, url: str, postgres: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = yard.make

    def installed(**options: Any) -> Served:
        gateway = make(f'{MODELS}\n[database]\nurl = "{url}"\n', kind=Installed, **options)
        assert isinstance(gateway, Installed)
        gateway.install(source)
        return gateway

    monkeypatch.setattr(yard, "make", installed)
    gateways: Any = await two_gateways(yard, store_url)
    first, ports, backup = gateways[0], [gateway.port for gateway in gateways], str(tmp_path / "backup")
    await imported(first, url=url, within=WITHIN)
    async with small_proxy(ports, fail_timeout=FAIL_TIMEOUT) as address, load(address, first.api_key) as answers:
        await first.command("backup", backup, "--with-pepper")
        first.install(None)
        assert first.run("check").returncode == 0
        await rolled(gateways, None)
        await until(lambda: is_upgraded(gateways), within=WITHIN)
        await rolled(gateways, source)
        known = len(rows(first, url=url))
        refused = await asyncio.to_thread(first.run, "audit")
        assert refused.returncode == 1 and "newer than this program" in refused.stderr
        await rolled(gateways, None)
    assert answers.failed == 0, answers.statuses
    await imported(first, url=url, within=WITHIN)
    assert len(rows(first, url=url)) > known, "the store kept the lines"
    assert (await first.command("audit"))["mismatches"] == []
    for gateway in gateways:
        await stopped(gateway)
        gateway.install(source)
    refused = await asyncio.to_thread(first.run, "restore", backup, "--force")
    assert refused.returncode == 1 and "newer than this program" in refused.stderr
    replaced = str(postgres.new_database())  # that version replaces no newer database
    for gateway in gateways:
        gateway.configure(f'{MODELS}\n[database]\nurl = "{replaced}"\n')
    assert (await first.command("restore", backup, "--force"))["audit"]["mismatches"] == []
    for gateway in gateways:
        await gateway.started()
        assert (await gateway.chat()).status == 200
    await imported(first, url=replaced, within=WITHIN)
    assert (await first.command("audit"))["mismatches"] == []

"""Two gateways go to this version and back to the one before, under load, as docs/operations/upgrade.md says."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.versions import archived_source
from tests.polling import until
from tests.processes.conftest import Yard, store_url
from tests.processes.proxies_in_front import small_proxy
from tests.processes.rolling import Installed, install_first, is_upgraded, load, replace, stopped, two_gateways
from tests.processes.served import MODELS
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


async def rolled(gateways: Sequence[Installed], source: Path | None) -> None:
    """A rolling restart with another version."""
    for gateway in gateways:
        await replace(gateway, source, pause=FAIL_TIMEOUT + 0.5)


@pytest.mark.holds("operations/upgrade.md#upgrade-and-return-1")
@pytest.mark.gen_test(timeout=600)
@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
async def test_upgrade_and_both_ways_of_return_lose_no_call(
    yard: Yard, source: Path, store_url: str, url: str, postgres: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_first(yard, source, f'{MODELS}\n[database]\nurl = "{url}"\n', monkeypatch)
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

"""Two gateways of the last release go to this version and back under load, as docs/operations/upgrade.md says."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from gateway.amounts import parse_amount
from tests.chaos.versions import archived_source
from tests.polling import until
from tests.processes.conftest import Yard, store_url
from tests.processes.proxies_in_front import small_proxy
from tests.processes.rolling import Installed, install_first, is_upgraded, load, replace, two_gateways
from tests.processes.served import MODELS
from tests.processes.test_importer import url
from tests.releases.registry import UNRELEASED, releases

__all__ = ["store_url", "url"]

BEFORE = [release for release in releases() if release.version != UNRELEASED][-1]
FAIL_TIMEOUT = 1.0  # seconds, of the proxy
PAUSE = FAIL_TIMEOUT + 0.5
COST, CALLS = "0.25", 9  # of a call with the key that has a budget for so many
MORE = f"""
[models.fixed]
provider = "fake"
model = "quick"
max_output_tokens = 64
price = {{ per_request = {COST} }}

[database]
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The code of the last release."""
    folder = archived_source(tmp_path_factory.mktemp("source"), BEFORE.commit)
    if folder is None:
        pytest.skip(f"git archive does not find {BEFORE.commit}: this is no clone with the whole history")
    return folder


class Spender:
    """Spends the budget of a key at both gateways in turn."""

    def __init__(self, gateways: list[Installed], key: str) -> None:
        self._gateways = gateways
        self._key = key
        self.served = 0

    async def spend(self, calls: int) -> None:
        """So many calls, each of which is served."""
        for _ in range(calls):
            answer = await self._gateways[self.served % 2].chat("fixed", key=self._key)
            assert answer.status == 200, answer.body
            self.served += 1

    async def is_refused_by_both(self) -> bool:
        """Whether no gateway serves one more."""
        answers = [await gateway.chat("fixed", key=self._key) for gateway in self._gateways]
        return [answer.status for answer in answers] == [429, 429]


@pytest.mark.holds("operations/upgrade.md#what-is-tested-3")
@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
async def test_rolling_upgrade_from_the_last_release_and_rollback_lose_no_call_and_charge_exactly(
    yard: Yard, source: Path, store_url: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_first(yard, source, f'{MODELS}{MORE}url = "{url}"\n', monkeypatch)
    gateways: Any = await two_gateways(yard, store_url)
    one, two = gateways
    budget = str(CALLS * float(COST))
    spender = Spender(gateways, (await one.command("keys", "create", "test", "--budget", budget))["key"])
    ports = [gateway.port for gateway in gateways]
    async with (
        small_proxy(ports, fail_timeout=FAIL_TIMEOUT) as address,
        load(address, one.api_key, clients=2) as answers,
        load(address, one.api_key, clients=2, model="slow") as slow,
    ):
        await spender.spend(2)
        await replace(one, None, pause=PAUSE)
        await spender.spend(2)
        await replace(two, None, pause=PAUSE)
        await until(lambda: is_upgraded(gateways))
        await spender.spend(2)
        await replace(one, source, pause=PAUSE)
        await spender.spend(2)
        await replace(two, source, pause=PAUSE)
        await spender.spend(1)
        assert spender.served == CALLS
        assert await spender.is_refused_by_both()
    assert answers.failed == slow.failed == 0, (answers.statuses, slow.statuses)
    refused = await asyncio.to_thread(one.run, "audit")
    assert refused.returncode == 1 and "newer than this program" in refused.stderr
    one.install(None)  # its commands are of this version now

    async def settled() -> bool:
        return (await one.account()).held == 0

    await until(settled)
    lines = [line for line in await one.command("usage", "test") if line["kind"] != "open"]
    served = answers.statuses.total() + slow.statuses.total() + spender.served
    assert {line["kind"] for line in lines} == {"use"}
    assert len(lines) == len({line["request_id"] for line in lines}) == served
    fixed = [line for line in lines if line["model"] == "fixed"]
    assert [parse_amount(line["amount"]) for line in fixed] == [-parse_amount(COST)] * CALLS
    shown = await one.command("accounts", "show", "test")
    charged = sum(parse_amount(line["amount"]) for line in lines)
    assert parse_amount(shown["balance"]) == parse_amount("1000") + charged
    report = await one.command("audit")
    assert report["mismatches"] == []
    assert report["lines"] + report["history_lines"] >= served

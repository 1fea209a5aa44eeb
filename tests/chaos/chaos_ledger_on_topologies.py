"""The ledger's own tests, word for word, on a trio of sentinels and on a six-node cluster.

Run by name: `pytest tests/chaos/chaos_ledger_on_topologies.py`. The tests come from tests/ledger and from those of
accounts, keys and authentication; only the `world` they open is another. At the end are those that need a topology:
commands by its URL, and a cluster that lacks a shard.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from gateway import errors
from tests.accounts.test_accounts import *  # noqa: F403
from tests.accounts.test_authenticator import *  # noqa: F403
from tests.accounts.test_keys import *  # noqa: F403
from tests.chaos.redis_topologies import Node, SixNodes, sentinel_trio, six_nodes
from tests.cli.conftest import Terminal
from tests.inference.test_active_calls import *  # noqa: F403
from tests.ledger.records import settle
from tests.ledger.test_admit import *  # noqa: F403
from tests.ledger.test_archive import *  # noqa: F403
from tests.ledger.test_archive import aged
from tests.ledger.test_audit import *  # type: ignore[assignment]  # noqa: F403
from tests.ledger.test_dry_run import *  # noqa: F403
from tests.ledger.test_journal import *  # noqa: F403
from tests.ledger.test_limits import *  # noqa: F403
from tests.ledger.test_settle import *  # noqa: F403
from tests.world import OpenWorld, open_world


@pytest.fixture(scope="module", params=[sentinel_trio, six_nodes], ids=["sentinel", "cluster"])
def topology_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with ExitStack() as stack:
        yield stack.enter_context(request.param(tmp_path_factory.mktemp("topology"))).url


@pytest.fixture
def world(topology_url: str) -> OpenWorld:
    return partial(open_world, topology_url)


# Of their own --------------------------------------------------------------------------------------------------------

CONFIG = """
[store]
url = "{url}"
data_dir = "{folder}"

[providers.fake]
plugin = "fake"

[models.m]
provider = "fake"
price = {{ input = 0.5, output = 1.5 }}
"""
ACCOUNTS = [f"account-{n}" for n in range(9)]  # enough for every master of a cluster to have some


@pytest.mark.holds("operations/backup.md#backup-and-restore-2", "scaling.md#limits-5")
def test_explain_backup_restore_and_audit_commands_work_on_each_topology(topology_url: str, tmp_path: Path) -> None:
    config = tmp_path / "gateway.toml"
    config.write_text(CONFIG.format(url=topology_url, folder=tmp_path / "var"))
    terminal = Terminal(config)

    async def fill() -> list[str]:
        async with open_world(topology_url) as w:
            keys = [await w.caller(account) for account in ACCOUNTS]
            for key in keys:
                await settle(w.ledger, await w.admit(key), 5)
                await aged(w, key.account)
            return [key.id for key in keys]

    for key_id in asyncio.run(fill()):
        told = terminal.json("explain", key_id, "m", "--tokens", "100", "--max-tokens", "10")
        assert told["admitted"], told
        assert terminal.run("explain", key_id, "m", "--tokens", "100000000").exit_code == 1  # costs more than there is
    every = {"accounts": len(ACCOUNTS), "lines": 2 * len(ACCOUNTS)}
    assert _audited(terminal) == every
    folder = str(tmp_path / "backup")
    assert terminal.json("backup", folder)["keys"] == len(ACCOUNTS)
    terminal.ok("accounts", "credit", ACCOUNTS[0], "1")
    assert "not empty: the store" in terminal.refused("restore", folder)
    restored = terminal.json("restore", folder, "--force")
    assert restored["undone"]["lost"] == [{"account": ACCOUNTS[0], "lines": 1, "amount": "1"}]
    assert _audited(terminal) == every


def _audited(terminal: Terminal, *options: str) -> dict[str, int]:
    """The number of accounts and of lines that an audit without a finding has read."""
    report = terminal.json("audit", *options)
    assert not any(report[found] for found in ("mismatches", "unreachable", "moving", "late", "uncollected"))
    return {name: report[name] for name in ("accounts", "lines")}


@pytest.mark.gen_test(timeout=60)
async def test_cluster_without_a_shard_reclaims_and_audits_the_others(tmp_path: Path) -> None:
    with six_nodes(tmp_path) as nodes:
        async with open_world(nodes.url) as w:
            for account in ACCOUNTS:
                await w.expire(await w.admit(await w.caller(account)))
            index = w.store.link("accounts").address.port
            lost = next(link.address.port for link in w.store.links if link.address.port != index)
            away = {name for name in ACCOUNTS if w.store.link(f"{{a:{name}}}").address.port == lost}
            assert 0 < len(away) < len(ACCOUNTS)
            for node in _with_replica(nodes, lost):
                node.signal(signal.SIGSTOP)
            with pytest.raises(errors.StoreUnavailable):
                await w.ledger.reclaim()
            report = await w.ledger.audit()
            # The key scan for accounts that the index lacks needs every server, so the audit names the lost one too.
            assert set(report.unreachable) == {*away, f"server redis://127.0.0.1:{lost}/0"}
            assert (report.accounts, report.mismatches) == (len(ACCOUNTS) - len(away), [])
            for name in set(ACCOUNTS) - away:
                assert (await w.accounts.show(name)).held == 0
            for node in _with_replica(nodes, lost):
                node.signal(signal.SIGCONT)


def _with_replica(nodes: SixNodes, port: int) -> list[Node]:
    master = next(number for number, node in enumerate(nodes.nodes) if node.port == port)
    return [nodes.nodes[master], nodes.nodes[master + 3]]

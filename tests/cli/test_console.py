"""The installed `gateway` command, as a process of its own, on an embedded store it starts for the moment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gateway.accounts.pepper import load_pepper
from gateway.cli import COMMANDS
from gateway.store import EmbeddedServer
from tests.polling import ENDS_WITHIN

pytestmark = pytest.mark.slow

CONFIG = """
[providers.fake]
plugin = "fake"

[models.fake-chat]
provider = "fake"
price = { input = 0.5, output = 1.5 }
"""


class Console:
    """Runs the console entry in a folder with a gateway.toml."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "gateway.toml").write_text(CONFIG)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run it, whatever comes of it."""
        environment = {name: value for name, value in os.environ.items() if name != "GATEWAY_CONFIG"}
        return subprocess.run(
            [Path(sys.executable).with_name("gateway"), *words],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=ENDS_WITHIN,
        )

    def json(self, *words: str) -> Any:
        """The document of a command that ends well."""
        done = self.run(*words, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


@pytest.fixture
def console(tmp_path: Path) -> Console:
    """A console without a running gateway."""
    return Console(tmp_path)


@pytest.mark.holds("README.md#serve-real-models-3", "operations/redis.md#the-stores-identity-6")
def test_every_command_group_works_without_a_running_gateway(console: Console) -> None:
    assert console.json("accounts", "create", "acme", "--balance", "5")["balance"] == "5"
    refused = console.run("keys", "create", "acme")
    assert refused.returncode == 1
    assert "there is no pepper" in refused.stderr
    assert not (console.folder / "var" / "pepper").exists(), "no command creates a pepper"
    load_pepper(console.folder / "var")  # as `gateway serve` does at its first start
    created = console.run("keys", "create", "acme")
    assert created.returncode == 0
    assert created.stdout.startswith("sk-")
    assert created.stdout.count("\n") == 1
    assert console.json("keys", "list")[0]["account"] == "acme"
    assert [line["kind"] for line in console.json("usage", "acme")] == ["open"]
    assert console.json("audit")["mismatches"] == []
    assert console.json("models")[0]["id"] == "fake-chat"
    assert {report["name"] for report in console.json("plugins")} >= {"openai", "fake"}
    assert console.json("check")["ok"]
    assert not list(console.folder.glob("var/store/*.pid"))


@pytest.mark.holds("README.md#serve-real-models-3")
def test_commands_use_the_running_server(console: Console) -> None:
    server = EmbeddedServer(console.folder / "var")
    server.start_blocking()
    try:
        pid = server.pid
        assert console.json("accounts", "create", "acme")["name"] == "acme"
        assert [account["name"] for account in console.json("accounts", "list")] == ["acme"]
        assert server.pid == pid
    finally:
        server.stop_blocking()
    assert [account["name"] for account in console.json("accounts", "list")] == ["acme"]


def test_failure_prints_one_line_on_stderr_and_exits_with_status_1(console: Console) -> None:
    failed = console.run("accounts", "show", "nobody", "--json")
    assert (failed.returncode, failed.stdout, failed.stderr) == (1, "", "gateway: no account 'nobody'\n")


@pytest.mark.holds("operations/audit.md#audit-4")
def test_wrong_use_exits_with_status_2(console: Console) -> None:
    failed = console.run("keys", "create", "acme", "--rpm", "x")
    assert (failed.returncode, failed.stdout) == (2, "")
    assert failed.stderr.startswith("Usage: gateway keys create")


def test_missing_configuration_error_names_the_searched_paths(console: Console) -> None:
    (console.folder / "gateway.toml").unlink()
    failed = console.run("accounts", "list")
    assert failed.returncode == 1
    assert "GATEWAY_CONFIG" in failed.stderr
    named = console.run("accounts", "list", "--config", "absent.toml")
    assert (named.returncode, named.stderr) == (1, "gateway: absent.toml: cannot be read: No such file or directory\n")


@pytest.mark.holds("operations/audit.md#audit-3")
def test_unreachable_store_is_reported_in_one_line_without_the_password(console: Console) -> None:
    (console.folder / "gateway.toml").write_text('[store]\nurl = "redis://user:canary@127.0.0.1:1"\n')
    failed = console.run("accounts", "list")
    assert failed.returncode == 1
    assert failed.stderr.startswith("gateway: ")
    assert failed.stderr.count("\n") == 1
    assert "canary" not in failed.stderr


def test_python_m_gateway_is_the_same_command(console: Console) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "gateway", "--help"], capture_output=True, text=True, timeout=ENDS_WITHIN
    )
    assert run.returncode == 0
    assert all(f"  {name} " in run.stdout for name in COMMANDS)


def test_help_loads_neither_the_engine_nor_its_libraries(console: Console) -> None:
    heavy = ("redis", "rich", "tornado", "gateway.ledger", "gateway.store")
    script = (
        "import sys\nfrom gateway.cli import cli\n"
        "cli(['--help'], standalone_mode=False)\n"
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=ENDS_WITHIN)
    assert run.stdout.splitlines()[-1] == "[]", run.stdout + run.stderr


def test_demo_option_works_on_the_demos_store(console: Console) -> None:
    (console.folder / "gateway.toml").unlink()
    assert console.json("accounts", "create", "acme", "--demo")["group"] == "default"
    assert (console.folder / "var" / "demo" / "store").is_dir()

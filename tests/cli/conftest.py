"""A terminal for the command tests: the real commands, in this process, on the real store."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gateway.accounts.pepper import load_pepper
from gateway.cli import cli
from gateway.store import Store
from gateway.store.address import StoreAddress

CONFIG = """
[store]
url = "unix://{socket}"
data_dir = "{folder}"

[providers.fake]
plugin = "fake"

[models.fake-chat]
provider = "fake"
aliases = ["short"]
price = {{ input = 0.5, output = 1.5 }}

[models.other]
targets = [{{ provider = "fake", model = "a", weight = 2 }}, {{ provider = "fake" }}]
groups = ["vip"]
free = true

[groups.vip]
rpm = 5
"""


class Terminal:
    """Runs `gateway …` and tells what it printed."""

    def __init__(self, config: Path) -> None:
        self.config = config
        self.environment = {"GATEWAY_CONFIG": str(config)}

    def run(self, *words: str, stdin: str = "") -> Result:
        """Run it, whatever comes of it."""
        return CliRunner().invoke(cli, list(words), env=self.environment, prog_name="gateway", input=stdin or None)

    def ok(self, *words: str) -> str:
        """What it printed, having ended well."""
        result = self.run(*words)
        assert result.exit_code == 0, result.output
        return result.stdout

    def json(self, *words: str) -> Any:
        """The one document that `--json` prints."""
        return json.loads(self.ok(*words, "--json"))

    def refused(self, *words: str, status: int = 1) -> str:
        """The message of a command that must not succeed and prints nothing else."""
        result = self.run(*words)
        assert result.exit_code == status, result.output
        assert result.stdout == ""
        assert "Traceback" not in result.stderr
        return result.stderr


@pytest.fixture
def terminal(valkey: Path, tmp_path: Path) -> Terminal:
    """Commands on an empty store."""
    config = tmp_path / "gateway.toml"
    config.write_text(CONFIG.format(socket=valkey, folder=tmp_path / "var"))
    terminal = Terminal(config)
    load_pepper(tmp_path / "var")  # as `gateway serve` did at its first start
    on_store(valkey, lambda store: store.client.flushall())
    return terminal


def on_store(socket: Path | StoreAddress, work: Callable[[Store], Any]) -> Any:
    """Do something to the store behind the commands' back."""

    async def session() -> Any:
        store = await Store.open(socket, timeout=20.0)
        try:
            return await work(store)
        finally:
            await store.close()

    return asyncio.run(session())

"""`gateway serve --demo` in a folder, at ports that are free."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, chdir, closing
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from gateway.cli import cli
from gateway.config.loader import DEMO_FOLDER, DEMO_PORTS_VARIABLE
from gateway.testing.ports import free_ports
from gateway.testing.running import START_WITHIN
from tests.polling import ENDS_WITHIN, until

LAST_WORDS = "and run: gateway serve"


class Demo:
    """The demo in a folder."""

    def __init__(self, folder: Path) -> None:
        ports = free_ports(3)
        self.url, self.console = (f"http://127.0.0.1:{port}" for port in ports[:2])
        self._folder = folder
        self._environment = {**os.environ, DEMO_PORTS_VARIABLE: ",".join(map(str, ports))}

    def command(self, *arguments: str) -> Any:
        """The JSON that a command prints; it runs in a thread, which has no event loop, of this process."""
        with ThreadPoolExecutor(1) as thread:
            result = thread.submit(self._invoked, *arguments).result()
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    def lines(self) -> int:
        """How many ledger lines its database has."""
        with closing(sqlite3.connect(f"file:{self._folder / DEMO_FOLDER}/gateway.db?mode=ro", uri=True)) as connection:
            return int(connection.execute("SELECT count(*) FROM ledger_lines").fetchone()[0])

    def _invoked(self, *arguments: str) -> Result:
        with chdir(self._folder):
            return CliRunner().invoke(cli, [*arguments, "--demo", "--json"], env=self._environment)

    @asynccontextmanager
    async def started(self) -> AsyncIterator[str]:
        """Run it; the value is what it prints."""
        printed = self._folder / "printed"
        with printed.open("wb") as file, (self._folder / "log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "gateway", "serve", "--demo"], **self._options, stdout=file, stderr=log
            )
        try:
            await until(lambda: LAST_WORDS in printed.read_text() or process.poll() is not None, within=START_WITHIN)
            yield printed.read_text()
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(ENDS_WITHIN) == 0

    @property
    def _options(self) -> dict[str, Any]:
        return {"cwd": self._folder, "env": self._environment}


def link_in(text: str) -> str:
    """The path of the link, with its token."""
    return re.findall(r"http://\S+(/sign-in/link\?token=\S+)", text)[0]

"""The console on a port of the loopback, over an empty store and an empty database."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from argon2 import PasswordHasher

from gateway.people.password_hashes import PasswordHashes
from gateway.setup.configuration_check import CheckOptions, Findings
from tests.console.client import Console
from tests.console.opening import opened_console

OpenConsole = Callable[..., AbstractAsyncContextManager[Console]]


async def sound(file: Path | None, options: CheckOptions) -> Findings:
    """What the check of a sound file finds; the tests have no file."""
    return Findings("")


@pytest.fixture
def database_url() -> str:
    """SQLite; a module whose tests need both kinds imports the fixture of `tests.admin_api.both_databases`."""
    return ""


@pytest.fixture
def hashes() -> Iterator[PasswordHashes]:
    """Hashes that cost little."""
    hashes = PasswordHashes(PasswordHasher(time_cost=1, memory_cost=8, parallelism=1))
    yield hashes
    hashes.close()


@pytest.fixture
def console(
    valkey: Path, tmp_path: Path, database_url: str, hashes: PasswordHashes, monkeypatch: pytest.MonkeyPatch
) -> OpenConsole:
    """Serves the console, with the accounts acme and other. `settings` are those of `[console]`."""

    monkeypatch.setattr("gateway.console.pages.site_models.check_in_thread", sound)

    def opened(**options: Any) -> AbstractAsyncContextManager[Console]:
        return opened_console(valkey, tmp_path, hashes, database_url=database_url, **options)

    return opened

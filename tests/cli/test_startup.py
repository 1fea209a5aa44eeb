"""What a command imports before it answers: its time is that of the modules, so their number is held, and no time."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from gateway.database.address import DatabaseAddress
from gateway.database.engine import Database

from .conftest import Terminal

#: Of no use to a command on the store and the database: alembic is for migrations, the others are of the server.
HEAVY = {"aiohttp", "alembic", "mako", "pygments", "redis", "rich", "sqlalchemy.dialects.postgresql", "tornado"}


def loaded(terminal: Terminal, *words: str) -> set[str]:
    """The modules that are loaded when the command has ended, whatever it said."""
    code = (
        "import sys\n"
        "from gateway.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print('modules:', *sys.modules)"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, *words],
        env={**os.environ, "GATEWAY_CONFIG": str(terminal.config)},
        capture_output=True,
        check=True,
        text=True,
    )
    return set(run.stdout.splitlines()[-1].split()[1:])


def of_the_gateway(modules: set[str]) -> int:
    return sum(name.partition(".")[0] == "gateway" for name in modules)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "most"), [(("--help",), 6), (("usage", "show", "--help"), 25), (("audit", "--help"), 25)]
)
def test_help_loads_few_modules_and_no_engine(terminal: Terminal, words: tuple[str, ...], most: int) -> None:
    modules = loaded(terminal, *words)
    assert sorted(modules & {*HEAVY, "asyncio", "sqlalchemy", "gateway.config.settings", "gateway.store.store"}) == []
    assert of_the_gateway(modules) <= most


@pytest.mark.slow
def test_one_call_is_shown_with_the_modules_that_read_it(terminal: Terminal) -> None:
    Database.open(DatabaseAddress(file=terminal.config.parent / "var" / "gateway.db")).close()
    terminal.ok("accounts", "create", "acme")
    modules = loaded(terminal, "usage", "show", "req_1", "--account", "acme")
    assert "sqlalchemy" in modules  # it has looked into the database
    assert sorted(modules & {*HEAVY, "gateway.ledger.ledger", "gateway.accounts.keys"}) == []
    assert of_the_gateway(modules) <= 160


@pytest.mark.slow
def test_objects_of_a_command_are_not_searched_for_garbage_when_it_ends() -> None:
    code = (
        "import atexit, gc\n"
        "atexit.register(lambda: print('frozen:', gc.get_freeze_count() > 0))  # is called last\n"
        "from gateway.cli import main\n"
        "main()"
    )
    run = subprocess.run([sys.executable, "-c", code, "--version"], capture_output=True, check=True, text=True)
    assert run.stdout.splitlines()[-1] == "frozen: True"

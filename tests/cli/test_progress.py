"""The progress of long commands: on a terminal, in one line that a message never follows; nothing in a pipe."""

from __future__ import annotations

import asyncio
import os
import pty
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from gateway.cli.output import ERASED
from gateway.store import Store
from tests.world import World

from .conftest import Terminal, on_store

ACCOUNTS = 120  # more than are audited, or saved, at the same time
AT_ONCE = """
from gateway.cli import main, output
output.SHOWN_AFTER = output.SHOWN_EVERY = 0.0
"""
STOPPED = """
import os, signal
show = output.Progress.__call__
def stopping(self, work, done, total):
    show(self, work, done, total)
    if done >= 60:
        os.kill(os.getpid(), signal.SIGINT)
output.Progress.__call__ = stopping
"""


@pytest.fixture
def many(terminal: Terminal, valkey: Path) -> Terminal:
    """A terminal with many accounts."""

    async def create(store: Store) -> None:
        accounts = World(store, {}).accounts
        await asyncio.gather(*(accounts.create(f"account-{n:03d}", balance=1000) for n in range(ACCOUNTS)))

    on_store(valkey, create)
    return terminal


def on_terminal(terminal: Terminal, *words: str, code: str = AT_ONCE) -> tuple[int, str]:
    """The exit status of the command, and what it writes to a terminal as stderr."""
    leader, follower = pty.openpty()
    run = started(terminal, *words, code=code, stderr=follower)
    os.close(follower)
    written = b""
    with suppress(OSError):  # EIO: the command has closed the terminal
        while some := os.read(leader, 65536):
            written += some
    os.close(leader)
    return run.wait(), written.decode().replace("\r\n", "\n")


def started(terminal: Terminal, *words: str, code: str, stderr: int) -> subprocess.Popen[str]:
    environment = {**os.environ, **terminal.environment}
    return subprocess.Popen(
        [sys.executable, "-c", f"{code}\nmain()", *words],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=stderr,
        text=True,
    )


def test_progress_is_shown_on_a_terminal_and_gone_at_the_end(many: Terminal) -> None:
    status, written = on_terminal(many, "audit")
    assert status == 0
    *shown, end = written.split(ERASED)
    assert any(line.startswith(f"gateway: accounts audited: 100 of {ACCOUNTS}, about ") for line in shown)
    assert not any("\n" in line for line in shown)
    assert end.startswith(f"gateway: accounts: {ACCOUNTS}, ledger lines: {ACCOUNTS}, mismatches: 0\n")


def test_no_progress_is_written_to_a_pipe(many: Terminal) -> None:
    with started(many, "audit", code=AT_ONCE, stderr=subprocess.PIPE) as run:
        assert run.stderr is not None
        written = run.stderr.read()
    assert (run.returncode, written) == (
        0,
        f"gateway: accounts: {ACCOUNTS}, ledger lines: {ACCOUNTS}, mismatches: 0\n",
    )


def test_fault_of_one_of_many_accounts_is_one_message_in_a_line_of_its_own(
    many: Terminal, valkey: Path, tmp_path: Path
) -> None:
    on_store(valkey, lambda store: store.client.set("{a:account-070}:op", "no hash"))
    status, written = on_terminal(many, "backup", str(tmp_path / "saved"))
    assert status == 1
    *shown, end = written.split(ERASED)
    assert any(f"accounts saved: 50 of {ACCOUNTS}" in line for line in shown)
    assert end.startswith("gateway: account account-070 cannot be read: WRONGTYPE ")
    assert end.count("\n") == 1
    assert "Traceback" not in written


@pytest.mark.parametrize("words", [("audit",), ("backup", "saved")])
def test_interrupted_command_says_so_once(many: Terminal, tmp_path: Path, words: tuple[str, ...]) -> None:
    paths = [str(tmp_path / word) if word == "saved" else word for word in words]
    status, written = on_terminal(many, *paths, code=AT_ONCE + STOPPED)
    assert status == 1
    assert written.split(ERASED)[-1] == "\nAborted!\n"

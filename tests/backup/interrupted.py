"""Runs a command of the gateway that is interrupted at one point of a restore.

`python -m tests.backup.interrupted POINT AFTER ACTION [command …]`: when the work comes to POINT for the time number
AFTER, ACTION happens. It is a signal of this process, `store` for the end of the store's server whose process id is in
`VICTIM`, or in the file that it names, or `full` for a full disk.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from gateway.backup import replacement, restore, sql_load, stage, staged_keys
from gateway.cli import cli


def happen(action: str) -> None:
    """Do what interrupts the command."""
    if action == "full":
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "a file")
    if action == "store":
        victim = os.environ["VICTIM"]
        os.kill(int(victim if victim.isdigit() else Path(victim).read_text()), signal.SIGKILL)
    else:
        os.kill(os.getpid(), getattr(signal, action))


def interrupt(point: str, after: int, action: str) -> None:
    """Let it happen at one point."""
    count = 0

    def step() -> None:
        nonlocal count
        count += 1
        if count == after:
            happen(action)

    def before(function: Callable[..., Any]) -> Callable[..., Any]:
        def work(*args: Any, **kwargs: Any) -> Any:
            step()
            return function(*args, **kwargs)

        return work

    def stepping(function: Callable[..., Iterable[Any]]) -> Callable[..., Iterator[Any]]:
        def work(*args: Any) -> Iterator[Any]:
            for one in function(*args):
                step()
                yield one

        return work

    match point:
        case "record":  # of the backup is written into the store
            replace(stage, "read_records", stepping)
        case "table":  # of PostgreSQL is written
            replace(sql_load, "_fill", before)
        case "database":  # of SQLite is copied
            replace(sql_load, "copy_file", before)
        case "decided":  # and, with PostgreSQL, committed
            replace(restore, "finish", lambda finish: from_the_second_call(finish, before(finish)))
        case "placing":  # a key of an external store gets its name
            replace(staged_keys, "NAMES", lambda _: 3)  # the names of a page are sent together
            replace(staged_keys, "final_name", before)
        case "placed":  # all keys have their names, and the record is written again
            replace(replacement.Replacement, "write", before)
        case "moving":  # a file or folder gets its place
            replace(replacement, "move", before)
            replace(Path, "rename", before)
        case _:
            raise ValueError(point)


def replace(place: Any, name: str, change: Callable[[Any], Any]) -> None:
    setattr(place, name, change(getattr(place, name)))


def from_the_second_call(first: Callable[..., Any], second: Callable[..., Any]) -> Callable[..., Any]:
    """The first call of `finish` removes what an earlier restore has left."""
    functions = iter([first])
    return lambda *args: next(functions, second)(*args)


if __name__ == "__main__":
    interrupt(sys.argv[1], int(sys.argv[2]), sys.argv[3])
    cli(sys.argv[4:], prog_name="gateway")

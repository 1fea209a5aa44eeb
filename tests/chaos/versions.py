"""The version before this one, run from the history of this repository beside this one, on one store.

::

    old, new = await both_versions(yard, source, store_url, models)
    await old.kill_all()
    await old.restart_as_other_version()

Each gateway has a data folder of its own, and both have the same pepper and the same configuration, as two machines of
a rolling upgrade have.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tarfile
from io import BytesIO
from pathlib import Path
from typing import Any

from tests.polling import until
from tests.processes.conftest import Yard
from tests.processes.served import Served, children, command_of, is_alive, unmanaged_environment

OLD_COMMIT = "06d6d44"
ROOT = Path(__file__).parents[2]
PEPPER = "a pepper that both versions share"
WORKERS = ("-m gateway.worker ", "-m gateway.runtime.worker ")  # command lines of the old and of the new version


#: A table that the old version does not know, and the one after it.
CONSOLE, STORE = '[console]\nenabled = false\nhost = "127.0.0.1"\nport = 0\n\n\n', "[store]\n"


class Versioned(Served):
    """A gateway that runs either version; `source` is the folder with the code of the old one."""

    source: Path
    count: int  # of workers
    is_old = False

    def use_version(self, *, is_old: bool) -> None:
        """Which version its commands and its next processes run."""
        self.is_old = is_old
        self.environment = unmanaged_environment()
        if is_old:
            self.environment["PYTHONPATH"] = str(self.source)
        text = self.config.read_text(encoding="utf-8").replace(CONSOLE, "")
        self.config.write_text(text if is_old else text.replace(STORE, CONSOLE + STORE, 1), encoding="utf-8")

    async def restart_as_other_version(self) -> None:
        """Start the other version on the folder, the ports and the configuration of this gateway, which has ended."""
        self.use_version(is_old=not self.is_old)
        await self.started(workers=self.count)

    @property
    def workers(self) -> list[int]:
        return [pid for pid in children(self.pid) if any(name in command_of(pid) for name in WORKERS)]

    def code(self) -> Path:
        """The folder from which its commands and processes import the gateway."""
        done = subprocess.run(
            [sys.executable, "-c", "import gateway; print(gateway.__file__)"],
            capture_output=True,
            text=True,
            check=True,
            env=self.environment,
            cwd=self.folder,
        )
        return Path(done.stdout.strip()).parents[1]

    async def kill_all(self) -> None:
        """End all its processes at once, as the loss of its machine does."""
        pids = [self.pid, *children(self.pid)]
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        await self.ended()
        await until(lambda: not any(map(is_alive, pids)))

    async def account_named(self, name: str) -> Any:
        """An account of the store."""
        async with self.session() as session:
            return await session.accounts.show(name)


async def both_versions(
    yard: Yard, source: Path, store: str, models: str, *, workers: int = 1
) -> tuple[Versioned, Versioned]:
    """A gateway of the old version and one of the new version; both serve."""
    gateways = [
        yard.make(models, name=name, kind=Versioned, workers=workers, store=store, drain_timeout=20.0)
        for name in ("old", "new")
    ]
    old, new = (gateway for gateway in gateways if isinstance(gateway, Versioned))
    for gateway in (old, new):
        gateway.source, gateway.count = source, workers
        gateway.use_version(is_old=gateway is old)
        _write_pepper(gateway.data_dir)
        await gateway.started(workers=workers)
    return old, new


def _write_pepper(data_dir: Path) -> None:
    data_dir.mkdir(mode=0o700)
    pepper = data_dir / "pepper"
    pepper.write_text(PEPPER)
    pepper.chmod(0o600)


def old_source(folder: Path) -> Path | None:
    """`archived_source` of the old version."""
    return archived_source(folder, OLD_COMMIT)


def archived_source(folder: Path, commit: str) -> Path | None:
    """The code of a commit, extracted to `folder`; None where the history does not have it."""
    command = ["git", "-C", str(ROOT), "archive", commit, "gateway", "providers"]
    try:
        archive = subprocess.run(command, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    with tarfile.open(fileobj=BytesIO(archive)) as tar:
        tar.extractall(folder, filter="data")
    (folder / "gateway_providers").symlink_to(folder / "providers")  # the name of the installed package
    return folder

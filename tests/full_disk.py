"""A disk that is full for as long as a test likes, for the files of a database.

::

    with full_disk() as disk:
        environment |= disk.environment(data_dir / "gateway.db")    # of what is started with it
        with disk.full():
            ...
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


class FullDisk:
    """Files of the programs that have its `environment` cannot grow within `full`."""

    def __init__(self, folder: Path) -> None:
        compiler = shutil.which("cc")
        if compiler is None or sys.platform != "linux":
            pytest.skip("a full disk is made with a C compiler and LD_PRELOAD")
        self._library, self._flag = folder / "full_disk.so", folder / "full"
        source = Path(__file__).with_suffix(".c")
        command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(self._library), str(source), "-ldl"]
        subprocess.run(command, check=True)

    def environment(self, under: Path) -> dict[str, str]:
        """The variables of a program whose files with paths that begin with `under` are on the disk."""
        return {"LD_PRELOAD": str(self._library), "FULL_DISK": str(self._flag), "FULL_DISK_UNDER": str(under)}

    @contextmanager
    def full(self) -> Iterator[None]:
        """Nothing can grow in the block."""
        self._flag.touch()
        try:
            yield
        finally:
            self._flag.unlink()


@contextmanager
def full_disk() -> Iterator[FullDisk]:
    """A disk that is not full yet. Its folder is open to every user: a database server may run as another one."""
    with tempfile.TemporaryDirectory(prefix="disk") as name:
        Path(name).chmod(0o755)
        yield FullDisk(Path(name))

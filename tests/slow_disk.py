"""A disk that syncs nothing for as long as a test likes, for servers that are started under it.

While a sync hangs, a server with `appendfsync everysec` keeps what it is told in memory for up to two seconds, and
answers all the same: what a `kill -9` takes then was acknowledged and is in no file.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest


def slow_disk(folder: Path, environment: pytest.MonkeyPatch) -> Path:
    """Put what is started in this environment on it; it is slow while the returned file is there."""
    compiler = shutil.which("cc")
    if compiler is None or sys.platform != "linux":
        pytest.skip("a slow disk is made with a C compiler and LD_PRELOAD")
    library, slow = folder / "slow_disk.so", folder / "slow"
    source = Path(__file__).with_suffix(".c")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, source], check=True)
    environment.setenv("LD_PRELOAD", str(library))
    environment.setenv("SLOW_DISK", str(slow))
    return slow

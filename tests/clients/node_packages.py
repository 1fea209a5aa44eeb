"""Packages for Node.js: installed once into pytest's cache folder, at the versions of `node/package.json`."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
from pathlib import Path

import pytest

SOURCES = Path(__file__).parent / "node"
INSTALL_WITHIN = 300.0  # seconds; measured 4
UNREACHABLE = ("ENOTFOUND", "ECONNREFUSED", "ECONNRESET", "ETIMEDOUT", "EAI_AGAIN", "ENETUNREACH")


def folder_with_packages(pytestconfig: pytest.Config) -> Path:
    """The scenes beside their installed packages."""
    if not (shutil.which("node") and shutil.which("npm")):
        pytest.skip("Node.js and npm are not installed")
    version = hashlib.sha256((SOURCES / "package.json").read_bytes()).hexdigest()[:12]
    cache = pytestconfig.cache.mkdir("node")
    folder = cache / version
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        shutil.copytree(SOURCES, folder, dirs_exist_ok=True)
        if not (folder / "installed").exists():
            install(folder)
    return folder


def install(folder: Path) -> None:
    """`npm install`; skips when no registry answers and fails for any other reason."""
    command = ["npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=INSTALL_WITHIN)
    if done.returncode and any(code in done.stderr for code in UNREACHABLE):
        pytest.skip(f"npm's registry cannot be reached: {done.stderr.strip().splitlines()[0]}")
    assert done.returncode == 0, done.stderr
    (folder / "installed").touch()

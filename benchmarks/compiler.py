"""Builds the bench's C programs with the machine's compiler, once per source text, into the user's cache folder."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from benchmarks.fault import BenchFault

FLAGS = ("-O2", "-std=gnu11", "-Wall", "-Wextra")


def build(source: Path, *options: str) -> Path:
    """The program made of one C file; rebuilt only when its text, the compiler, the flags or the options change."""
    compiler = find_compiler()
    recipe = "\0".join((source.read_text(encoding="utf-8"), compiler, *FLAGS, *options))
    program = cache_folder() / f"{source.stem}-{hashlib.sha256(recipe.encode()).hexdigest()[:16]}"
    if program.exists():
        return program
    # Built aside and moved into place: two benches that start together must not run half a program.
    with tempfile.TemporaryDirectory(dir=program.parent) as folder:
        fresh = Path(folder) / program.name
        run = subprocess.run(
            [compiler, *FLAGS, *options, "-o", str(fresh), str(source)], capture_output=True, text=True, check=False
        )
        if run.returncode != 0:
            raise BenchFault(f"{compiler} could not build {source.name}:\n{run.stderr.strip()}")
        fresh.replace(program)
    return program


def find_compiler() -> str:
    """$CC, else the first usual name on PATH."""
    names = (os.environ.get("CC", ""), "cc", "gcc", "clang")
    for name in names:
        found = shutil.which(name) if name else None
        if found:
            return found
    raise BenchFault("the bench builds two small C programs and found no compiler: install gcc or clang, or set CC")


def cache_folder() -> Path:
    """Where built programs are kept between runs."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(base) / "model-gateway-bench"
    folder.mkdir(parents=True, exist_ok=True)
    return folder

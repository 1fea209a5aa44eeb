"""Installs packages of plugins/ as wheels beside the installed gateway, and runs their tests: `tox -e plugins`.

Names on the command line choose some of them; without names it is all but the heavy ones, which `tox -e minilm` names.
After that come the round trips through the local engines, as far as their packages are among the chosen. Sharp edge: it
installs into the environment it runs in.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

TESTS = Path(__file__).parent
RUN = str(TESTS / "run.py")  # in the folder that the ids of tests are relative to
PLUGINS = TESTS.parent / "plugins"
HEAVY = frozenset({"gateway-minilm"})  # gigabytes of torch
ROUND_TRIPS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "roundtrip_speech.py": frozenset({"gateway-espeak", "gateway-sphinx"}),
        "roundtrip_embedding.py": frozenset({"gateway-espeak", "gateway-sphinx", "gateway-minilm"}),
    }
)


def run(*command: str, cwd: Path | None = None) -> None:
    """Run one step, showing it."""
    print("+", " ".join(command), flush=True)
    subprocess.run(command, check=True, cwd=cwd)


def run_thrice(*command: str) -> None:
    """Run a step that downloads something; a download may fail."""
    for pause in (10, 30):
        try:
            return run(*command)
        except subprocess.CalledProcessError as error:
            print(f"exit code {error.returncode}; it is tried again after {pause} s", flush=True)
            time.sleep(pause)
    return run(*command)


def install(packages: list[Path]) -> None:
    """Build the packages' wheels and install those, whatever is there; then what they require, as far as missing."""
    with tempfile.TemporaryDirectory() as folder:
        # setuptools is there for the tests; an environment for each build would take seconds.
        options = ("--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", folder)
        run(sys.executable, "-m", "pip", "wheel", *options, *map(str, packages))
        wheels = sorted(map(str, Path(folder).glob("*.whl")))
        run(sys.executable, "-m", "pip", "install", "--quiet", "--force-reinstall", "--no-deps", *wheels)
        run_thrice(sys.executable, "-m", "pip", "install", "--quiet", *wheels)
    run(sys.executable, "-m", "pip", "check")


def check(package: Path) -> None:
    """Run the tests that came with the package's sources."""
    settings = str(package / "pyproject.toml")
    run(sys.executable, "-P", RUN, "--rootdir", str(package), "-c", settings, str(package), cwd=package)


def travel(trip: str) -> None:
    """Run a round trip through the gateway's endpoints."""
    folder = TESTS / "roundtrip"
    run(sys.executable, "-P", RUN, "-o", "python_files=roundtrip_*.py", str(folder / trip), cwd=TESTS.parent)


def main(names: list[str]) -> int:
    """Check the packages named, or all of them."""
    packages = {path.parent.name: path.parent for path in sorted(PLUGINS.glob("*/setup.py"))}
    chosen = names or [name for name in packages if name not in HEAVY]
    unknown = set(chosen) - set(packages)
    if unknown or not chosen:
        print(f"no such package in plugins/: {', '.join(sorted(unknown)) or 'none found'}", file=sys.stderr)
        return 2
    install([packages[name] for name in chosen])
    for name in chosen:
        check(packages[name])
    for trip, needed in ROUND_TRIPS.items():
        if needed <= set(chosen):
            travel(trip)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

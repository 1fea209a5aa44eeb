"""Installs every package of plugins/ as a wheel beside the installed gateway, and runs its tests: `tox -e plugins`.

Names on the command line choose some of them. Sharp edge: it installs into the environment it runs in.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

PLUGINS = Path(__file__).parent.parent / "plugins"


def run(*command: str) -> None:
    """Run one step, showing it."""
    print("+", " ".join(command), flush=True)
    subprocess.run(command, check=True)


def check(package: Path) -> None:
    """Build the package's wheel, install just that, and run the tests that came with its sources."""
    with tempfile.TemporaryDirectory() as wheels:
        run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", wheels, str(package))
        (wheel,) = Path(wheels).glob("*.whl")
        run(sys.executable, "-m", "pip", "install", "--quiet", "--force-reinstall", "--no-deps", str(wheel))
    run(sys.executable, "-m", "pip", "check")
    run(
        sys.executable,
        "-P",
        "-m",
        "pytest",
        "--rootdir",
        str(package),
        "-c",
        str(package / "pyproject.toml"),
        str(package),
    )


def main(names: list[str]) -> int:
    """Check the packages named, or all of them."""
    packages = sorted(path.parent for path in PLUGINS.glob("*/setup.py"))
    chosen = [package for package in packages if not names or package.name in names]
    unknown = set(names) - {package.name for package in packages}
    if unknown or not chosen:
        print(f"no such package in plugins/: {', '.join(sorted(unknown)) or 'none found'}", file=sys.stderr)
        return 2
    for package in chosen:
        check(package)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

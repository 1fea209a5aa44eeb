"""Run the fleet: `python -m tests.fleet --minutes 30`.

It needs Linux with root, `unshare`, `ip`, nginx on PATH, PostgreSQL and the history of the repository. The run has
network, mount and process namespaces of its own, so nothing is left of it.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

INSIDE = "FLEET_INSIDE"
UNSHARE = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]


def main() -> int:
    """Parse the arguments, enter the namespaces, and run."""
    parser = argparse.ArgumentParser(prog="python -m tests.fleet", description=__doc__)
    parser.add_argument("--minutes", type=float, default=3.0, help="how long the run is about; 30 is the whole one")
    parser.add_argument("--only", default="", help="the faults whose names have this text")
    parser.add_argument("--write", type=Path, help="a file for the table")
    parser.add_argument("--keep", action="store_true", help="keep the folder with logs and configurations")
    parser.add_argument("--without-health", action="store_true", help="nginx without conf/proxies/nginx-health.sh")
    arguments = parser.parse_args()
    if INSIDE not in os.environ:
        os.execvpe(UNSHARE[0], [*UNSHARE, sys.executable, *sys.orig_argv[1:]], {**os.environ, INSIDE: "1"})
    from tests.fleet.run import run

    folder = Path(tempfile.mkdtemp(prefix="fleet-"))
    folder.chmod(0o755)
    started = time.monotonic()
    try:
        report, is_good = asyncio.run(
            run(folder, arguments.minutes, only=arguments.only, with_health=not arguments.without_health)
        )
    finally:
        if arguments.keep:
            print(f"kept: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    print(report)
    print(f"\n{time.monotonic() - started:.0f} s")
    if arguments.write is not None:
        arguments.write.write_text(report + "\n", encoding="utf-8")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())

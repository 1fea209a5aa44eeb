"""Runs one target under Atheris: cases that reach new code are kept and changed further.

``python -m tests.fuzz.guided NAME SECONDS FOLDER`` ends with the report on its last line, or fails with the case. The
folder keeps the choices of the kept cases between runs. It is a process of its own, because Atheris ends its process.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import atheris

from tests.fuzz.engine import Report, run_case, wait_while_paused
from tests.fuzz.targets import TARGETS, new_target

#: Packages whose coverage guides the cases.
GUIDES = [
    "gateway.sse", "gateway.http_server", "gateway.http_client", "gateway.uploads", "gateway.api", "gateway.billing",
    "gateway.ledger", "gateway_providers", "python_multipart",
]  # fmt: skip
LONGEST = 600  # bytes of choices
LOOK_EVERY = 500  # cases


def main(name: str, seconds: float, folder: Path) -> None:
    """Run until the time is over."""
    assert name in TARGETS, name
    with atheris.instrument_imports(include=GUIDES, enable_loader_override=False):
        target = new_target(name)
    report = Report(name)
    ran_since = time.monotonic()

    def check(data: bytes) -> None:
        nonlocal ran_since
        try:
            run_case(target, report, data)
        except Exception as error:
            error.add_note(f"{name}: made of {data.hex()}")
            raise
        if report.cases % LOOK_EVERY == 0:
            now = time.monotonic()
            report.seconds += now - ran_since
            if report.seconds >= seconds:
                target.close()
                print(report.text(), flush=True)
                os._exit(0)
            wait_while_paused()
            ran_since = time.monotonic()

    folder.mkdir(parents=True, exist_ok=True)
    options = [f"-max_len={LONGEST}", "-timeout=7200", "-rss_limit_mb=2048", "-verbosity=0", "-print_final_stats=0"]
    atheris.Setup([sys.argv[0], *options, f"-artifact_prefix={folder}{os.sep}", str(folder)], check)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), Path(sys.argv[3]))

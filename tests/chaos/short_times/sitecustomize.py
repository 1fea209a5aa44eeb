"""Every Python process with this folder in PYTHONPATH runs it at its start: hours and minutes become seconds.

Ledger lines leave the store after 20 seconds instead of 48 hours, the sweep compares all accounts every 2 seconds, and
a killed importer is started again within a second each time.
"""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import Any

KEEP = timedelta(seconds=20)


def shorten_importer() -> None:
    """Lines leave the store early, and lost hints are found early."""
    from gateway.history import service, sweep
    from gateway.ledger import archive_checkpoint

    begin = service.HistoryService.__init__

    def shorter(self: service.HistoryService, *args: Any, **options: Any) -> None:
        begin(self, *args, **{**options, "keep_lines": KEEP})

    archive_checkpoint.MIN_AGE = KEEP
    sweep.PASS = 2.0
    service.PAUSES["refused"] = 2.0
    service.HistoryService.__init__ = shorter  # type: ignore[method-assign]


def shorten_supervisor() -> None:
    """Helpers that are killed often are started again soon."""
    from gateway.runtime import helper_process

    helper_process.MAX_PAUSE = 1.0


if "gateway.runtime.importer" in sys.orig_argv:
    shorten_importer()
elif "serve" in sys.orig_argv:
    shorten_supervisor()

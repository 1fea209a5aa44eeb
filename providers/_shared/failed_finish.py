"""Finish reasons that name a failure: `error`, `network_error`, `abort`, `MALFORMED_FUNCTION_CALL`.

New ones appear, and none of them ends a whole answer.
"""

from __future__ import annotations

import re

from gateway.errors import UpstreamError

_FAILED = re.compile(r"error|fail|abort|cancel|malformed|time[d_-]?out", re.IGNORECASE)


def check_finish(reason: str) -> None:
    """Raise UpstreamError for a reason that names a failure."""
    if _FAILED.search(reason):
        raise UpstreamError(detail=f"finish reason {reason[:100]!r}")

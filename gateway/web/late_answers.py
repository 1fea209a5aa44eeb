"""Answers that took long, because they waited for a turn or for a thread: the rights of the reader may have ended.

Such an answer is sent only if the reader still has the same rights. An answer within `LATE` is sent without this check.
While a file is sent, the rights are read again every few seconds.
"""

from __future__ import annotations

from typing import Final

from gateway.errors import Forbidden

LATE: Final = 0.1  # seconds since the rights were read
EVERY: Final = 3.0  # seconds between two reads of the rights while a file is sent


def require_same(before: object, now: object) -> None:
    """Forbidden for a reader whose rights are not those with which the answer was made."""
    if now != before:
        raise Forbidden("Your rights have changed since the request began")

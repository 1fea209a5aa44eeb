"""What follows from the answer to a line: it is final, it is tried again, or the batch ends."""

from __future__ import annotations

from typing import Literal

from gateway import errors
from gateway.runtime.batches.line_call import Attempt

#: final: the line has this answer. wait: it is tried again however often. again: it is tried again some times.
#: stop: no line of the batch can succeed.
Verdict = Literal["final", "wait", "again", "stop"]

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0  # seconds before a line is tried again
OK = 200


def verdict_of(attempt: Attempt) -> Verdict:
    """The verdict. A call that has a cost is never repeated."""
    error = attempt.error
    if attempt.status == OK or attempt.cost:
        return "final"
    if isinstance(error, errors.InvalidApiKey | errors.InsufficientPermissions):
        return "stop"
    if isinstance(error, errors.QuotaExhausted):
        return "final"
    if attempt.call is None and isinstance(error, errors.TooManyRequests):
        return "wait"
    if isinstance(error, errors.StoreUnavailable | errors.Overloaded | errors.Draining):
        return "wait"
    if isinstance(error, errors.PriceUnreadable):
        return "final"
    status = attempt.status
    return "again" if status >= 500 or status in (408, 409, 429) else "final"


def pause_before(attempt: Attempt, tries: int) -> float:
    """Seconds before the next try; `tries`: those so far."""
    asked = attempt.error.retry_after if attempt.error is not None else None
    backoff = FIRST_PAUSE * 2.0 ** min(tries - 1, 10)
    return min(max(asked or 0.0, backoff if tries else 0.0), LONGEST_PAUSE)

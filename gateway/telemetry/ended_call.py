"""A traced call that has ended, with the times of the clock."""

from __future__ import annotations

import time

from msgspec import Struct

from gateway.billing.call_record import CallRecord
from gateway.telemetry.call_trace import CallTrace


class EndedCall(Struct, frozen=True):
    """What the spans of a call are made from; times are nanoseconds since 1970."""

    trace: CallTrace
    record: CallRecord
    started: int
    ended: int
    clock: float  # seconds between the monotonic clock and that of the machine
    texts: tuple[str, str] = ("", "")  # of the request and of the answer

    @classmethod
    def of(cls, trace: CallTrace, record: CallRecord, *, started: float, texts: tuple[str, str]) -> EndedCall:
        """The call that ends now; `started` is a monotonic time."""
        clock = time.time() - time.monotonic()
        ended = nanoseconds(started + record.duration + clock)
        return cls(trace, record, nanoseconds(started + clock), ended, clock, texts)

    def time_of(self, moment: float) -> int:
        """A monotonic time as nanoseconds since 1970."""
        return nanoseconds(moment + self.clock)


def nanoseconds(seconds: float) -> int:
    """Seconds since 1970, to the microsecond that a float of them has."""
    return int(seconds * 1_000_000) * 1000

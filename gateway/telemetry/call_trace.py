"""What a call that is traced notes of itself: ids, and the times of its attempts. The spans are made after it.

`CallTrace` belongs to one call, from its head to its settlement. The dispatcher calls `attempt` for each attempt, which
lets the upstream requests of its task carry the attempt's span as their parent.
"""

from __future__ import annotations

import random
import re
import time
from typing import Any, Protocol

from msgspec import Struct, field, structs

from gateway.billing.call_record import CallRecord
from gateway.errors.attempt_answer import CANCELLED, code_of
from gateway.http_client.forwarded_headers import ForwardedHeaders, bind, forwarded_headers_now

SAMPLED = 1  # the flag of a trace context
_PARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_random = random.SystemRandom()


class ParentSpan(Struct, frozen=True):
    """The span of the caller, as its `traceparent` names it."""

    trace_id: int
    span_id: int
    is_sampled: bool

    @classmethod
    def of(cls, text: str) -> ParentSpan | None:
        """The span; None for a text that names none."""
        found = _PARENT.match(text)
        if found is None or found[1] == "ff":
            return None
        trace_id, span_id = int(found[2], 16), int(found[3], 16)
        if not trace_id or not span_id:
            return None
        return cls(trace_id, span_id, bool(int(found[4], 16) & SAMPLED))


class TracedAttempt(Struct, eq=False):
    """One attempt at a target; times are monotonic seconds."""

    span_id: int
    provider: str
    model: str  # the upstream's name
    started: float
    ended: float = 0.0  # 0 while it runs, or if it has served
    code: str = ""  # of the error that ended it

    def end(self, error: BaseException) -> None:
        """It has failed, or was cancelled."""
        self.ended = time.monotonic()
        self.code = code_of(error) if isinstance(error, Exception) else CANCELLED


class Ended(Protocol):
    """Gets the traces of calls that have ended."""

    def settled(self, trace: CallTrace, record: CallRecord, *, started: float, request: object) -> None:
        """`started`: monotonic seconds; `request`: decoded, or None."""


class CallTrace(Struct, eq=False):
    """The trace of one call."""

    owner: Ended
    trace_id: int
    span_id: int
    parent: ParentSpan | None
    path: str  # of the request
    state: str = ""  # the caller's `tracestate`
    keeps_texts: bool = False
    answer: Any = None  # a whole answer, if it keeps texts
    delivered: Any = None  # what a stream has delivered, if it keeps texts
    attempts: list[TracedAttempt] = field(default_factory=list)

    @classmethod
    def begin(
        cls, owner: Ended, parent: ParentSpan | None, path: str, *, state: str = "", keeps_texts: bool = False
    ) -> CallTrace:
        """A trace in that of the caller, or a new one."""
        trace_id = parent.trace_id if parent is not None else new_id(128)
        return cls(owner, trace_id, new_id(64), parent, path, state, keeps_texts)

    def attempt(self, provider: str, model: str) -> TracedAttempt:
        """An attempt begins; upstream requests of this task belong to it."""
        attempt = TracedAttempt(new_id(64), provider, model, time.monotonic())
        self.attempts.append(attempt)
        bind(self.headers(forwarded_headers_now(), attempt.span_id))
        return attempt

    def settled(self, record: CallRecord, *, started: float, request: object = None) -> None:
        """The call, or the request that was refused, has ended."""
        self.owner.settled(self, record, started=started, request=request)

    def headers(self, headers: ForwardedHeaders, span_id: int) -> ForwardedHeaders:
        """The headers for upstreams, with that span as the parent of theirs."""
        everywhere = {"traceparent": f"00-{self.trace_id:032x}-{span_id:016x}-01"}
        if self.state:
            everywhere["tracestate"] = self.state
        return structs.replace(headers, everywhere=everywhere)


def new_id(bits: int) -> int:
    """A random id, never 0."""
    return _random.getrandbits(bits) or 1

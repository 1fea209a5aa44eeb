"""Whether the upstream of an attempt has the request: a call that is left before that costs nothing.

`track(state)` sets the state of the current call. The dispatcher changes it at the start and at the end of an attempt,
the HTTP client when it connects and when it sends. When the caller leaves, the state says so, and no attempt starts
after that. Sharp edge: tasks share the state of the task that starts them, so each attempt of a hedge has a part of its
own. A provider that does not use the HTTP client counts as one that has sent its request.

The state also has the answers that the HTTP client waits for. The clock of the calls leaves those to the client's own
deadlines. It sets `late` before it cancels an attempt that has no first chunk in time; the dispatcher then knows why.
The dispatcher keeps in `failures` what the attempts answered that did not serve.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any, Protocol

from msgspec import Struct

from gateway.errors import UpstreamTimeout
from gateway.errors.attempt_answer import AttemptAnswer


class PendingAnswer(Protocol):
    """An answer of an upstream that arrives."""

    ended: bool
    heard: float  # loop time at which its reader was last woken; 0 before
    status: int  # 0 until the head has arrived
    headers: Mapping[str, str]  # set with the head

    def is_watched(self) -> bool:
        """Whether its reader waits for the upstream, within a deadline of the HTTP client."""

    def due(self) -> float:
        """The loop time of that deadline."""

    def close(self) -> None:
        """Stop reading it."""


class TracedAttempt(Protocol):
    """An attempt of a call that is traced."""

    def end(self, error: BaseException) -> None:
        """It has failed, or was cancelled."""


class Trace(Protocol):
    """Notes the attempts of a call."""

    keeps_texts: bool
    answer: Any  # a whole answer, if it keeps texts
    delivered: Any  # the `DeliveredText` of a stream, if it keeps texts

    def attempt(self, provider: str, model: str) -> TracedAttempt:
        """An attempt begins."""

    def settled(self, record: Any, *, started: float, request: object = None) -> None:
        """The call has ended with this `CallRecord`; `started`: monotonic seconds; `request`: decoded."""


class CallerKey(Protocol):
    """The key of a call."""

    @property
    def account(self) -> str: ...
    @property
    def id(self) -> str: ...
    @property
    def user(self) -> str: ...


class Admitted(Protocol):
    """The admission of a call."""

    @property
    def request_id(self) -> str: ...
    @property
    def key(self) -> CallerKey: ...
    @property
    def model(self) -> str: ...


class Quoted(Protocol):
    """The quote of a call."""

    @property
    def session(self) -> str: ...
    @property
    def tags(self) -> Mapping[str, str] | None: ...


class SendState(Struct, eq=False):
    """The state of the current attempt, or of the two attempts of a hedge."""

    sent: bool = False  # the request is at the upstream, which has not refused it
    started: float = 0.0  # monotonic seconds at which the attempt began to send its request, the last time
    begun: float = 0.0  # monotonic seconds at which the attempt began
    caller_left: bool = False  # no attempt may start
    parts: tuple[SendState, ...] = ()  # of attempts that run at once; `sent` is set when they have ended
    account: str = ""  # whose call it is
    answers: tuple[PendingAnswer, ...] = ()  # that the HTTP client reads for the call, and the last one that ended
    late: UpstreamTimeout | None = None  # why the attempt is cancelled, until the dispatcher has the failure
    late_at: float = 0.0  # monotonic seconds of that cancellation
    failures: tuple[AttemptAnswer, ...] = ()  # of the call, in the order in which they ended
    trace: Trace | None = None  # of a call that is traced
    admitted: Admitted | None = None  # of the call
    quote: Quoted | None = None  # of the call
    reported: tuple[int, int] | None = None  # tokens in and out, if the upstream of the current attempt counts apart

    def is_sent(self) -> bool:
        """Whether an upstream has the request and has not refused it."""
        return self.sent or any(part.sent for part in self.parts)

    def leave(self) -> None:
        """The caller has left: the running attempts are the last ones."""
        self.caller_left = True
        for part in self.parts:
            part.caller_left = True

    def race(self, now: float) -> None:
        """Attempts that run at once begin; each calls `track_part`."""
        self.sent, self.started, self.begun, self.parts = False, now, now, ()

    def raced(self, *, won: bool) -> None:
        """The attempts have ended, or are cancelled; `won`: one has answered."""
        self.sent, self.answers, self.parts = won or self.is_sent(), self.all_answers(), ()

    def all_answers(self) -> tuple[PendingAnswer, ...]:
        """The answers of the call, those of attempts that run at once included."""
        if not self.parts:
            return self.answers
        return (*self.answers, *(answer for part in self.parts for answer in part.answers))

    def expect(self, answer: PendingAnswer) -> None:
        """The HTTP client waits for `answer`."""
        self.answers = (*(one for one in self.answers if not one.ended), answer)

    def begin(self, now: float) -> None:
        """An attempt begins."""
        self.sent, self.started, self.begun = True, now, now

    def begin_again(self, now: float) -> None:
        """The attempt sends another request, because its upstream has refused the first one."""
        self.sent, self.started = True, now

    def fail(self) -> None:
        """The attempt failed: its upstream charges nothing."""
        self.sent = False


_state: ContextVar[SendState] = ContextVar("send_state")


def track(state: SendState) -> SendState:
    """Let the upstream requests of this task, and of the tasks that it starts, set `state`."""
    _state.set(state)
    return state


def track_part() -> SendState:
    """A new state for this task, which is a part of the state of the task that started it."""
    whole = current()
    part = track(SendState(account=whole.account, trace=whole.trace, admitted=whole.admitted, quote=whole.quote))
    part.caller_left = whole.caller_left
    whole.parts = (*whole.parts, part)
    return part


def current() -> SendState:
    """The state of this task."""
    return _state.get(None) or track(SendState())


def set_sent(sent: bool, answer: PendingAnswer | None = None) -> None:
    """Called by the HTTP client: False while it connects, True when the request was sent; `answer` is a new one."""
    state = _state.get(None)
    if state is not None:
        state.sent = sent
        if answer is not None:
            if state.answers:
                state.expect(answer)
            else:
                state.answers = (answer,)

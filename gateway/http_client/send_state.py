"""Whether the upstream of an attempt has the request: a call that is left before that costs nothing.

`track()` makes the state of a call. The dispatcher sets it at the start and at the end of an attempt, the HTTP client
when it connects and when it sends. Sharp edge: tasks share the state of the task that starts them, so a hedged attempt
tracks its own. A provider that does not use the HTTP client counts as one that has sent its request.
"""

from __future__ import annotations

from contextvars import ContextVar


class SendState:
    """The state of the current attempt."""

    __slots__ = ("sent", "started")

    def __init__(self) -> None:
        self.sent = False  # the request is at the upstream, which has not refused it
        self.started = 0.0  # monotonic seconds at which the attempt began

    def begin(self, now: float) -> None:
        """An attempt begins."""
        self.sent, self.started = True, now

    def fail(self) -> None:
        """The attempt failed: its upstream charges nothing."""
        self.sent = False


_state: ContextVar[SendState] = ContextVar("send_state")


def track() -> SendState:
    """A new state, which the upstream requests of this task and of the tasks that it starts set."""
    state = SendState()
    _state.set(state)
    return state


def current() -> SendState:
    """The state of this task."""
    return _state.get(None) or track()


def set_sent(sent: bool) -> None:
    """Called by the HTTP client: False while it connects, True when the request was sent."""
    state = _state.get(None)
    if state is not None:
        state.sent = sent

"""The clock of the calls of a worker: one timer that ends each call at its deadline, whatever its provider waits for.

A call ends `total` seconds after its admission. A stream fails if its provider yields nothing for `idle` seconds. An
attempt without a first chunk in `first_byte` seconds fails as if its upstream were silent; another target may follow.
While the HTTP client waits for an upstream, its own deadlines apply, because it sees when bytes arrive. The time in
which a stream waits for its client does not count. A call ends by a cancellation of its task. If the task does not end
within `STOP_WITHIN`, the call is settled and answered without it, also when its caller has left or its key was revoked.

The timer fires at the earliest deadline. A call costs a comparison here, a chunk that the relay encodes a reading of
the time, and a chunk of the text fast path nothing. Sharp edge: a deadline is detected `SLACK` and `GRAIN` late.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

from gateway.errors import UpstreamTimeout
from gateway.http_client.deadline_timer import GRAIN, NEVER
from gateway.inference.call import STOP_WITHIN, Call
from gateway.inference.call_end import abandon
from gateway.inference.services import Services
from gateway.log import gateway_log

SLACK = 0.25  # seconds; the deadlines of the HTTP client come first, because their errors say more


class CallClock:
    """Watches the active calls, from `begin` until they are settled."""

    def __init__(self, services: Services, calls: Mapping[str, Call]) -> None:
        self._services = services
        self._calls = calls
        self._timer: asyncio.TimerHandle | None = None
        self._next = NEVER  # monotonic time of the next check

    def begin(self, call: Call) -> None:
        """The call was admitted: its total time begins."""
        call.clock = self
        call.deadline = when = time.monotonic() + call.model.targets[0].target.timeouts.total + SLACK
        if when < self._next:
            self.expect(when)

    def opens(self, call: Call) -> None:
        """The call waits for the first chunk of a stream."""
        self.expect(time.monotonic() + call.model.targets[0].target.timeouts.first_byte + SLACK)

    def relays(self, call: Call) -> None:
        """The stream of the call has its first chunk."""
        if not call.attempts:  # a hook has given the answer
            return
        self.expect(time.monotonic() + call.attempts[-1].target.timeouts.idle + SLACK)

    def expect(self, when: float) -> None:
        """Check the calls at the monotonic time `when` at the latest."""
        if when < self._next:
            self.close()
            self._next = when
            self._timer = asyncio.get_running_loop().call_later(when - time.monotonic(), self._look)

    def close(self) -> None:
        """Cancel the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._next = NEVER

    def _look(self) -> None:
        self._timer = None
        self._next = soonest = NEVER
        now = time.monotonic()
        for call in list(self._calls.values()):
            due = _due(call, now)
            if due <= now:
                self._expire(call, now)
            elif due < soonest:
                soonest = due
        if soonest < NEVER:
            self.expect(max(soonest, now + GRAIN))

    def _expire(self, call: Call, now: float) -> None:
        if call.stopped:
            self._abandon(call)
        elif call.client_gone:
            call.stop()  # it was read on without a caller
        elif now >= call.deadline:
            self._cut(call, UpstreamTimeout(detail="the total timeout passed"))
        elif call.encoder is None:
            self._fail_attempt(call, now)
        elif call.lane_units >= 0 and call.lane_units != call.encoder.delivered.text_quarter_tokens:
            # Texts came through the fast path of a provider that does not use the HTTP client.
            call.lane_units, call.asked_at = call.encoder.delivered.text_quarter_tokens, now
            self.relays(call)
        else:
            idle = call.attempts[-1].target.timeouts.idle
            self._cut(call, UpstreamTimeout(detail=f"its provider yielded nothing for {idle:g} s"))

    def _cut(self, call: Call, error: UpstreamTimeout) -> None:
        if call.attempts:
            self._services.dispatcher.failed(call.attempts[-1], error)
        call.cut(error)

    def _fail_attempt(self, call: Call, now: float) -> None:
        """Cancel the attempt; the dispatcher takes `late` as its failure and may try another target."""
        first_byte, state = call.attempts[-1].target.timeouts.first_byte, call.sending
        state.late, state.late_at = UpstreamTimeout(detail=f"no first chunk within {first_byte:g} s"), now
        assert call.task is not None
        call.task.cancel()
        self.expect(now + STOP_WITHIN)

    def _abandon(self, call: Call) -> None:
        task = call.task
        try:
            abandon(call, self._services)
        except Exception as error:
            # One call must not end the clock of the others.
            gateway_log.error("%s: the end of the call failed", call.request_id, exc_info=error)
        if task is not None and call.attempts:
            self._services.dispatcher.stuck.watch(task, call.attempts[-1].circuit)


def _due(call: Call, now: float) -> float:
    """The monotonic time at which the call must be checked again: in the past if its time is over."""
    if call.stop_by:
        return call.stop_by
    state = call.sending
    if state.late is not None:
        return state.late_at + STOP_WITHIN
    if call.sink is None or not call.attempts:  # a whole answer has the total time only
        return call.deadline
    timeouts = call.attempts[-1].target.timeouts
    if call.encoder is None:
        since, patience = (state.started if state.is_sent() else 0.0), timeouts.first_byte
    else:
        since, patience = call.asked_at, timeouts.idle
    due = (since or now) + patience  # without a wait for the provider, the next one begins now at the earliest
    for answer in state.all_answers():
        if answer.is_watched():
            due = min(answer.due(), now + patience)
            break
        due = max(due, answer.heard + patience)
    return min(due + SLACK, call.deadline)

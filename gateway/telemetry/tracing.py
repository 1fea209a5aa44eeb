"""Decides which calls are traced, and makes the spans of those that have ended, off the event loop.

::

    traces = Traces(settings.telemetry, on_lost=…)       # of a worker
    if traces.current is not None:                       # where calls are traced
        trace = traces.current.begin(headers, path)      # None for most calls
    trace.settled(record, started=…)                     # queues the spans, without waiting
    await traces.close()                                 # sends what waits

A collector that does not answer delays nothing: `QUEUED` calls wait for it, later ones are lost and counted.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from gateway.billing.call_record import CallRecord
from gateway.config.telemetry_settings import TelemetrySettings
from gateway.http_client.forwarded_headers import ForwardedHeaders
from gateway.log import WarningLimit, gateway_log
from gateway.telemetry.call_trace import CallTrace, ParentSpan
from gateway.telemetry.ended_call import EndedCall
from gateway.telemetry.message_texts import answered, asked, delivered

if TYPE_CHECKING:
    from gateway.telemetry.span_sender import SpanSender

QUEUED = 4096  # calls whose spans wait
BATCH = 256  # calls in one request to the collector
SEND_EVERY = 2.0  # seconds
CLOSE_WITHIN = 2.0  # seconds for the rest of the queue when the worker stops


class Tracing:
    """Makes traces by some settings. Its thread starts with the first call that is traced."""

    def __init__(self, settings: TelemetrySettings, *, on_lost: Callable[[int], None]) -> None:
        self._settings = settings
        self._on_lost = on_lost
        self._calls: SimpleQueue[EndedCall | None] = SimpleQueue()
        self._warnings = WarningLimit()
        self._ended: Future[None] = Future()
        self._started = False
        self._loop: asyncio.AbstractEventLoop | None = None

    def begin(self, headers: ForwardedHeaders, path: str) -> CallTrace | None:
        """A trace of the request, if it is sampled; in the trace of the caller if it has one."""
        text = headers.everywhere.get("traceparent")
        parent = ParentSpan.of(text) if text is not None else None
        if parent is not None and self._settings.follow_callers:
            is_sampled = parent.is_sampled
        else:
            is_sampled = random.random() < self._settings.sample  # noqa: S311 - no secret depends on it
        if not is_sampled:
            return None
        state = headers.everywhere.get("tracestate", "")
        return CallTrace.begin(self, parent, path, state=state, keeps_texts=self._settings.content)

    def settled(self, trace: CallTrace, record: CallRecord, *, started: float, request: object) -> None:
        """The call has ended; `started` is the monotonic time of its head."""
        if self._calls.qsize() >= QUEUED:
            self._on_lost(1)
            self._warn("the collector is too slow")
            return
        self._calls.put(EndedCall.of(trace, record, started=started, texts=_texts(trace, request)))
        trace.answer = trace.delivered = None
        if not self._started:
            self._loop = asyncio.get_running_loop()
            self._started = self._ended.set_running_or_notify_cancel()
            threading.Thread(target=self._run, name="traces", daemon=True).start()

    def _lost(self, calls: int, reason: str) -> None:
        """Count calls of which a batch was made, from its thread."""
        assert self._loop is not None
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._on_lost, calls)
        self._warn(reason)

    def _warn(self, reason: str) -> None:
        if self._warnings.due("traces", time.monotonic()):
            gateway_log.warning("traces of calls were lost: %s", reason)

    def _run(self) -> None:
        try:
            from gateway.telemetry.span_sender import SpanSender

            sender: SpanSender | None = SpanSender(self._settings)
        except Exception as error:
            # The library of the extra `otel` may be missing, or refuse what the configuration says.
            gateway_log.error("calls are not traced: %s", error)
            sender = None
        for batch in self._batches():
            reason = "see above" if sender is None else sender.send(batch)
            if reason:
                self._lost(len(batch), reason)
        if sender is not None:
            sender.close()
        self._ended.set_result(None)

    def _batches(self) -> Iterator[list[EndedCall]]:
        """What waits, every `SEND_EVERY` seconds or `BATCH` calls; ends with the None of `close`."""
        while True:
            batch: list[EndedCall] = []
            until = None
            while len(batch) < BATCH:
                try:
                    call = self._calls.get(timeout=None if until is None else max(0.0, until - time.monotonic()))
                except Empty:
                    break
                if call is None:
                    if batch:
                        yield batch
                    return
                batch.append(call)
                until = until or time.monotonic() + SEND_EVERY
            yield batch

    async def close(self) -> None:
        """Send what waits; at most `CLOSE_WITHIN` seconds."""
        if not self._started:
            return
        self._calls.put(None)
        ended = asyncio.wrap_future(self._ended)
        _, late = await asyncio.wait({ended}, timeout=CLOSE_WITHIN)
        if late:
            ended.cancel()
            self._on_lost(self._calls.qsize())
            self._warn("the collector did not answer before the stop")


class Traces:
    """The traces of one worker, whose settings a reload may change."""

    __slots__ = ("_on_lost", "_settings", "current")

    def __init__(self, settings: TelemetrySettings, *, on_lost: Callable[[int], None]) -> None:
        self._settings, self._on_lost = settings, on_lost
        self.current = self._new()  # None where calls are not traced

    def _new(self) -> Tracing | None:
        return Tracing(self._settings, on_lost=self._on_lost) if self._settings.traces_calls else None

    async def use(self, settings: TelemetrySettings) -> None:
        """Trace as `settings` say from now on, and send what waits."""
        if settings != self._settings:
            before, self._settings = self.current, settings
            self.current = self._new()
            if before is not None:
                await before.close()

    async def close(self) -> None:
        """Send what waits."""
        if self.current is not None:
            await self.current.close()


def _texts(trace: CallTrace, request: object) -> tuple[str, str]:
    """The texts of the request and of the answer, if the trace keeps them."""
    if not trace.keeps_texts:
        return "", ""
    kept = trace.delivered
    return asked(request), answered(trace.answer) if kept is None else delivered(kept.text, kept.finish)

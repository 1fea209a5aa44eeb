"""Sends a provider's stream to the client: encodes, extends the hold, counts, waits for slow clients.

`relay` returns the last frames; the pipeline sends them after the settlement. While a client reads slowly, the upstream
is not read. Where a provider has a text fast path, most chunks do not pass through here.
"""

from __future__ import annotations

from time import monotonic
from typing import Any

from gateway.errors import GatewayError, UpstreamError, UpstreamTruncated
from gateway.inference.call import Call
from gateway.inference.endpoint import Endpoint
from gateway.inference.services import Services
from gateway.inference.stream_checks import CheckedStream, stream_hooks
from gateway.inference.text_fast_path import TextRelay, open_fast_path
from gateway.ledger.inflight_checkpoint import Slot
from gateway.plugins.isolation import TURN, yield_to_loop
from gateway.routing.delivered_text import DeliveredText
from gateway.routing.dispatcher import Dispatcher, Opened


async def relay(call: Call, endpoint: Endpoint[Any], opened: Opened[Any], services: Services) -> bytes:
    """Send all frames of the stream except the last ones, which are returned."""
    limit = endpoint.hold_limit(call, services.ledger)
    checks = () if call.hooked is None else stream_hooks(call, services)
    item, rest, encoder, sink = opened.first, opened.rest, call.encoder, call.sink
    assert sink is not None
    slot: Slot | None = None  # stores what was delivered, in case this worker is killed
    fast_path: TextRelay | None = None
    continuation = None if checks or not call.attempts else endpoint.continuation(call, opened, services)
    delivered = None if continuation is None else continuation.delivered
    kept, trace = delivered, call.sending.trace
    if trace is not None and trace.keeps_texts:
        kept = trace.delivered = delivered or DeliveredText()
    taken, started = 0, monotonic()
    services.clock.relays(call)
    try:
        if checks:
            rest = opened.rest = CheckedStream(call, opened, checks, services).items()
            item = await anext(rest, None)
        while item is not None:
            if kept is not None:
                kept.note(item)
            frames = encoder.feed(item)
            if limit is not None and limit.due(encoder.delivered):
                call.asked_at = 0.0
                await limit.extend(encoder.delivered)
            if frames:
                call.chunks += 1
                if call.first_token is None and encoder.content_started:
                    call.first_token = call.since_start()
                    slot = endpoint.checkpoint(call, services)
                    fast_path = open_fast_path(rest, call, slot=slot, limit=limit, kept=kept)
                if slot is not None:
                    slot.delivered(encoder.delivered.text_quarter_tokens)
                slow = sink.send(frames)
                frames = b""  # free the memory while the upstream is silent
                if slow is not None:
                    call.asked_at = 0.0
                    await slow
            taken += 1
            if not taken % TURN or call.stop_by:
                await yield_to_loop()
            call.asked_at = monotonic()
            try:
                item = await anext(rest, None)
                if item is None and delivered is not None and not delivered.finish:
                    raise UpstreamTruncated()
            except UpstreamError as error:
                if continuation is None or call.stopped:
                    raise
                rest = await continuation.after(error)
                continuation = delivered = None
                kept = None if trace is None else trace.delivered
                if slot is not None:
                    slot = endpoint.checkpoint(call, services)  # which names the target of the rest
                item = await anext(rest, None)
            if fast_path is not None and fast_path.slow is not None:
                slow, fast_path.slow = fast_path.slow, None
                call.asked_at = 0.0
                await slow
        last: bytes = encoder.close()
        return last
    except GatewayError as error:
        if not call.stopped:  # a provider may turn a cancellation into an error; its upstream has not failed
            services.dispatcher.failed(opened.candidate, error)
        raise
    except BaseException as error:
        # A third-party provider may raise anything, and may yield items that the encoder cannot encode.
        raise services.dispatcher.contain(opened.candidate, error) from error
    finally:
        call.asked_at = now = monotonic()  # its end may take as long as a chunk
        call.upstream_waited += now - started  # before the settlement, which counts it in the metrics
        if fast_path is not None:
            fast_path.close()
        await close_stream(opened, services.dispatcher)


async def close_stream(opened: Opened[Any], dispatcher: Dispatcher) -> None:
    """End a provider's stream; errors of its clean-up are logged and not raised."""
    try:
        await opened.close()
    except BaseException as error:
        # Third-party clean-up must not fail a complete answer, nor replace the error of an incomplete one.
        dispatcher.contain(opened.candidate, error)

"""Passes a provider's stream on to the client: encodes, extends the hold, counts, waits for slow readers.

`relay` returns the last frames, which the pipeline sends once the call is settled. A client that reads slowly stops the
reading of the upstream. Where a provider has a text fast path, most chunks do not pass through here.
"""

from __future__ import annotations

import time
from typing import Any

from gateway.errors import GatewayError
from gateway.inference.call import Call
from gateway.inference.endpoint import Endpoint
from gateway.inference.services import Services
from gateway.inference.text_fast_path import TextRelay, open_fast_path
from gateway.ledger.inflight_checkpoint import Slot
from gateway.plugins.isolation import TURN, yield_to_loop
from gateway.routing.dispatcher import Dispatcher, Opened


async def relay(call: Call, endpoint: Endpoint[Any], opened: Opened[Any], services: Services) -> bytes:
    """Send all but the last frames of the stream; those are returned."""
    limit = endpoint.hold_limit(call, services.ledger)
    item, rest, encoder, sink = opened.first, opened.rest, call.encoder, call.sink
    assert sink is not None
    slot: Slot | None = None  # where it is noted what was delivered, in case this worker is killed
    beside: TextRelay | None = None  # once the fast path is open
    taken, started = 0, time.monotonic()
    try:
        while item is not None:
            frames = encoder.feed(item)
            if limit is not None and limit.due(encoder.delivered):
                await limit.extend(encoder.delivered)
            if frames:
                call.chunks += 1
                if call.first_token is None and encoder.content_started:
                    call.first_token = call.since_start()
                    slot = endpoint.checkpoint(call, services)
                    beside = open_fast_path(rest, call, slot=slot, limit=limit)
                if slot is not None:
                    slot.delivered(encoder.delivered.text_quarter_tokens)
                slow = sink.send(frames)
                frames = b""  # not kept while the upstream is silent
                if slow is not None:
                    await slow
            taken += 1
            if not taken % TURN or call.cancelled:
                await yield_to_loop()
            item = await anext(rest, None)
            if beside is not None and beside.slow is not None:
                slow, beside.slow = beside.slow, None
                await slow
        last: bytes = encoder.close()
        return last
    except GatewayError as error:
        services.dispatcher.failed(opened.candidate, error)
        raise
    except BaseException as error:
        # A third-party provider may raise anything, and yield anything that the encoder chokes on.
        raise services.dispatcher.contain(opened.candidate, error) from error
    finally:
        call.upstream_waited += time.monotonic() - started  # before the settlement, which tells the metrics
        if beside is not None:
            beside.close()
        await close_stream(opened, services.dispatcher)


async def close_stream(opened: Opened[Any], dispatcher: Dispatcher) -> None:
    """End a provider's stream, whatever its clean-up raises."""
    try:
        await opened.close()
    except BaseException as error:
        # Third-party clean-up: it cannot spoil an answer that is complete, nor hide why one is not.
        dispatcher.contain(opened.candidate, error)

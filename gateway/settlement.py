"""The one place where a finished call becomes money: usage to cost, cost to the ledger, and the record everyone reads.

`Settlement.settle(call, usage)` is called exactly once per admitted call, with None when nothing is owed. It never
waits: the entry is on its way to the store when this returns, whatever becomes of the request, and `drain()`
waits for the last one.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import Any

import msgspec

from gateway.call import Call
from gateway.errors import GatewayError
from gateway.ledger import Ledger, Outcome, Settled
from gateway.log import gateway_log
from gateway.metrics import Metrics
from gateway.plugins import Plugins
from gateway.receipt import CallRecord
from gateway.usage import Usage


class Settlement:
    """Settles calls on the ledger, and tells the log, the metrics and the plugins."""

    def __init__(self, ledger: Ledger, metrics: Metrics, plugins: Plugins) -> None:
        self.ledger = ledger
        self.metrics = metrics
        self.plugins = plugins
        self._observed = plugins.has_hook("call_settled")
        self._pending: set[asyncio.Future[Settled]] = set()

    def settle(self, call: Call, usage: Usage | None) -> CallRecord:
        """Charge `usage` and release the hold; without usage only release it. Returns the call's record."""
        assert not call.settled, "a call is settled once"
        call.settled = True
        usage, cost = self._cost(call, usage)
        record = _record(call, usage or Usage(requests=0), cost)
        # A future and no task: the entry leaves in this tick, whatever becomes of the request.
        ledger, hold = self.ledger, call.hold
        written = ledger.void(hold) if usage is None else ledger.settle(hold, _outcome(call, record))
        self._pending.add(written)
        written.add_done_callback(partial(self._written, record))
        self.metrics.settled(record, upstream_seconds=call.upstream_waited, chunks=call.chunks)
        if self._observed:
            self.plugins.call_each("call_settled", record=record)
        return record

    def _cost(self, call: Call, usage: Usage | None) -> tuple[Usage | None, int]:
        if usage is None:
            return None, 0
        most_in, most_out = call.ceiling
        if usage.tokens_in > most_in or usage.tokens_out > most_out:
            # More than the request could have used: the upstream's count is absurd. Never a credit, never a ruin.
            gateway_log.warning("%s: impossible usage from %s, clamped to the hold", call.request_id, call.provider)
            return call.worst_case, call.hold.amount
        return usage, call.cost(usage)

    def _written(self, record: CallRecord, written: asyncio.Future[Settled]) -> None:
        self._pending.discard(written)
        error = None if written.cancelled() else written.exception()
        if error is not None:
            reason = error.detail if isinstance(error, GatewayError) and error.detail else error
            gateway_log.error("%s: settlement of %d nano failed: %s", record.request_id, record.cost, reason)

    async def drain(self) -> None:
        """Wait until every settlement so far has been written."""
        while self._pending:
            await asyncio.wait(self._pending)


def _record(call: Call, usage: Usage, cost: int) -> CallRecord:
    return CallRecord(
        request_id=call.request_id,
        endpoint=call.endpoint,
        account=call.key.account,
        key=call.key.id,
        model=call.model.name,
        provider=call.provider,
        outcome=call.outcome,
        status=call.status,
        usage=usage,
        cost=cost,
        attempts=len(call.attempts),
        duration=time.monotonic() - call.started,
        first_token=call.first_token,
        stream=call.stream,
    )


def _outcome(call: Call, record: CallRecord) -> Outcome:
    usage = record.usage
    return Outcome(
        amount=record.cost,
        provider=record.provider,
        model=call.attempts[-1].target.model if call.attempts else "",
        usage=_counts(usage),
        tokens=usage.tokens_in + usage.tokens_out,
        estimated=usage.estimated,
        attempts=record.attempts,
        outcome=record.outcome,
    )


def _counts(usage: Usage) -> dict[str, Any]:
    """What is not zero; msgspec leaves out defaults in 0.2 µs, a comprehension over the fields takes 1.0."""
    counts: dict[str, Any] = msgspec.to_builtins(usage)
    counts.pop("estimated", None)
    counts.pop("requests", None)
    return counts

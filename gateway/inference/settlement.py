"""Settles a finished call: usage to cost, cost to the ledger, and the record for log, metrics and plugins.

`Settlement.settle(call, usage)` is called exactly once per admitted call, with None when nothing is charged. It does
not wait: when it returns, the entry is queued for the store, and the end of the request does not affect it. `drain()`
waits for the last entry.
"""

from __future__ import annotations

import time

from gateway.billing.call_record import CallRecord
from gateway.billing.price import price_on
from gateway.billing.usage import Usage
from gateway.inference.call import Call
from gateway.inference.recent_failures import RecentFailures
from gateway.ledger import Ledger
from gateway.log import WarningLimit, gateway_log
from gateway.metrics import Metrics
from gateway.plugins.hook_threads import HookThreads
from gateway.routing.attempt_answers import answers_of


class Settlement:
    """Settles calls in the ledger and reports them to the metrics and the plugins."""

    def __init__(self, ledger: Ledger, metrics: Metrics, hooks: HookThreads, failures: RecentFailures) -> None:
        self.failures = failures
        self.ledger = ledger
        self.metrics = metrics
        self.hooks = hooks
        self._observed = hooks.observed
        self._corrected = WarningLimit()

    def settle(self, call: Call, usage: Usage | None) -> CallRecord:
        """Charge `usage` and release the hold; without usage only release it. Returns the call's record."""
        assert not call.settled, "a call is settled once"
        call.settled = True
        usage, cost = self._cost(call, usage)
        record = call.record = _record(call, usage or Usage(requests=0), cost)
        self.ledger.book(call.hold, record, free=usage is None)
        self.metrics.settled(record, upstream_seconds=call.upstream_waited, chunks=call.chunks)
        if call.sending.failures or record.outcome != "ok":
            self.failures.note(record, record.answers or call.sending.failures)
        if self._observed:
            self.hooks.call_settled(record)
        if call.sending.trace is not None:
            call.sending.trace.settled(record, started=call.reply.started, request=call.request)
        return record

    def _cost(self, call: Call, usage: Usage | None) -> tuple[Usage | None, int]:
        if usage is None:
            return None, 0
        if call.fault:
            self.metrics.clamped(call.model.name, call.provider)
            self._warn(call)
        return usage, call.cost(usage)

    def _warn(self, call: Call) -> None:
        """Log that an upstream counted wrongly. Many calls of its target may have the same fault."""
        model = call.attempts[-1].target.model if call.attempts else ""
        calls = self._corrected.due((call.provider, model), time.monotonic())
        if calls:
            more = f" ({calls} calls of {model} since the last such line)" if calls > 1 else ""
            gateway_log.warning(
                "%s: usage of %s corrected: %s%s", call.request_id, call.provider or "a hook", call.fault, more
            )

    async def drain(self) -> None:
        """Wait until every settlement so far has been written, or logged as lost."""
        await self.ledger.drain()


def _record(call: Call, usage: Usage, cost: int) -> CallRecord:
    key, model, attempts = call.key, call.model.name, call.attempts
    served = attempts[-1] if attempts else None
    # Before the duration of the call: no attempt is longer.
    answers = (
        answers_of(call.sending, attempts, call.outcome, prompt=call.quote.prompt.tokens_in)
        if call.sending.failures
        else None
    )
    return CallRecord(  # by position: by name it takes 1 µs more
        call.request_id,
        call.endpoint.name,
        key.account,
        key.id,
        model,
        served.target.provider if served is not None else "",
        call.outcome,
        call.status,
        usage,
        usage.tokens_in,
        usage.tokens_out,
        cost,
        len(attempts),
        time.monotonic() - call.reply.started,
        call.first_token,
        call.stream,
        served.model.name if served is not None else model,
        served.target.model if served is not None else "",
        call.service_tier,
        key.user,
        call.quote.tags,
        _upstream_cost(call, usage) if served is not None and served.costs else None,
        answers,
        call.quote.session,
        call.joined,
        call.detail,
        call.hold.price_version,
        served.circuit.key.number if served is not None else 0,
        None if call.hooked is None else call.hooked.outcomes,
    )


def _upstream_cost(call: Call, usage: Usage) -> int | None:
    """What the operator pays for the call; None if its caller left and what it used was not counted."""
    if not usage.requests:
        return None if call.client_gone else 0
    return price_on(call.attempts[-1].costs, time.time()).cost(usage, service_tier=call.service_tier)

"""Callers who leave: whether their upstream is closed at once or read on, for how long, and for how many calls.

No attempt starts after that. The upstream of a call is closed at once, with two exceptions, both for a request that is
at its upstream. After the end of the answer it is read for at most `USAGE_WITHIN` seconds, until its usage comes. An
answer that its model's policy wants to be read to the end (`reads_on`) is read for at most `DRAIN_WITHIN` seconds; an
account has at most `MAX_DRAINS` of them in a worker, and none begins or continues after SIGTERM. Sharp edge: the call
keeps its hold meanwhile, and is settled at its end.
"""

from __future__ import annotations

import asyncio

from msgspec import Struct

from gateway.inference.call import Call
from gateway.ledger import Ledger

DRAIN_WITHIN = 60.0  # seconds
USAGE_WITHIN = 2.0  # seconds
MAX_DRAINS = 8  # per account, in this worker
USUAL_RATE = 50.0  # tokens of output a second of a target that has not answered yet
WEIGHT = 0.2  # of the newest call in the usual rate


class Rest(Struct, eq=False):
    """The rest of an answer that is read without a caller."""

    call: Call
    timer: asyncio.TimerHandle
    drains: bool  # counted in the account's drains


class Disconnects:
    """Ends or continues the calls whose callers have left."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._rests: dict[str, Rest] = {}  # by request id
        self._drains: dict[str, int] = {}  # by account
        self._rates: dict[tuple[str, str], float] = {}  # by provider and upstream model, in tokens a second
        self._stopped = False

    def disconnect(self, call: Call) -> None:
        """The caller of a running call has left. An answer with an Idempotency-Key is completed for a retry."""
        if call.claim is not None and call.claim.keeps:
            return
        call.client_gone = call.detached = True
        if call.task is None:
            return
        call.sending.leave()
        if call.attempts and reads_on(call):
            call.output_rate = self._rates.get(_target(call), USUAL_RATE)
        within, drains = self._read_within(call)
        if not within:
            call.stop()
            return
        timer = asyncio.get_running_loop().call_later(within, call.stop)
        self._rests[call.request_id] = Rest(call, timer, drains)
        if drains:
            account = call.key.account
            self._drains[account] = self._drains.get(account, 0) + 1
        self._ledger.end_lease(call.hold)

    def ended(self, call: Call) -> None:
        """The call is settled. Called for every call; learns how fast the target of a model that drains answers."""
        if call.outcome == "ok" and call.attempts and reads_on(call):
            self._learn(call)
        if not self._rests:
            return
        rest = self._rests.pop(call.request_id, None)
        if rest is None:
            return
        rest.timer.cancel()
        if rest.drains:
            account = call.key.account
            left = self._drains.pop(account) - 1
            if left:
                self._drains[account] = left

    def stop(self) -> None:
        """The worker stops: close the upstreams that are read without a caller, and read no more of them."""
        self._stopped = True
        for rest in list(self._rests.values()):
            rest.call.stop()

    def _read_within(self, call: Call) -> tuple[float, bool]:
        """Seconds for which the upstream is read on, and whether that counts as a drain; 0 closes it now."""
        if self._stopped or not call.sending.is_sent() or call.model.disconnect == "void":
            return 0.0, False
        if getattr(call.encoder, "finished", False):  # the encoder of a chat
            return (0.0 if call.encoder.counted else USAGE_WITHIN), False
        if reads_on(call) and self._drains.get(call.key.account, 0) < MAX_DRAINS:
            return DRAIN_WITHIN, True
        return 0.0, False

    def _learn(self, call: Call) -> None:
        record, seconds = call.record, call.upstream_waited
        if record is None or record.usage.estimated or not (record.tokens_out and seconds > 0):
            return
        target, rate = _target(call), record.tokens_out / seconds
        before = self._rates.get(target, rate)
        self._rates[target] = before + WEIGHT * (rate - before)


def reads_on(call: Call) -> bool:
    """Whether an answer is read to its end after its caller has left, by policy or for hidden reasoning."""
    policy = call.model.disconnect
    return call.quote.hidden if policy == "auto" else policy == "drain"


def _target(call: Call) -> tuple[str, str]:
    target = call.attempts[-1].target
    return target.provider, target.model

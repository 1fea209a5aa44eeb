"""The active calls of a worker: renews their leases, stores their cost so far, and cuts calls whose key was revoked.

Every `RENEW_EVERY` seconds one script per account renews the holds and stores the cost so far. After a crash of the
machine a call is charged at that cost; after the death of a worker, by its inflight checkpoint, exact to the chunk. A
channel reports a revocation at once. The renewal finds it too, in case the message was lost. Sharp edge: `ActiveCalls`
only cuts a call; the pipeline settles it, or the clock of the calls.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

from gateway.accounts.accounts import CHANGED
from gateway.billing.price import price_on
from gateway.errors import CallCancelled, GatewayError, InvalidApiKey
from gateway.inference.call import Call
from gateway.ledger import Ledger
from gateway.ledger.checkpoint_record import DIED, encode_stream
from gateway.ledger.inflight_checkpoint import Slot
from gateway.log import gateway_log
from gateway.routing.attempt_answers import answers_of
from gateway.store import Store

RENEW_EVERY = 5.0  # seconds; a lease lasts 60


class ActiveCalls:
    """The calls of one worker, by request id."""

    def __init__(self, ledger: Ledger, store: Store) -> None:
        self._ledger = ledger
        self._store = store
        self._calls: dict[str, Call] = {}
        self._empty: asyncio.Event | None = None  # while `all_settled` waits
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start the renewal of leases and the listener for revocations."""
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._renew_forever()),
            loop.create_task(self._store.listen(CHANGED, self._changed)),
        ]

    @property
    def calls(self) -> Mapping[str, Call]:
        """Admitted calls that are not settled, by request id."""
        return self._calls

    async def close(self) -> None:
        """Stop both."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def add(self, call: Call) -> None:
        """Add an admitted call."""
        self._calls[call.request_id] = call

    def discard(self, request_id: str) -> None:
        """Remove a settled call."""
        self._calls.pop(request_id, None)
        if self._empty is not None and not self._calls:
            self._empty.set()

    def by_provider(self) -> Counter[str]:
        """How many calls are at each provider now."""
        return Counter(call.provider for call in self._calls.values() if call.attempts)

    def largest_body(self, providers: Collection[str]) -> int:
        """The bytes of the largest request that these providers serve; the watchdog asks from its own thread."""
        calls = list(
            self._calls.values()
        )  # one step of the interpreter, so the loop's thread cannot change it meanwhile
        return max((call.body_size for call in calls if call.provider in providers), default=0)

    def checkpoint(self, call: Call, service_tier: str | None) -> Slot:
        """The slot in which a stream stores what it delivered; if this worker dies, the call is charged by it."""
        served = call.attempts[-1] if call.attempts else None  # None: a hook has given the answer
        body = encode_stream(
            call.hold,
            call.quote,
            provider=call.provider,
            upstream=served.target.model if served is not None else "",
            attempts=len(call.attempts),
            served_model=call.fallback,
            service_tier=service_tier,
            factor=call.model.token_factor,
            endpoint=call.endpoint.name,
            cost_price=price_on(served.costs, time.time()) if served is not None and served.costs else None,
            answers=answers_of(call.sending, call.attempts, DIED, prompt=call.quote.prompt.tokens_in)
            if call.sending.failures
            else None,
            joined=call.joined,
        )
        return self._ledger.checkpoint.put(call.request_id, body, call.encoder.delivered.text_quarter_tokens)

    async def all_settled(self, within: float) -> bool:
        """Wait until no call is active; False when some still are after `within` seconds."""
        empty = self._empty = asyncio.Event()
        try:
            async with asyncio.timeout(within):
                while self._calls:
                    empty.clear()
                    await empty.wait()
        except TimeoutError:
            return False
        finally:
            self._empty = None
        return True

    def cut_all(self, error: GatewayError) -> int:
        """End every call with `error`; returns their number."""
        calls = list(self._calls.values())
        for call in calls:
            call.cut(error)
        return len(calls)

    async def renew_leases(self) -> None:
        """Renew every hold, store the cost of each call, and cut calls whose key was revoked."""
        holds = []
        for call in self._calls.values():
            call.hold.used = call.cost_so_far()
            holds.append(call.hold)
        for request_id, answer in (await self._ledger.renew_leases(holds)).items():
            if answer == "revoked" and (revoked := self._calls.get(request_id)) is not None:
                revoked.cut(InvalidApiKey())

    def cancel(self, request_id: str, accounts: Collection[str] = ()) -> Call | None:
        """Cut the call for an operator; None if it does not run here, or is of none of these accounts."""
        call = self._calls.get(request_id)
        if call is None or (accounts and call.key.account not in accounts):
            return None
        call.cut(CallCancelled())
        return call

    def revoked(self, account: str, key: str) -> None:
        """Cut the calls of a key, or of every key of the account for `*`."""
        for call in list(self._calls.values()):
            if call.key.account == account and key in ("*", call.key.id):
                call.cut(InvalidApiKey())

    async def _renew_forever(self) -> None:
        while True:
            await asyncio.sleep(RENEW_EVERY)
            try:
                await self.renew_leases()
                await self._ledger.sweep()
            except GatewayError as error:
                gateway_log.warning("lease renewal failed: %s", error.log_text() or error)

    async def _changed(self, message: dict[str, Any]) -> None:
        if message["type"] == "message":
            account, _, key = message["data"].decode().partition(":")
            self.revoked(account, key)

"""The calls a worker is serving: their leases are renewed, what they used is checkpointed, and revoked ones are cut.

Every `RENEW_EVERY` seconds one script per account renews the holds and stores the cost so far: by it calls are charged
that a crash of the machine has ended. Those of a killed worker are charged by its board, to the chunk. A revocation is
heard at once on a channel; a beat that finds the key revoked is the net beneath it, and one that finds a call without
a first word long after its time cuts what a provider's own code forgot. Sharp edge: `ActiveCalls` only looks and cuts;
settling stays with the pipeline.
"""

from __future__ import annotations

import asyncio
import contextlib
import time

import redis.exceptions
from msgspec import structs

from gateway.accounts.accounts import CHANGED
from gateway.errors import GatewayError, InvalidApiKey, UpstreamTimeout
from gateway.inference.call import Call
from gateway.ledger import Ledger
from gateway.ledger.call import LineMeta
from gateway.ledger.checkpoint_record import Bill, CheckpointRecord
from gateway.ledger.inflight_checkpoint import Slot
from gateway.log import gateway_log
from gateway.store import Store

RENEW_EVERY = 5.0  # seconds; a lease lasts 60
LISTEN_AGAIN = 1.0  # seconds after the channel broke
OVERDUE = 1.0  # seconds beyond its timeout at which a call is cut: the upstream's own deadlines come first
DIED = "worker_died"  # the outcome of a call that its worker did not survive


class ActiveCalls:
    """The calls of one worker, by request id."""

    def __init__(self, ledger: Ledger, store: Store) -> None:
        self._ledger = ledger
        self._store = store
        self._calls: dict[str, Call] = {}
        self._seen: dict[str, float] = {}  # by request id, when a beat first found it running
        self._empty = asyncio.Event()
        self._empty.set()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin to beat and to listen."""
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._renew_forever()), loop.create_task(self._listen_forever())]

    async def close(self) -> None:
        """Stop both."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def add(self, call: Call) -> None:
        """A call was admitted."""
        self._calls[call.request_id] = call
        self._empty.clear()

    def discard(self, request_id: str) -> None:
        """It was settled."""
        self._calls.pop(request_id, None)
        if not self._calls:
            self._empty.set()

    def checkpoint(self, call: Call, service_tier: str | None) -> Slot:
        """Have a stream that begins charged for what it delivers, should this worker die: where to note how much."""
        hold, quote = call.hold, call.quote
        meta = LineMeta(
            hold.key.id,
            hold.model,
            provider=call.provider,
            upstream=call.attempts[-1].target.model,
            estimated=True,
            attempts=len(call.attempts),
            outcome=DIED,
            price=hold.price_version,
            hold=hold.amount,
            served_model=call.fallback,
        )
        price = quote.price.at(quote.prompt.tokens_in)
        price = structs.replace(price, tiers=(), per_image={}, held=None)  # what a stream's cost does not depend on
        bill = Bill(hold.admitted_at, meta, quote.prompt, price, service_tier, call.model.token_factor)
        return self._ledger.checkpoint.put(CheckpointRecord(hold.key.account, hold.request_id, hold.key.id, bill))

    async def all_settled(self, within: float) -> bool:
        """Wait until no call runs; False when some still do after so many seconds."""
        try:
            async with asyncio.timeout(within):
                await self._empty.wait()
        except TimeoutError:
            return False
        return True

    def cut_all(self, error: GatewayError) -> int:
        """End every call with that error; how many there were."""
        calls = list(self._calls.values())
        for call in calls:
            call.cut(error)
        return len(calls)

    async def renew_leases(self) -> None:
        """Renew every hold, store what each call used, cut those whose key was revoked."""
        holds = []
        now, before, self._seen = time.monotonic(), self._seen, {}
        for request_id, call in self._calls.items():
            call.hold.used = call.cost_so_far()
            holds.append(call.hold)
            since = self._seen[request_id] = before.get(request_id, now)
            if _is_overdue(call, now - since):
                call.cut(UpstreamTimeout(detail="its provider forgot it"))
        for request_id, answer in (await self._ledger.renew_leases(holds)).items():
            if answer == "revoked":
                self._cut(request_id)

    def revoked(self, account: str, key: str) -> None:
        """Cut the calls of a key, or of every key of the account for `*`."""
        for request_id, call in list(self._calls.items()):
            if call.key.account == account and key in ("*", call.key.id):
                self._cut(request_id)

    def _cut(self, request_id: str) -> None:
        call = self._calls.get(request_id)
        if call is not None:
            call.cut(InvalidApiKey())

    async def _renew_forever(self) -> None:
        while True:
            await asyncio.sleep(RENEW_EVERY)
            try:
                await self.renew_leases()
                await self._ledger.sweep()
            except GatewayError as error:
                gateway_log.warning("beat failed: %s", error.log_text() or error)

    async def _listen_forever(self) -> None:
        while True:
            with contextlib.suppress(redis.exceptions.RedisError, OSError):
                await self._listen()
            await asyncio.sleep(LISTEN_AGAIN)  # beats notice revocations meanwhile

    async def _listen(self) -> None:
        async with self._store.channel(CHANGED) as channel:
            while True:
                message = await channel.message(within=5.0)
                if message is not None and message["type"] == "message":
                    account, _, key = message["data"].decode().partition(":")
                    self.revoked(account, key)


def _is_overdue(call: Call, age: float) -> bool:
    """Whether nothing of its answer has come in the time its model gives all attempts together."""
    return call.first_token is None and age > call.model.targets[0].target.timeouts.total + OVERDUE

"""What others see of the running calls of a worker: a page of them, oldest first."""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import Iterable, Sequence

from msgspec import Struct

from gateway.inference.call import Call

AT_ONCE = 50  # calls described in one step of the event loop; each takes 20 µs


class RunningCall(Struct, frozen=True, array_like=True):
    """An admitted call that is not settled; amounts are nano-units."""

    admitted_at: int  # µs, the store's time
    request_id: str
    account: str
    key: str  # id
    model: str  # as requested
    provider: str  # of the last attempt; empty before the first
    endpoint: str
    stream: bool
    seconds: float  # since the request began
    tokens_out: int  # delivered so far
    cost: int  # of what was delivered so far
    held: int
    machine: str = ""  # host and port; the worker leaves it empty
    session: str = ""  # its id; empty for a call without one

    @property
    def position(self) -> tuple[int, str]:
        """Its place in the order of all lists."""
        return self.admitted_at, self.request_id


class CallQuery(Struct, frozen=True, array_like=True):
    """Which calls: at most `limit`, those behind the position `after`."""

    accounts: Sequence[str] = ()  # none: of all
    limit: int = 100
    after: tuple[int, str] | None = None


async def list_running(calls: Iterable[Call], query: CallQuery) -> list[RunningCall]:
    """The calls in the order of their admission; those that settle meanwhile are left out."""
    chosen = heapq.nsmallest(query.limit, (call for call in calls if _matches(call, query)), key=_position)
    found: list[RunningCall] = []
    for index, call in enumerate(chosen):
        if index % AT_ONCE == AT_ONCE - 1:
            await asyncio.sleep(0)  # other calls go first
        if not call.settled:
            found.append(describe(call))
    return found


def describe(call: Call) -> RunningCall:
    """The call at this moment."""
    usage = call.usage()
    return RunningCall(
        admitted_at=call.hold.admitted_at,
        request_id=call.request_id,
        account=call.key.account,
        key=call.key.id,
        model=call.model.name,
        provider=call.provider,
        endpoint=call.endpoint.name,
        stream=call.stream,
        seconds=time.monotonic() - call.reply.started,
        tokens_out=usage.tokens_out if usage is not None else 0,
        cost=call.cost(usage) if usage is not None else 0,
        held=call.hold.amount,
        session=call.quote.session,
    )


def _matches(call: Call, query: CallQuery) -> bool:
    return (not query.accounts or call.key.account in query.accounts) and (
        query.after is None or _position(call) > query.after
    )


def _position(call: Call) -> tuple[int, str]:
    return call.hold.admitted_at, call.request_id

"""Questions about the running calls of a worker, and its answers: lists of `RunningCall` in MessagePack."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from gateway.inference.active_calls import ActiveCalls
from gateway.inference.running_calls import CallQuery, RunningCall, describe, list_running
from gateway.runtime.local_socket import CANCEL, LIST
from gateway.runtime.questions import Question


class Cancellation(Struct, frozen=True, array_like=True):
    """Which call to end; it must be of one of the accounts, if there are any."""

    request_id: str
    accounts: Sequence[str] = ()


async def answer_calls(question: Question, calls: ActiveCalls) -> bytes:
    """The calls that run, or the one that was cancelled."""
    found: list[RunningCall] = []
    if question.name == LIST:
        query = msgspec.msgpack.decode(question.payload, type=CallQuery)
        found = await list_running(calls.calls.values(), query)
    elif question.name == CANCEL:
        wanted = msgspec.msgpack.decode(question.payload, type=Cancellation)
        if (call := calls.cancel(wanted.request_id, wanted.accounts)) is not None:
            found = [describe(call)]
    return msgspec.msgpack.encode(found)

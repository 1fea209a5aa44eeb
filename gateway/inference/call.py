"""One call of a model, from its hold to its settlement: the mutable record that its stages share.

`hold_cost` creates it, the pipeline fills it, `ActiveCalls` renews its lease and may cut it, `Settlement` makes the
ledger line from it. What comes before is in `call_stages`. Times are monotonic seconds.

`stop` and `cut` cancel its task. A provider may suppress the cancellation or clean up for long; the clock then ends the
call `STOP_WITHIN` seconds later without its task.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any, Protocol

from msgspec import Struct, field

from gateway.billing.call_record import CallRecord, Joined
from gateway.billing.quote import Quote
from gateway.billing.usage import Usage
from gateway.billing.usage_bounds import Counted
from gateway.catalog import Model
from gateway.errors import GatewayError
from gateway.errors.facts import RefusalFacts
from gateway.hooks.runner import HookFailed, HookRunner
from gateway.http_client.send_state import SendState
from gateway.http_server.reply import ResponseWriter
from gateway.inference.idempotency import Claim
from gateway.inference.sinks import EventSink
from gateway.ledger import Hold
from gateway.ledger.api_key import ApiKey
from gateway.plugins.hook import CheckedCall
from gateway.routing.request_adaptation import Adapted
from gateway.routing.router import Candidate

STOP_WITHIN = 0.25  # seconds after which a call that was stopped ends without its task


class UsageCounter(Protocol):
    """The part of an endpoint that a call uses."""

    @property
    def name(self) -> str: ...
    @property
    def prompt_param(self) -> str: ...
    @property
    def filter_code(self) -> str: ...

    def usage(self, call: Call) -> Usage | None:
        """What a stream used so far; None while nothing is charged."""

    def error_frame(self, error: GatewayError, call: Call) -> bytes:
        """The frame of an error inside the stream of `call`."""

    def stream_ended(self, call: Call) -> None:
        """Called when the stream has ended or was cut."""


class DeadlineClock(Protocol):
    """What ends calls at their deadlines."""

    def expect(self, when: float) -> None:
        """Check the calls at the monotonic time `when` at the latest."""


class Caller(Protocol):
    """The handler of the request."""

    def client_address(self) -> str:
        """The address of the client, behind the proxies that the operator trusts."""

    def call_ended(self) -> None:
        """The call was answered and settled without its task."""


class Hooked(Protocol):
    """`HookedCall`."""

    outcomes: dict[str, str]
    answer: Any  # that a hook has given in place of a provider
    keeping: Any  # of the answer, for hooks that get it

    def view(self) -> CheckedCall:
        """The call for one run of one hook."""

    def note(self, runner: HookRunner, outcome: str) -> None:
        """Keep the outcome of a run."""

    def refused(self, runner: HookRunner) -> None:
        """The hook has refused."""

    def failed(self, runner: HookRunner, failure: HookFailed) -> None:
        """The hook has failed; Unavailable if calls do not go on without it."""


class Call(Struct, eq=False):
    """The first fields are known when its money is held; the others change while the answer arrives and at the end."""

    request_id: str
    endpoint: UsageCounter
    key: ApiKey
    reply: ResponseWriter
    model: Model  # with the prices of the account
    quote: Quote
    hold: Hold
    request: Any  # decoded, as the endpoint knows it
    body_size: int  # bytes of the request's body, decompressed
    adapted: Sequence[Adapted[Any]]  # the request as each candidate sees it
    stream: bool
    service_tier: str | None  # what is charged: as asked until the upstream has said what it used
    client_gone: bool
    claim: Claim | None  # on the caller's Idempotency-Key
    task: asyncio.Task[Any] | None
    caller: Caller | None
    running: bool = True  # not settled yet
    clock: DeadlineClock | None = None
    deadline: float = 0.0  # at which the whole call ends
    # Set while the answer comes.
    attempts: list[Candidate] = []
    sending: SendState = field(default_factory=SendState)
    public_model: str = ""  # the name that the answer bears
    sink: EventSink | None = None  # of a streamed answer
    encoder: Any = None  # of a streamed answer
    used: Usage | None = None  # of an answer that is whole
    fault: str = ""  # what was wrong with the upstream's counts
    first_token: float | None = None  # seconds after the start
    chunks: int = 0
    upstream_waited: float = 0.0  # seconds spent on upstreams
    asked_at: float = 0.0  # since when the stream waits for its provider; 0 while it waits for the client or the store
    joined: Joined | None = None  # the seam of an answer that two targets gave
    lane_units: int = -1  # delivered when the text fast path was checked last; -1 while it is closed
    # Set at the end.
    detached: bool = False  # nothing more may be written to its connection without a check
    output_rate: float = 0.0  # tokens a second that an answer without usage is charged by; 0: by what was delivered
    cut_by: GatewayError | None = None  # why the gateway itself ended it
    stop_by: float = 0.0  # when it ends without its task; 0 unless that was cancelled
    abandoned: bool = False  # it was ended without its task
    status: int = 200
    outcome: str = "ok"
    error: RefusalFacts | None = None  # of the error that ended it
    detail: str = ""
    settled: bool = False
    record: CallRecord | None = None
    hooked: Hooked | None = None  # of a model with hooks

    @property
    def provider(self) -> str:
        """The provider of the last attempt; empty before the first."""
        return self.attempts[-1].target.provider if self.attempts else ""

    @property
    def fallback(self) -> str:
        """Name of the fallback of the last attempt; empty where that is the requested model."""
        name = self.attempts[-1].model.name if self.attempts else self.model.name
        return name if name != self.model.name else ""

    def cost(self, usage: Usage) -> int:
        """The cost of `usage` in this call, in nano units."""
        return self.quote.price.cost(usage, service_tier=self.service_tier)

    def accept_count(self, counted: Counted) -> Usage:
        """The usage to charge; what was wrong with the upstream's counts is kept for the log."""
        self.fault = counted.fault
        return counted.usage

    def since_start(self) -> float:
        """Seconds since the request began."""
        return time.monotonic() - self.reply.started

    def usage(self) -> Usage | None:
        """What the call used so far; None when nothing is charged."""
        usage = self.used if self.used is not None else self.endpoint.usage(self)
        if usage is None and self.client_gone and self.sending.is_sent() and self.outcome == "ok":
            return self.quote.prompt  # the upstream has read the prompt
        return usage

    def cost_so_far(self) -> int:
        """The cost of the call up to now, in nano units; 0 before anything was delivered."""
        usage = self.usage()
        return self.cost(usage) if usage is not None else 0

    @property
    def committed(self) -> bool:
        """Whether the HTTP status was sent, so that an error can no longer change it."""
        return self.sink is not None and self.sink.committed

    @property
    def stopped(self) -> bool:
        """Whether the gateway has cancelled its task, so that errors of its provider mean nothing."""
        return self.stop_by > 0.0 or self.sending.late is not None

    def cut(self, error: GatewayError) -> None:
        """End a running call: the upstream is closed, the client gets `error`, and what was delivered is charged."""
        if self.running and self.cut_by is None:
            self.cut_by = error
            self.stop()

    def stop(self) -> None:
        """Cancel its task; after `STOP_WITHIN` seconds it ends in any case."""
        if self.task is None or self.stop_by:
            return
        self.stop_by = time.monotonic() + STOP_WITHIN
        self.task.cancel()
        if self.clock is not None:
            self.clock.expect(self.stop_by)

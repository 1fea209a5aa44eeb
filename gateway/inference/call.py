"""One call of a model under way, from its quote to its settlement: the one mutable record that all stages share.

The handler makes it, the pipeline fills it in, `ActiveCalls` renews its lease and may cut it, `Settlement` turns it
into a ledger line. Times are monotonic seconds.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from gateway.billing.usage import Usage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gateway.billing.call_record import CallRecord
    from gateway.billing.quote import Quote
    from gateway.catalog import Model
    from gateway.errors import GatewayError
    from gateway.http_server.reply import Reply
    from gateway.inference.idempotency import Claim
    from gateway.inference.sinks import EventSink
    from gateway.ledger import Hold
    from gateway.ledger.api_key import ApiKey
    from gateway.routing.request_adaptation import Adapted
    from gateway.routing.router import Candidate

#: Seconds that an upstream is read on after its client left, under the disconnect policy "drain".
DRAIN_WITHIN = 60.0


class Counting(Protocol):
    """What a call needs of its endpoint."""

    @property
    def name(self) -> str: ...

    def usage(self, call: Call) -> Usage | None:
        """What a stream used so far; None while nothing is owed."""


class Call(Struct, eq=False):
    """What is set from the start, by the quote, by admission, while the answer comes, and at the end."""

    request_id: str
    endpoint: Counting
    key: ApiKey
    reply: Reply
    task: asyncio.Task[Any] | None = None
    claim: Claim | None = None  # on the caller's Idempotency-Key
    # Set by the quote; nothing reads them before.
    model: Model = None  # type: ignore[assignment]
    quote: Quote = None  # type: ignore[assignment]
    request: Any = None  # decoded, as the endpoint knows it
    body_size: int = 0  # bytes of the request's body, decompressed
    adapted: Sequence[Adapted[Any]] = ()  # the request as each candidate sees it
    stream: bool = False
    service_tier: str | None = None  # what is charged: as asked until the upstream has said what it used
    # Set by admission.
    hold: Hold = None  # type: ignore[assignment]
    running: bool = False  # admitted and not settled yet
    # Set while the answer comes.
    attempts: list[Candidate] = []
    public_model: str = ""  # the name that the answer bears
    sink: EventSink | None = None  # of a streamed answer
    encoder: Any = None  # of a streamed answer
    used: Usage | None = None  # of an answer that is whole
    first_token: float | None = None  # seconds after the start
    chunks: int = 0
    upstream_waited: float = 0.0  # seconds spent on upstreams
    # Set at the end.
    client_gone: bool = False
    cut_by: GatewayError | None = None  # why the gateway itself ended it
    status: int = 200
    outcome: str = "ok"
    detail: str = ""
    settled: bool = False
    record: CallRecord | None = None

    @property
    def started(self) -> float:
        """When the request began."""
        return self.reply.started

    @property
    def provider(self) -> str:
        """The provider that served, or was tried last."""
        return self.attempts[-1].target.provider if self.attempts else ""

    @property
    def fallback(self) -> str:
        """Name of the fallback that served, or was tried last; empty where that is the model asked for."""
        name = self.attempts[-1].model.name if self.attempts else self.model.name
        return name if name != self.model.name else ""

    def cost(self, usage: Usage) -> int:
        """Nano units that `usage` costs in this call."""
        return self.quote.price.cost(usage, service_tier=self.service_tier)

    def since_start(self) -> float:
        """Seconds since the request began."""
        return time.monotonic() - self.reply.started

    def usage(self) -> Usage | None:
        """What the call used so far; None when nothing is owed."""
        usage = self.used if self.used is not None else self.endpoint.usage(self)
        if usage is None and self.client_gone and self.attempts:
            return self.quote.prompt  # the upstream was already reading it
        return usage

    def cost_so_far(self) -> int:
        """What the call has cost up to now, in nano units; 0 before anything was delivered."""
        usage = self.usage()
        return self.cost(usage) if usage is not None else 0

    @property
    def committed(self) -> bool:
        """Whether the status has left, so that an error can no longer be one."""
        return self.sink is not None and self.sink.committed

    @property
    def cancelled(self) -> bool:
        """Whether its task was cancelled, even where a provider swallowed that."""
        return self.task is not None and self.task.cancelling() > 0

    def cut(self, error: GatewayError) -> None:
        """End a running call from outside: the upstream is closed, the client is told, the delivered is charged."""
        if self.running and self.task is not None and self.cut_by is None:
            self.cut_by = error
            self.task.cancel()

    def disconnect(self) -> None:
        """The client of a running call left: stop it, which closes the upstream, unless somebody wants the answer."""
        if self.claim is not None and self.claim.keeps:
            return  # the answer is finished, kept and charged in full: a retry will ask for it
        self.client_gone = True
        if self.task is None:
            return
        if self.model.disconnect == "drain":
            # The operator wants the upstream's own count: read on to it, but not for ever.
            asyncio.get_running_loop().call_later(DRAIN_WITHIN, self.task.cancel)
        else:
            self.task.cancel()

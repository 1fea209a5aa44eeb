"""What a call is before its money is held: the request for it, and its quote. After the hold it is a `Call`.

::

    CallRequest ──quote_call──► QuotedCall ──hold_cost──► Call ──settle──► CallRecord

Each stage has what the one before found out, so nothing reads what is not known yet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol

from msgspec import Struct

from gateway.billing.quote import Quote
from gateway.catalog import Model
from gateway.http_server.reply import ResponseWriter
from gateway.inference.call import Call, Caller
from gateway.inference.hooked_call import HookedCall
from gateway.inference.idempotency import Claim
from gateway.ledger.api_key import ApiKey
from gateway.routing.request_adaptation import Adapted
from gateway.telemetry.call_trace import CallTrace
from gateway.uploads.budget import Share


class NamedEndpoint(Protocol):
    """The part of an endpoint that a request for a call uses."""

    @property
    def name(self) -> str: ...
    @property
    def permission(self) -> str: ...


class BatchTerms(Protocol):
    """The batch that a call is a line of: the call has the price of batches, and its hold is part of their budget."""

    @property
    def id(self) -> str:
        """The id of the batch, which is the session on the ledger lines of its calls."""

    def reserve(self, amount: int) -> None:
        """Make room for a hold of `amount` nano-units, in place of an earlier one; raises the error of a refusal."""


class CallRequest(Struct, eq=False):
    """The request of a caller, from its head to its end: the handler creates it, the pipeline fills it.

    `model` is the catalogue's, without the prices of the account, and None until the request names one that exists.
    """

    request_id: str
    endpoint: NamedEndpoint
    key: ApiKey
    reply: ResponseWriter
    task: asyncio.Task[Any] | None = None
    caller: Caller | None = None
    client_gone: bool = False
    claim: Claim | None = None  # on the caller's Idempotency-Key
    content: Any = None  # decoded, as the endpoint knows it
    body_size: int = 0  # bytes of the request's body, decompressed
    model: Model | None = None
    session: str = ""  # as a header names it; with the quote the id of the session, empty for none
    outcome: str = "ok"  # of a request that was answered without a call
    call: Call | None = None  # once it was admitted
    media: Share | None = None  # of the memory for content that was fetched
    trace: CallTrace | None = None  # of a request that is traced
    hooked: HookedCall | None = None  # of a model with hooks
    batch: BatchTerms | None = None  # of a line of a batch


class QuotedCall(Struct, frozen=True):
    """The price of a call and its worst cost; another price or a lower output limit gives another one."""

    model: Model  # with the prices of the account
    quote: Quote
    adapted: Sequence[Adapted[Any]]  # the request as each candidate sees it

"""The record of one finished call: given to the ledger, the log, the metrics and the `call_settled` hook."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from gateway.billing.usage import Usage
from gateway.errors.attempt_answer import AttemptAnswer


class Joined(Struct, frozen=True):
    """Where two targets' parts of one answer meet."""

    form: str  # "prefill", "overlap" or "restart"
    offset: int  # characters that the first target gave


class CallRecord(Struct, frozen=True):
    """The result of one call; durations in seconds, cost in nano currency units (1e-9)."""

    request_id: str
    endpoint: str
    account: str
    key: str
    model: str  # the requested model
    provider: str
    outcome: str  # "ok", an error code, or "client_closed"
    status: int
    usage: Usage
    tokens_in: int  # all prompt tokens of `usage`
    tokens_out: int  # all completion tokens of `usage`
    cost: int
    attempts: int
    duration: float
    first_token: float | None
    stream: bool
    served_model: str = ""  # the model that served or was tried last: `model` or a fallback
    upstream_model: str = ""  # its name at the upstream that was tried last; empty if none was tried
    service_tier: str | None = None  # the tier that is charged
    user: str = ""  # the id of the user who has the key; empty for a service key
    tags: Mapping[str, str] | None = None  # the caller's labels, as far as they are configured
    upstream_cost: int | None = None  # what the operator pays, in nano units; None without a cost price
    answers: tuple[AttemptAnswer, ...] | None = None  # of each attempt; None if the outcome says as much
    session: str = ""  # the id of the session; empty for a call without one
    joined: Joined | None = None  # the seam of an answer that two targets gave
    error: str = ""  # what the log says of the error that ended it; it may quote the upstream
    price_version: str = ""  # of the price that it is charged by; empty for a free model
    credential: int = 0  # the credential of the provider that served or was tried last, from 1; 0 if none was tried
    hooks: Mapping[str, str] | None = None  # what came of its hooks, by name; None for a model without hooks

"""One batch, and its form in the API."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct

from gateway.amounts import format_amount

Status = Literal["validating", "failed", "in_progress", "finalizing", "completed", "expired", "cancelling", "cancelled"]
ENDED: frozenset[str] = frozenset({"failed", "completed", "expired", "cancelled"})
#: The paths whose requests a batch may have.
ENDPOINTS = ("/v1/chat/completions", "/v1/embeddings", "/v1/completions", "/v1/responses", "/v1/messages")
WINDOW = 86_400  # seconds, of `completion_window`: "24h", the only one


class BatchError(Struct, frozen=True):
    """Something wrong with the input, or the reason why a batch has ended early."""

    code: str
    message: str
    param: str | None = None
    line: int | None = None  # from 1


class Batch(Struct, kw_only=True):
    """One batch. Times are Unix seconds, amounts nano-units; the runner of `place` alone changes it."""

    id: str
    account: str
    key: str  # the id of the key that has made it, which pays
    user: str  # of that key; empty for a service key
    shows_cost: bool  # of that key
    address: str  # of the client that has made it
    place: str  # the id of the folder with its work
    endpoint: str
    input_file_id: str
    created_at: int
    expires_at: int
    metadata: dict[str, str] | None = None
    max_cost: int | None = None
    output_expires_after: int | None = None  # seconds
    status: Status = "validating"
    errors: tuple[BatchError, ...] = ()
    total: int = 0  # lines
    completed: int = 0
    failed: int = 0
    cost: int = 0
    held: int = 0  # of the lines that run, a second ago
    settled: int = 0  # bytes of the log whose settlements are in the journal or in the store
    output_file_id: str | None = None
    error_file_id: str | None = None
    in_progress_at: int | None = None
    finalizing_at: int | None = None
    completed_at: int | None = None
    failed_at: int | None = None
    expired_at: int | None = None
    cancelled_at: int | None = None
    outcome: Status | None = None  # how it ends once its files are written
    stopped: BatchError | None = None  # why its lines were not all run

    def is_seen_by(self, user: str) -> bool:
        """Whether a key of `user` sees it; "" is a service key."""
        return not user or user == self.user

    def document(self, cancelling_at: int | None) -> dict[str, Any]:
        """The batch in the API's form; `cancelling_at`: when it was cancelled, if it was."""
        status = self.status
        if cancelling_at is not None and status not in ENDED:
            status = "cancelling"
        return {
            "id": self.id,
            "object": "batch",
            "endpoint": self.endpoint,
            "errors": _errors(self.errors),
            "input_file_id": self.input_file_id,
            "completion_window": "24h",
            "status": status,
            "output_file_id": self.output_file_id,
            "error_file_id": self.error_file_id,
            "created_at": self.created_at,
            "in_progress_at": self.in_progress_at,
            "expires_at": self.expires_at,
            "finalizing_at": self.finalizing_at,
            "completed_at": self.completed_at,
            "failed_at": self.failed_at,
            "expired_at": self.expired_at,
            "cancelling_at": cancelling_at,
            "cancelled_at": self.cancelled_at,
            "request_counts": {"total": self.total, "completed": self.completed, "failed": self.failed},
            "metadata": self.metadata,
            "cost": format_amount(self.cost),
            "max_cost": None if self.max_cost is None else format_amount(self.max_cost),
        }


def _errors(errors: tuple[BatchError, ...]) -> Mapping[str, Any] | None:
    if not errors:
        return None
    data = [{"code": one.code, "message": one.message, "param": one.param, "line": one.line} for one in errors]
    return {"object": "list", "data": data}


def new_batch_id() -> str:
    """`batch_` and 32 hex digits."""
    return f"batch_{secrets.token_hex(16)}"

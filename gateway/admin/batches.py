"""Batches as people and programs see them: lists, one batch, and its end, with its event in the audit trail.

A member of an account sees and ends the batches that were made with their own keys, an owner those of the account.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct

from gateway.admin.actor import Actor
from gateway.admin.audit_event import new_event
from gateway.admin.outbox import AuditOutbox
from gateway.admin.times import time_text
from gateway.amounts import format_amount
from gateway.batches.all_batches import Position
from gateway.batches.batch import ENDED, Batch, BatchError
from gateway.batches.records import BatchRecords
from gateway.errors import Forbidden, InvalidValue, NotFound
from gateway.files.records import FileRecords, StoredFile
from gateway.store import Store


class FoundBatch(Struct, frozen=True):
    """A batch, when it was cancelled, in seconds, and its place in lists."""

    batch: Batch
    cancelled_at: int | None
    position: Position = (0, "")

    @property
    def status(self) -> str:
        """That of the batch, as the API has it."""
        status: str = self.batch.document(self.cancelled_at)["status"]
        return status

    @property
    def has_ended(self) -> bool:
        """Whether nothing of it runs any more."""
        return self.batch.status in ENDED

    def json_form(self) -> dict[str, Any]:
        """The JSON document of a batch for operators."""
        batch = self.batch
        ended = batch.completed_at or batch.failed_at or batch.expired_at or batch.cancelled_at
        return {
            "id": batch.id,
            "account": batch.account,
            "key": batch.key,
            "user": batch.user or None,
            "endpoint": batch.endpoint,
            "status": self.status,
            "total": batch.total,
            "completed": batch.completed,
            "failed": batch.failed,
            "cost": format_amount(batch.cost),
            "held": format_amount(0 if self.has_ended else batch.held),
            "max_cost": None if batch.max_cost is None else format_amount(batch.max_cost),
            "created": _time(batch.created_at),
            "expires": _time(batch.expires_at),
            "started": _time(batch.in_progress_at),
            "cancelled": _time(self.cancelled_at),
            "ended": _time(ended),
            "input_file": batch.input_file_id,
            "output_file": batch.output_file_id,
            "error_file": batch.error_file_id,
            "metadata": batch.metadata,
            "errors": [_error(error) for error in batch.errors],
        }


class BatchAdmin:
    """The batches of a store."""

    def __init__(self, store: Store, outbox: AuditOutbox) -> None:
        self._records = BatchRecords(store)
        self._files = FileRecords(store)
        self._outbox = outbox

    async def list(
        self, actor: Actor, *, account: str = "", before: Position | None = None, limit: int = 100
    ) -> Sequence[FoundBatch]:
        """The batches that the actor may see, of one account or of all, the newest first, behind a position."""
        account = account or actor.account
        if account:
            user = _seen_by(actor, account)
            found = await self._records.newest(account, user=user, before=before, limit=limit)
        elif actor.may_read("accounts"):
            found = await self._records.newest_of_all(before=before, limit=limit)
        else:
            raise Forbidden("This needs the scope 'read' or 'accounts', or a member of an account")
        return [FoundBatch(batch, mark, position) for position, batch, mark in found]

    async def show(self, actor: Actor, batch_id: str, *, account: str = "") -> FoundBatch:
        """A batch, of one account or of any; NotFound for one that the actor may not see."""
        unknown = NotFound(f"no batch {batch_id[:64]!r}")
        owner = account or await self._records.of_all.account_of(batch_id)
        try:
            batch, mark = await self._records.find(owner, batch_id, user=_seen_by(actor, owner))
        except NotFound:
            raise unknown from None
        return FoundBatch(batch, mark)

    async def cancel(self, actor: Actor, batch_id: str, *, account: str = "") -> FoundBatch:
        """End a batch: the lines that run are completed, no other begins. InvalidValue if it has ended."""
        found = await self.show(actor, batch_id, account=account)
        batch = found.batch
        if not may_cancel(actor, batch):
            raise Forbidden("This needs the scope 'accounts', an owner of the account, or the user who made the batch")
        if found.has_ended:
            raise InvalidValue(f"The batch has ended already: it is {batch.status}", param="batch")
        if found.cancelled_at is None:
            await self._records.cancel(batch.account, batch.id)
            after = {"key": batch.key, "completed": batch.completed, "total": batch.total}
            event = new_event(actor, "batches.cancel", f"batch:{batch.id}", account=batch.account, after=after)
            await self._outbox.add(event)
        return await self.show(actor, batch_id, account=batch.account)

    async def file(self, actor: Actor, found: FoundBatch, file_id: str) -> StoredFile | None:
        """A file of a batch, if it is still there and the actor may read what it says."""
        if not may_read_files(actor, found.batch):
            return None
        try:
            return await self._files.find(found.batch.account, file_id)
        except NotFound:
            return None


def may_cancel(actor: Actor, batch: Batch) -> bool:
    """Whether the actor may end the batch: operators, owners of its account, and who made it."""
    return actor.may("accounts", batch.account) or may_read_files(actor, batch)


def may_read_files(actor: Actor, batch: Batch) -> bool:
    """Whether the actor may read prompts and answers of the batch: owners of its account, and who made it.

    Operators and viewers of the site see the figures of an account, and nothing that its callers sent.
    """
    is_own = bool(batch.user) and actor.kind == "user" and actor.id == batch.user
    return actor.owns(batch.account) or (is_own and batch.account in actor.memberships)


def _seen_by(actor: Actor, account: str) -> str:
    """The user whose batches the actor sees; empty for all of the account. NotFound if they see none."""
    if actor.may_read("accounts", account) or actor.owns(account):
        return ""
    if actor.kind == "user" and account in actor.memberships:
        return actor.id
    raise NotFound(f"no account {account!r}")


def _error(error: BatchError) -> dict[str, Any]:
    return {"code": error.code, "message": error.message, "param": error.param, "line": error.line}


def _time(seconds: int | None) -> str | None:
    return None if seconds is None else time_text(datetime.fromtimestamp(seconds, UTC))

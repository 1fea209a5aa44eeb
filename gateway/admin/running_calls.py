"""The running calls of this machine: a list of them, and the end of one, with its event in the audit trail."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from msgspec import Struct, structs

from gateway.admin.actor import Actor
from gateway.admin.audit_event import new_event
from gateway.admin.outbox import AuditOutbox
from gateway.admin.times import from_micros
from gateway.amounts import format_amount
from gateway.errors import Forbidden, NotFound, Unavailable
from gateway.inference.running_calls import CallQuery, RunningCall


class Found(Struct, frozen=True):
    """Calls, and the number of workers that did not answer, whose calls are missing."""

    calls: list[RunningCall]
    silent: int


class Workers(Protocol):
    """The workers of this machine."""

    async def list(self, query: CallQuery) -> Found:
        """Their calls in the order of admission, at most `query.limit`."""

    async def cancel(self, request_id: str, accounts: Sequence[str]) -> Found:
        """End the call, if it is of one of the accounts or there are none; returns it."""


class NoWorkers:
    """The workers of a process that has none."""

    async def list(self, query: CallQuery) -> Found:
        return Found([], 0)

    async def cancel(self, request_id: str, accounts: Sequence[str]) -> Found:
        return Found([], 0)


class RunningCalls:
    """What operators see and end; owners see and end the calls of their accounts."""

    def __init__(self, workers: Workers, outbox: AuditOutbox) -> None:
        self._workers = workers
        self._outbox = outbox

    async def list(
        self, actor: Actor, *, account: str = "", after: tuple[int, str] | None = None, limit: int = 100
    ) -> Found:
        """The calls that the actor may see, of one account or of all; Unavailable if no worker answers."""
        accounts = _accounts(actor, account, reads=True)
        found = await self._workers.list(CallQuery(accounts, limit, after))
        if found.silent and not found.calls:
            raise Unavailable("The workers do not answer")
        return found

    async def cancel(self, actor: Actor, request_id: str) -> RunningCall:
        """End a call: what was delivered is charged. NotFound if it does not run on this machine."""
        found = await self._workers.cancel(request_id, _accounts(actor, "", reads=False))
        if not found.calls:
            if found.silent:
                raise Unavailable("A worker does not answer, so the call may be running still")
            raise NotFound(f"no running call {request_id!r}")
        call = found.calls[0]
        after = {"key": call.key, "model": call.model, "cost": format_amount(call.cost)}
        event = new_event(actor, "calls.cancel", f"call:{request_id}", account=call.account, after=after)
        await self._outbox.add(event)
        return call


def call_form(call: RunningCall) -> dict[str, Any]:
    """The JSON document of a running call."""
    form = structs.asdict(call)
    started = from_micros(form.pop("admitted_at")).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return {
        **form,
        "provider": call.provider or None,
        "started": started,
        "seconds": round(call.seconds, 3),
        "cost": format_amount(call.cost),
        "held": format_amount(call.held),
    }


def _accounts(actor: Actor, account: str, *, reads: bool) -> list[str]:
    """The accounts whose calls the actor may see or end; empty for all.

    Forbidden if there is none; NotFound for an account that does not exist for the actor.
    """
    may = actor.may_read if reads else actor.may
    if may("accounts", actor.account):
        if actor.account and account not in ("", actor.account):
            raise NotFound(f"no account {account!r}")
        return [account or actor.account] if account or actor.account else []
    owned = [name for name in actor.memberships if actor.owns(name)]
    if not owned:
        also = "'read' or " if reads else ""
        raise Forbidden(f"This needs the scope {also}'accounts', or an owner of the account")
    if account and account not in owned:
        raise NotFound(f"no account {account!r}")
    return [account] if account else owned

"""The running calls of all machines: a list of them, and the end of one, with its event in the audit trail."""

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
from gateway.ids import to_request_id
from gateway.inference.running_calls import CallQuery, RunningCall


class FoundCalls(Struct, frozen=True):
    """Calls, and the numbers of workers and of machines that did not answer, whose calls are missing."""

    calls: list[RunningCall]
    silent: int
    silent_machines: int = 0


class Workers(Protocol):
    """The workers of all machines with this store."""

    async def list(self, query: CallQuery) -> FoundCalls:
        """Their calls in the order of admission, at most `query.limit`."""

    async def cancel(self, request_id: str, accounts: Sequence[str]) -> FoundCalls:
        """End the call, if it is of one of the accounts or there are none; returns it."""


class NoWorkers:
    """The workers of a process that has none."""

    async def list(self, query: CallQuery) -> FoundCalls:
        return FoundCalls([], 0)

    async def cancel(self, request_id: str, accounts: Sequence[str]) -> FoundCalls:
        return FoundCalls([], 0)


class RunningCalls:
    """What operators see and end; owners see and end the calls of their accounts."""

    def __init__(self, workers: Workers, outbox: AuditOutbox) -> None:
        self._workers = workers
        self._outbox = outbox

    async def list(
        self, actor: Actor, *, account: str = "", after: tuple[int, str] | None = None, limit: int = 100
    ) -> FoundCalls:
        """The calls that the actor may see, of one account or of all; Unavailable if no worker answers."""
        accounts = _accounts(actor, account, reads=True)
        found = await self._workers.list(CallQuery(accounts, limit, after))
        if found.silent and not found.calls:
            raise Unavailable("The workers do not answer")
        return structs.replace(found, calls=[_shown(actor, call) for call in found.calls])

    async def cancel(self, actor: Actor, request_id: str, *, account: str = "") -> RunningCall:
        """End a call, of one account or of any: what was delivered is charged. NotFound if it does not run."""
        request_id = to_request_id(request_id)
        found = await self._workers.cancel(request_id, _accounts(actor, account, reads=False))
        if not found.calls:
            if found.silent or found.silent_machines:
                what = "worker" if found.silent else "machine"
                raise Unavailable(f"A {what} does not answer, so the call may be running still")
            raise NotFound(f"no running call {request_id!r}")
        call = _shown(actor, found.calls[0])
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
        "machine": call.machine or None,
        "session": call.session or None,
        "started": started,
        "seconds": round(call.seconds, 3),
        "cost": format_amount(call.cost),
        "held": format_amount(call.held),
    }


def _shown(actor: Actor, call: RunningCall) -> RunningCall:
    """The call without the name of the machine, unless the actor reads the calls of the site."""
    return call if actor.may_read("accounts") else structs.replace(call, machine="")


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

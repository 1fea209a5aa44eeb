"""Settlements that the store refused: what is set aside on this machine, and booking it after its cause is gone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from gateway.accounts.accounts import Accounts, Refused, time_text
from gateway.admin.actor import Actor
from gateway.admin.audit_event import new_event
from gateway.admin.outbox import AuditOutbox
from gateway.amounts import format_amount
from gateway.errors import GatewayError, NotFound
from gateway.ledger import Ledger, LedgerLine
from gateway.ledger.archive_checkpoint import CARRY
from gateway.ledger.entry import Entry
from gateway.ledger.refused import RefusedFile

State = Literal["open", "booked", "no account"]

#: Lines of an account up to a number that were booked at a Unix time in milliseconds or later, in order; None if there
#: is no database: `older(account, until, since)`.
OlderLines = Callable[[str, int, int], Awaitable[list[LedgerLine] | None]]


class RefusedEntry(Struct, frozen=True):
    """An entry and its state: `open` can be booked, `booked` was charged; otherwise why it is still refused."""

    entry: Entry
    state: str

    @property
    def is_booked(self) -> bool:
        """Whether its request is charged."""
        return self.state == "booked"

    def json_form(self) -> dict[str, Any]:
        """The JSON document of a row of `gateway refused`."""
        entry = self.entry
        return {
            "at": time_text(datetime.fromtimestamp(entry.at // 1_000_000, UTC)),
            "request_id": entry.request_id,
            "account": entry.account,
            "key": entry.key_id,
            "amount": format_amount(entry.amount),
            "state": self.state,
        }


class RefusedSettlements:
    """The file `refused.jsonl` in this machine's data directory."""

    def __init__(
        self, data_dir: Path, accounts: Accounts, ledger: Ledger, outbox: AuditOutbox, older: OlderLines
    ) -> None:
        self._file = RefusedFile(data_dir / "journal")
        self._accounts = accounts
        self._ledger = ledger
        self._outbox = outbox
        self._older = older

    async def all(self, actor: Actor) -> list[RefusedEntry]:
        """Each entry, the first that was set aside first; needs the scope `read` or `credits` for the site."""
        actor.require_read("credits")
        return [RefusedEntry(entry, await self._state(entry)) for entry in self._file.read()]

    async def book(
        self, actor: Actor, request_ids: Collection[str] | None, *, archives: Sequence[Path] = ()
    ) -> list[RefusedEntry]:
        """Charge the requests, all for None, and take them out of the file; a charged one is not charged again.

        Needs the scope `credits` for the site. NotFound if one of the requests is not in the file; then nothing is
        booked. What is still refused stays in the file.
        """
        actor.require("credits")
        missing = set(request_ids or ()) - {entry.request_id for entry in self._file.read()}
        if missing:
            raise NotFound(f"not in {self._file.path}: {', '.join(sorted(missing))}")
        done: list[RefusedEntry] = []
        left: list[Entry] = []
        entries = self._file.take()
        try:
            while entries:
                entry = entries[0]
                if request_ids is None or entry.request_id in request_ids:
                    done.append(await self._book(actor, entry, archives))
                    if not done[-1].is_booked:
                        left.append(entry)
                else:
                    left.append(entry)
                entries.pop(0)
        finally:
            self._file.give_back([*left, *entries])
        return done

    async def _book(self, actor: Actor, entry: Entry, archives: Sequence[Path]) -> RefusedEntry:
        state = await self._booked(entry, archives)
        if state == "booked":
            after = {"amount": format_amount(entry.amount), "key": entry.key_id}
            object_ = f"call:{entry.request_id}"
            await self._outbox.add(new_event(actor, "refused.book", object_, account=entry.account, after=after))
        return RefusedEntry(entry, state)

    async def _booked(self, entry: Entry, archives: Sequence[Path]) -> str:
        if not await self._exists(entry):
            return "no account"
        try:
            charged = None if archives else await self._is_charged(entry)
            if charged:
                return "booked"
            return await self._ledger.book_refused(entry, archives=archives, searched=charged is not None) or "booked"
        except GatewayError as error:
            return error.log_text() or error.message

    async def _is_charged(self, entry: Entry) -> bool | None:
        """Whether the request has a line in the database or in the store; None if the store itself can tell."""
        opening, lines = None, list[LedgerLine]()
        async for line in self._ledger.lines(entry.account):
            if line.kind == CARRY:
                opening = line
            else:
                lines.append(line)
        since = entry.at // 1000
        if opening is None or opening.milliseconds < since:
            return None
        earlier = await self._older(entry.account, opening.n, since)
        if not earlier or (earlier[-1].n, earlier[-1].balance) != (opening.n, opening.balance):
            return None  # there is no database, or it lacks lines
        return any(line.request_id == entry.request_id for line in (*earlier, *lines))

    async def _state(self, entry: Entry) -> State:
        if not await self._exists(entry):
            return "no account"
        return "booked" if await self._ledger.charge_of(entry.account, entry.request_id) is not None else "open"

    async def _exists(self, entry: Entry) -> bool:
        try:
            await self._accounts.show(entry.account)
        except Refused:
            return False
        return True

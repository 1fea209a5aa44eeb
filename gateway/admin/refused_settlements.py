"""Settlements that the store refused: what is set aside on this machine, and booking it after its cause is gone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from gateway.accounts.accounts import Accounts, time_text
from gateway.admin.actor import Actor
from gateway.admin.audit_event import new_event
from gateway.admin.outbox import AuditOutbox
from gateway.amounts import format_amount
from gateway.errors import GatewayError, NotFound
from gateway.ledger import Ledger, LedgerLine
from gateway.ledger.archive_checkpoint import CARRY
from gateway.ledger.entry import Entry
from gateway.ledger.gather_all import gather_bounded
from gateway.ledger.refused import RefusedFile

AT_ONCE = 256  # entries whose state is read at once

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
        entries = self._file.read()
        missing = {name for name in {entry.account for entry in entries} if not await self._exists(name)}
        states = await gather_bounded((self._state(entry, missing) for entry in entries), AT_ONCE)
        return list(map(RefusedEntry, entries, states))

    async def book(
        self, actor: Actor, request_ids: Collection[str] | None, *, archives: Sequence[Path] = ()
    ) -> list[RefusedEntry]:
        """Charge the requests, all for None, and take them out of the file; a charged one is not charged again.

        Needs the scope `credits` for the site. NotFound if one of the requests is not in the file; then nothing is
        booked. What is still refused stays in the file.
        """
        actor.require("credits")
        asked = None if request_ids is None else set(request_ids)
        missing = (asked or set()) - {entry.request_id for entry in self._file.read()}
        if missing:
            raise NotFound(f"not in {self._file.path}: {', '.join(sorted(missing))}")
        entries, done = self._file.take(), dict[tuple[str, str], RefusedEntry]()
        wanted = [entry for entry in entries if asked is None or entry.request_id in asked]
        by_account: dict[str, list[Entry]] = {}
        for entry in wanted:
            by_account.setdefault(entry.account, []).append(entry)
        try:
            for account, some in by_account.items():
                for entry, state in zip(some, await self._booked(account, some, archives), strict=True):
                    booked = RefusedEntry(entry, state)
                    if booked.is_booked:
                        await self._record(actor, entry)
                    done[_mark(entry)] = booked
        finally:
            left = [entry for entry in entries if (one := done.get(_mark(entry))) is None or not one.is_booked]
            self._file.give_back(left)
        return [done[_mark(entry)] for entry in wanted]

    async def _record(self, actor: Actor, entry: Entry) -> None:
        after = {"amount": format_amount(entry.amount), "key": entry.key_id}
        object_ = f"call:{entry.request_id}"
        await self._outbox.add(new_event(actor, "refused.book", object_, account=entry.account, after=after))

    async def _booked(self, account: str, entries: Sequence[Entry], archives: Sequence[Path]) -> list[str]:
        """The states of entries of one account after they were booked; its lines are read once for all of them."""
        if not await self._exists(account):
            return ["no account"] * len(entries)
        try:
            charged = {} if archives else await self._charged(account, entries)
            left = [entry for entry in entries if not charged.get(entry.request_id)]
            reasons = await self._ledger.book_refused(account, left, archives=archives, searched=charged.keys())
        except GatewayError as error:
            return [error.log_text() or error.message] * len(entries)
        refused = {entry.request_id: reason for entry, reason in zip(left, reasons, strict=True)}
        return [refused.get(entry.request_id) or "booked" for entry in entries]

    async def _charged(self, account: str, entries: Sequence[Entry]) -> dict[str, bool]:
        """By request id, whether a request has a line, for those so old that the store itself cannot tell."""
        opening, found, old, number = None, set[str](), list[Entry](), 0
        wanted = {entry.request_id for entry in entries}
        async for line in self._ledger.lines(account):
            if opening is None:
                if line.kind == CARRY:
                    opening, old = line, [entry for entry in entries if entry.at // 1000 <= line.milliseconds]
                if opening is None or not old:
                    return {}
                number = opening.n
                continue
            number += 1
            if line.n != number:
                return {}  # lines left the store meanwhile
            if line.request_id in wanted:
                found.add(line.request_id)
        if opening is None:
            return {}
        earlier = await self._older(account, opening.n, min(entry.at for entry in old) // 1000)
        if not earlier or (earlier[-1].n, earlier[-1].balance) != (opening.n, opening.balance):
            return {}  # there is no database, or it lacks lines
        found |= wanted.intersection(line.request_id for line in earlier)
        return {entry.request_id: entry.request_id in found for entry in old}

    async def _state(self, entry: Entry, missing: Collection[str]) -> State:
        if entry.account in missing:
            return "no account"
        return "booked" if await self._ledger.charge_of(entry.account, entry.request_id) is not None else "open"

    async def _exists(self, account: str) -> bool:
        try:
            await self._accounts.show(account)
        except NotFound:
            return False
        return True


def _mark(entry: Entry) -> tuple[str, str]:
    return entry.account, entry.request_id

"""Superseded lines: what an older store lacks of the ledger. Lists them, books them again, and acknowledges them.

Credits are booked first, then charges of calls, refunds and debits. No booking takes money that calls hold, or that is
not there: of a charge the rest is uncollected; a debit or a refund that does not fit stays open. Each is booked once,
by its own id, so a booking that was interrupted is simply repeated.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Collection, Iterator, Sequence
from typing import Any, Literal, cast

from msgspec import Struct
from sqlalchemy.engine import Connection

from gateway.accounts.accounts import MAX_NOTE, check_note
from gateway.accounts.keys import keep_lost_keys
from gateway.admin.actor import Actor
from gateway.admin.audit_event import new_event
from gateway.admin.audit_trail import record
from gateway.admin.outbox import AuditOutbox
from gateway.admin.refunds import Refunds
from gateway.admin.times import now
from gateway.admin.transactions import Transactions
from gateway.amounts import format_amount
from gateway.errors import GatewayError, NotFound, StoreUnavailable
from gateway.history import superseded
from gateway.history.lost_changes import ACKNOWLEDGE, PLACE, open_changes
from gateway.history.superseded import OF_CALLS, SupersededLine
from gateway.ledger import Ledger, LedgerLine
from gateway.ledger.entry import Entry
from gateway.ledger.gather_all import gather_bounded
from gateway.ledger.import_hints import send_hints
from gateway.ledger.scripts import Scripts
from gateway.ledger.superseded import (
    CALLS,
    are_booked,
    booking_id,
    booking_kind,
    entry_of,
    is_marked,
    is_of_call,
    meta_of,
    settle_again,
)
from gateway.store.links import Links

AT_ONCE = 50  # bookings in flight
REPORTED = 1000  # lines of a booking that are named
BOOKED = "booked"
HAS_A_LINE = "the call has another line, and its charge is final: refund or debit the difference by hand"

Phase = Literal["credits", "calls", "refunds", "debits"]
#: In the order in which they are booked, with the kinds of their lines.
PHASES: tuple[tuple[Phase, tuple[str, ...]], ...] = (
    ("credits", ("open", "topup", "adj")),
    ("calls", OF_CALLS),
    ("refunds", ("refund",)),
    ("debits", ("adj",)),
)


class BookedLine(Struct, frozen=True):
    """A line and what became of it: `booked`, or why it is still open; with what was charged or credited."""

    found: SupersededLine
    state: str
    booked: int = 0
    is_new: bool = False  # it was booked now, not before

    def json_form(self) -> dict[str, Any]:
        """The JSON document of a row of `gateway superseded book`."""
        return self.found.json_form() | {"state": self.state, "booked": format_amount(self.booked)}


class Booking(Struct):
    """The result of a booking: the counts, and the first lines, those that stay open before the others."""

    booked: int = 0
    left: int = 0
    lines: list[BookedLine] = []

    def add(self, done: Sequence[BookedLine]) -> None:
        """Add results."""
        self.booked += sum(one.state == BOOKED for one in done)
        self.left += sum(one.state != BOOKED for one in done)
        kept = [*self.lines, *done]
        self.lines = sorted(kept, key=lambda one: (one.state == BOOKED, one.found.id))[:REPORTED]

    def json_form(self) -> dict[str, Any]:
        """The JSON document of `gateway superseded book`."""
        return {"booked": self.booked, "left": self.left, "lines": [one.json_form() for one in self.lines]}


class SupersededLines:
    """The superseded lines of the store's own database; the caller has checked that the two belong together."""

    def __init__(
        self, links: Links, ledger: Ledger, refunds: Refunds, outbox: AuditOutbox, transactions: Transactions
    ) -> None:
        self._links = links
        self._ledger = ledger
        self._refunds = refunds
        self._outbox = outbox
        self._transactions = transactions
        self._scripts = Scripts.load()

    async def open_lines(
        self, actor: Actor, *, account: str | None = None, after: int = 0, limit: int
    ) -> list[SupersededLine]:
        """The first open lines behind an id, at most `limit`; needs the scope `read` or `credits` for the site."""
        actor.require_read("credits")
        found: list[SupersededLine] = []
        async for page in self._pages(account=account, after=after):
            found += page
            if len(found) >= limit:
                break
        return found[:limit]

    async def book(self, actor: Actor, ids: Collection[int] | None = None, *, account: str | None = None) -> Booking:
        """Book the lines with these ids again, or all open ones; needs the scope `credits` for the site.

        NotFound if one of the ids is no superseded line; then nothing is booked. A line that is booked already, or
        acknowledged, is left as it is. StoreUnavailable, DatabaseUnavailable: repeat it, nothing is booked twice.
        """
        actor.require("credits")
        await self._check(ids)
        booking = Booking()
        for phase, kinds in PHASES:
            async for page in self._pages(account=account, kinds=kinds, ids=ids):
                chosen = [one for one in page if _phase_of(one.line) == phase]
                by_account: dict[str, list[SupersededLine]] = {}
                for one in chosen:
                    by_account.setdefault(one.line.account, []).append(one)
                for name, some in by_account.items():
                    await self._transactions.require_current(actor)
                    done = await self._book_some(actor, name, some, phase)
                    booking.add(done)
        return booking

    async def acknowledge(
        self, actor: Actor, ids: Collection[int] | None = None, *, account: str | None = None, note: str = ""
    ) -> int:
        """Close open lines without booking them; returns their number. Needs the scope `credits` for the site.

        All of all accounts: the changes that the store has lost are closed, too. NotFound if one of the ids is no
        superseded line; then nothing is closed.
        """
        actor.require("credits")
        check_note(note)
        await self._check(ids)

        closed = 0
        async for page in self._pages(account=account, ids=ids):
            closed += await self._transactions.write_as(actor, _close, [one.id for one in page], note)
        if ids is None and account is None:
            await self._transactions.write_as(actor, _close_changes, note)
        return closed

    async def _check(self, ids: Collection[int] | None) -> None:
        if ids is None:
            return
        missing = set(ids) - await self._transactions.read(superseded.known_ids, ids)
        if missing:
            raise NotFound(f"no superseded line has the id {', '.join(map(str, sorted(missing)))}")

    async def _pages(self, *, after: int = 0, **wanted: Any) -> AsyncIterator[Sequence[SupersededLine]]:
        async def read(behind: int) -> list[SupersededLine]:
            return await self._transactions.read(superseded.open_lines, after=max(after, behind), **wanted)

        async for page in superseded.unbooked_pages(self._links, read):
            yield page

    async def _book_some(
        self, actor: Actor, account: str, lines: Sequence[SupersededLine], phase: Phase
    ) -> list[BookedLine]:
        """Book lines of one account and phase, with their events. A booking that is cut off loses a few events."""
        done: list[BookedLine] = []
        for some in _portions(lines):
            if phase == "calls":
                done += await self._book_calls(account, some)
                for one in done[-len(some) :]:
                    await self._record(actor, one)
            else:
                book = self._book_refund if phase == "refunds" else self._book_movement
                done += await gather_bounded((self._attempt(actor, one, book(one)) for one in some), AT_ONCE)
        if any(one.is_new for one in done):
            send_hints(self._links, [account])
        return done

    async def _attempt(self, actor: Actor, found: SupersededLine, booking: Awaitable[BookedLine]) -> BookedLine:
        """The result of a booking, with its event; a refusal is a result, too. StoreUnavailable."""
        try:
            done = await booking
        except StoreUnavailable:
            raise
        except GatewayError as error:
            return BookedLine(found, error.message)
        await self._record(actor, done)
        return done

    async def _book_movement(self, found: SupersededLine) -> BookedLine:
        """Book a credit, an opening balance or a debit."""
        line = found.line
        kind = cast(Literal["topup", "adj"], booking_kind(line))
        credited = await self._ledger.credit(
            line.account, line.amount, kind=kind, operation=booking_id(line), note=_note(line)
        )
        match credited.status:
            case "done":
                return BookedLine(found, BOOKED, line.amount, is_new=True)
            case "repeated":
                return BookedLine(found, BOOKED, line.amount)
            case "clash":
                return BookedLine(found, f"its operation was used for {format_amount(credited.amount)} meanwhile")
            case "short":
                return BookedLine(found, f"only {format_amount(credited.amount)} is free")
            case "cap":
                return BookedLine(found, "the balance would be too high")
            case _:
                return BookedLine(found, "no account")

    async def _book_refund(self, found: SupersededLine) -> BookedLine:
        line = found.line
        refunded = await self._refunds.refund(
            line.account, meta_of(line).refunds, line.amount, operation=line.request_id, note=_note(line)
        )
        return BookedLine(found, BOOKED, refunded.amount, is_new=refunded.status == "done")

    async def _book_calls(self, account: str, lines: Sequence[SupersededLine]) -> list[BookedLine]:
        """Charge calls; all lines of a call are one charge."""
        ids = list(dict.fromkeys(one.line.request_id for one in lines))
        of_calls = await self._transactions.read(superseded.lines_of_calls, account, ids)
        entries: dict[str, Entry] = {}
        for request_id, (kept, lost) in of_calls.items():
            whole = lost if any(line.kind in CALLS for line in lost) else [*kept, *lost]
            if whole and not (kept and not await is_marked(self._links, account, request_id)):
                entries[request_id] = entry_of(whole)
        await keep_lost_keys(self._links, account, {entry.key_id for entry in entries.values()} - {""})
        settled = await settle_again(self._links, self._scripts, account, list(entries.values()))
        results = dict(zip(entries, settled, strict=True))
        booked = dict(zip(ids, await self._are_charged(lines, ids), strict=True))
        done, new = [], set[str]()
        for one in lines:
            request_id = one.line.request_id
            result = results.get(request_id)
            if result is None or (not result.reason and not booked[request_id]):
                done.append(BookedLine(one, HAS_A_LINE))
            elif result.reason:
                done.append(BookedLine(one, result.reason))
            else:
                is_new = result.is_new and request_id not in new
                new.add(request_id)
                done.append(BookedLine(one, BOOKED, result.charged if is_new else 0, is_new=is_new))
        return done

    async def _are_charged(self, lines: Sequence[SupersededLine], ids: Sequence[str]) -> list[bool]:
        by_id = {one.line.request_id: one.line for one in lines}
        return await are_booked(self._links, [by_id[request_id] for request_id in ids])

    async def _record(self, actor: Actor, one: BookedLine) -> None:
        if not one.is_new:
            return
        line = one.found.line
        after = {
            "line": line.n,
            "kind": line.kind,
            "id": line.request_id,
            "amount": format_amount(line.amount),
            "booked": format_amount(one.booked),
        }
        await self._outbox.add(
            new_event(actor, "superseded.book", f"line:{line.id}", account=line.account, after=after)
        )


def _close(connection: Connection, actor: Actor, ids: Sequence[int], note: str) -> int:
    """Close lines, with an event of each account; returns their number."""
    lines = superseded.acknowledge(connection, now(), ids)
    for account in sorted({line.account for line in lines}):
        amounts = [line.amount for line in lines if line.account == account]
        after = {"lines": len(amounts), "amount": format_amount(sum(amounts)), "note": note}
        record(connection, actor, "superseded.acknowledge", f"account:{account}", account=account, after=after)
    return len(lines)


def _close_changes(connection: Connection, actor: Actor, note: str) -> None:
    if changes := open_changes(connection)[0]:
        record(connection, actor, ACKNOWLEDGE, PLACE, after={"changes": changes, "note": note})


def _portions(lines: Sequence[SupersededLine]) -> Iterator[list[SupersededLine]]:
    """The lines, about `AT_ONCE` at a time; the lines of one call stay together."""
    by_id: dict[str, list[SupersededLine]] = {}
    for one in lines:
        by_id.setdefault(booking_id(one.line), []).append(one)
    portion: list[SupersededLine] = []
    for some in by_id.values():
        portion += some
        if len(portion) >= AT_ONCE:
            yield portion
            portion = []
    if portion:
        yield portion


def _phase_of(line: LedgerLine) -> Phase:
    if is_of_call(line):
        return "calls"
    if line.kind == "refund":
        return "refunds"
    return "credits" if line.amount > 0 else "debits"


def _note(line: LedgerLine) -> str:
    """The note of the line that books a line again."""
    before = meta_of(line).note
    text = f"superseded line {line.n} ({line.id})" + (f": {before}" if before else "")
    return text[:MAX_NOTE]

"""Holds, charges and balances: admit, book, extend, renew leases, reclaim, credit, audit. Writes all their counters.

::

    hold = await ledger.admit(request_id, key, quote)
    try: ...
    finally: ledger.book(hold, record)    # a CallRecord, or None when nothing is owed
    await ledger.drain()                  # before the process ends

Each operation is one atomic script in the account's slot, and every script may be repeated. Sharp edge: if the store is
unreachable, a settlement is sent later from the journal; without a journal it is logged as lost.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Literal, Unpack

import msgspec
from msgspec import Struct

from gateway import errors
from gateway.amounts import MAX_AMOUNT
from gateway.billing.call_record import CallRecord
from gateway.billing.quote import Quote
from gateway.ledger.admission import LEASE, Admission
from gateway.ledger.api_key import ApiKey
from gateway.ledger.archive import read_archives
from gateway.ledger.archive_checkpoint import read_archive_checkpoint, search_settled
from gateway.ledger.auditing.report import AuditReport
from gateway.ledger.auditing.store import AuditOptions, audit_store, has_traces
from gateway.ledger.compact_meta import compact
from gateway.ledger.dry_run import DryRun, dry_run
from gateway.ledger.entry import Entry
from gateway.ledger.gather_all import batches, gather_bounded
from gateway.ledger.hold import Hold
from gateway.ledger.import_hints import send_hints
from gateway.ledger.inflight_checkpoint import InflightCheckpoint
from gateway.ledger.journal import Journal
from gateway.ledger.limits import GroupLimits, GroupTable, RateState
from gateway.ledger.line import UNREADABLE, LedgerLine, ReadLine, read_line, read_lines
from gateway.ledger.listing.names import ACCOUNTS, account_names
from gateway.ledger.paging import scan_set
from gateway.ledger.recovery import Recovery
from gateway.ledger.refund import ArchivedCharge, Refunded, find_charge, refund
from gateway.ledger.refused_booking import book_refused
from gateway.ledger.replay import count_replay
from gateway.ledger.script_batcher import Tick
from gateway.ledger.scripts import Scripts
from gateway.ledger.settlement_writer import SettlementWriter, Shortfall
from gateway.schemas.answer_surrogates import encode_whole
from gateway.store.links import Links, slot

RENEWALS = 64  # calls renewed per script
RECLAIMS = 25  # expired holds charged per script: 1 ms of Redis's time
SWEEP = 200  # accounts checked at once for expired holds

LeaseState = Literal["ok", "revoked", "gone"]
_LEASE_STATES: tuple[LeaseState, ...] = ("ok", "revoked", "gone")
CreditStatus = Literal["done", "repeated", "clash", "cap", "short", "unknown"]  # repeated: it was done before
_CREDIT_STATUSES: dict[int, CreditStatus] = {0: "done", 1: "repeated", 2: "clash", 3: "cap", 4: "short"}


class Credited(Struct, frozen=True):
    """The result of a manual change: its status, the booked amount and the new balance, in nano-units.

    `short`: nothing was booked, because at most `amount` can be debited.
    """

    status: CreditStatus
    amount: int
    balance: int


class Ledger:
    """Every account's money and limits, in Redis."""

    def __init__(
        self,
        links: Links,
        groups: Mapping[str, GroupLimits],
        *,
        journal: Journal | None = None,
        on_shortfall: Shortfall = lambda model, uncollected, late: None,
        on_lines: Callable[[str], object] = lambda account: None,
        compact_lines: bool = False,
    ) -> None:
        self._links, self._on_lines = links, on_lines
        self._swept: str | bytes = "0"  # the SSCAN cursor of `sweep`
        self._scripts = Scripts.load()
        tick = Tick()
        self._writer = SettlementWriter(
            links,
            self._scripts.settle,
            tick=tick,
            search=partial(search_settled, links),
            journal=journal,
            on_shortfall=on_shortfall,
            on_lines=on_lines,
            line_form=compact if compact_lines else None,
        )
        #: Sends the journal's entries again; None without a journal. Pass its `reconnected` to `Store.on_reconnect`.
        self.recovery = Recovery(journal, self._writer, lapse=self.lapse) if journal is not None else None
        #: Stores running calls for the process that takes over the journal; stores nothing without a journal.
        self.checkpoint = journal.checkpoint if journal is not None else InflightCheckpoint(None)
        void = partial(self._writer.book, record=None)
        self._admission = Admission(
            links, self._scripts.admit, tick=tick, groups=GroupTable(groups), orphaned=void, checkpoint=self.checkpoint
        )
        self.terms = self._admission.terms  # the group and the prices of accounts, at which quotes are made

    def use_groups(self, groups: Mapping[str, GroupLimits]) -> None:
        """Use these limits, by group, from the next admission on."""
        self.terms.groups = GroupTable(groups)

    # A call ----------------------------------------------------------------------------------------------------------

    def admit(self, request_id: str, key: ApiKey, quote: Quote) -> asyncio.Future[Hold]:
        """Hold money and count the call against the limits. A refusal raises 400, 401, 403 or 429 and changes nothing.

        If the future is cancelled, the hold is released. Sharp edge: a task that is cancelled after the future has its
        hold, but before the task runs again, must book the hold itself.
        """
        return self._admission.admit(request_id, key, quote)

    async def explain(self, request_id: str, key: ApiKey, quote: Quote) -> DryRun:
        """What `admit` would decide at this moment, and every rule that refuses; writes nothing."""
        return await dry_run(self._links, self._scripts, request_id, key, quote, groups=self.terms.groups)

    async def count_replay(self, request_id: str, key: ApiKey, quote: Quote) -> RateState | None:
        """Count the replay of a stored answer as a request; nothing is held. A refusal raises 401, 403 or 429."""
        return await count_replay(self._links, self._scripts, request_id, key, quote, groups=self.terms.groups)

    def book(self, hold: Hold, record: CallRecord | None, *, free: bool = False) -> None:
        """Charge the record's cost and release the rest of the hold. A `free` call costs nothing.

        At most the hold and what no call holds is charged; the rest is `uncollected` on the line. A repetition
        changes nothing. The entry is queued when this returns; a failure is logged.
        """
        self._writer.book(hold, record, free=free)

    async def book_refused(
        self, account: str, entries: Sequence[Entry], *, archives: Sequence[Path] = (), searched: Collection[str] = ()
    ) -> list[str]:
        """Book entries of an account that the store refused before; for each "", or why it is refused again.

        A request that is settled is not charged again. If lines of its time have left the store, all archives with them
        are needed to know that, or the caller has `searched` the database for it. StoreUnavailable if the store is;
        some may be booked then, and all may be sent again.
        """
        lines = self.lines(account, archives=archives) if archives else None
        return await book_refused(self._writer, entries, lines, searched=searched)

    async def drain(self) -> None:
        """Wait until every entry booked so far is in the store, in the journal, or logged as lost."""
        await self._writer.drain()

    async def extend(self, hold: Hold, amount: int) -> None:
        """Hold `amount` more nano-units, or raise QuotaExhausted, CostLimitExceeded or InvalidApiKey.

        Conflict means that the hold no longer exists or was changed.
        """
        key, target = slot(hold.key.account), hold.amount + amount
        code = await self._links.link(key).eval(
            self._scripts.extend,
            [key],
            [hold.request_id, str(hold.amount), str(target), str(amount)],
            repeatable=True,
        )
        if code:
            raise (
                errors.Conflict("The hold is gone", retry_after=None),
                errors.BalanceExhausted(),
                errors.BudgetExceeded(),
                errors.InvalidApiKey(),
                errors.Conflict("The hold was changed", retry_after=None),
                errors.SpendLimitExceeded(),
                errors.CostLimitExceeded(),
                errors.MemberBudgetExceeded(),
                errors.SessionBudgetExceeded(),
            )[code - 1]
        hold.amount = target

    async def renew_leases(self, holds: Iterable[Hold]) -> dict[str, LeaseState]:
        """Renew the leases of running calls and store the cost of each so far; return their states by request id.

        Calls of accounts whose server is unreachable are missing from the result.
        """
        by_account: dict[str, list[Hold]] = {}
        for hold in holds:
            by_account.setdefault(hold.key.account, []).append(hold)
        parts = (
            self._renew_leases(account, some)
            for account, running in by_account.items()
            for some in batches(running, RENEWALS)
        )
        answers: dict[str, LeaseState] = {}
        for part in await gather_bounded(parts):  # one write for many accounts
            answers.update(part)
        return answers

    async def _renew_leases(self, account: str, holds: list[Hold]) -> dict[str, LeaseState]:
        key = slot(account)
        args: list[str | int] = [LEASE]
        for hold in holds:
            args += (hold.request_id, min(max(hold.used, 0), MAX_AMOUNT))
        try:
            codes = await self._links.link(key).eval(self._scripts.beat, [key], args, repeatable=True)
        except errors.StoreUnavailable:
            return {}
        return {hold.request_id: _LEASE_STATES[code] for hold, code in zip(holds, codes, strict=True)}

    def end_lease(self, hold: Hold) -> None:
        """The call does not count as concurrent any more. Not repeated: the settlement ends the lease too."""
        name = slot(hold.key.account)
        link = self._links.link(name)
        for leases in (f"{name}:cc:{hold.key.id}", f"{name}:cc"):
            link.call("ZREM", leases, hold.request_id).add_done_callback(_forget)

    # Around the calls ------------------------------------------------------------------------------------------------

    async def reclaim(self, account: str | None = None) -> int:
        """Charge expired holds, of one account or of all, at their last checkpoint; return their number.

        If a server is unreachable, the accounts of the others are charged first; then StoreUnavailable is raised.
        """
        names = [account] if account else await self.accounts()
        total, away = 0, None
        for some in batches(names, SWEEP):
            try:
                total += await self._reclaim_each(some)
            except errors.StoreUnavailable as error:
                away = (error.detail, error.fate)  # not the error itself: its traceback would refer to this frame
        if away is not None:
            raise errors.StoreUnavailable(detail=away[0], fate=away[1])
        return total

    async def sweep(self) -> int:
        """`reclaim` for about the next `SWEEP` accounts; the cost of a step does not grow with the number of accounts.

        An admission that lacks money reclaims the account's expired holds itself and does not wait for the sweep.
        """
        self._swept, names = await self._links.link(ACCOUNTS).call("SSCAN", ACCOUNTS, self._swept, "COUNT", SWEEP)
        return await self._reclaim_each([name.decode() for name in names])

    async def _reclaim_each(self, accounts: Sequence[str]) -> int:
        """Reclaim every account whose server is reachable; then raise StoreUnavailable if there were others."""
        return sum(await gather_bounded(map(self._reclaim, accounts)))

    async def _reclaim(self, account: str) -> int:
        key = slot(account)
        total, due = 0, RECLAIMS
        while due == RECLAIMS:
            due = await self._links.link(key).eval(self._scripts.reclaim, [key], [RECLAIMS])
            total += due
        if total:
            self._on_lines(account)
        return total

    async def lapse(self, account: str, request_ids: Sequence[str]) -> int:
        """End the leases of calls of a dead worker and `reclaim` the account; return the number of charged calls."""
        key = slot(account)
        for start in range(0, len(request_ids), RENEWALS):
            args: list[str | int] = [-1]
            for request_id in request_ids[start : start + RENEWALS]:
                args += (request_id, 0)
            await self._links.link(key).eval(self._scripts.beat, [key], args)
        return await self.reclaim(account)

    async def credit(
        self,
        account: str,
        amount: int,
        *,
        kind: Literal["topup", "adj", "refund"] = "topup",
        operation: str | None = None,
        note: str = "",
        force: bool = False,
    ) -> Credited:
        """Change a balance manually, once per operation id; without an id it is a new operation.

        `force` debits money that calls hold, or that lies below the floor.
        """
        key = slot(account)
        request_id = operation or "op_" + secrets.token_hex(16)
        meta = encode_whole({"note": note} if note else {})
        code, booked, balance = await self._links.link(key).eval(
            self._scripts.credit, [key], [request_id, kind, str(amount), meta, str(MAX_AMOUNT), int(force)]
        )
        if code == 0:
            send_hints(self._links, [account])
        return Credited(_CREDIT_STATUSES.get(code, "unknown"), int(booked), int(balance))

    async def refund(
        self,
        account: str,
        request_id: str,
        amount: int | None = None,
        *,
        operation: str | None = None,
        note: str = "",
        archived: ArchivedCharge | None = None,
    ) -> Refunded:
        """Give back `amount` of a call's charge, None for all that is left of it, once per operation id.

        `archived`: the call's lines that have left the store.
        """
        lines = await find_charge(self._links, account, request_id)
        given = await refund(
            self._links,
            self._scripts,
            account,
            request_id,
            lines=lines,
            archived=archived,
            amount=amount,
            operation=operation,
            note=note,
        )
        if given.status == "done":
            send_hints(self._links, [account])
        return given

    async def open(self, account: str, group: str, *, balance: int = 0) -> bool:
        """Open an account with its first line; False when it exists."""
        key = slot(account)
        # The index is written first: a name without an account is skipped, an account without a name is never found.
        await account_names(self._links).add(account)
        opened: int = await self._links.link(key).eval(self._scripts.open, [key], [group, str(balance), b"{}"])
        if opened == 1:
            send_hints(self._links, [account])
        return opened == 1

    async def accounts(self) -> list[str]:
        """All account names, sorted."""
        return sorted(await scan_set(self._links.link(ACCOUNTS), ACCOUNTS))

    async def audit(self, account: str | None = None, **options: Unpack[AuditOptions]) -> AuditReport:
        """Add up the ledger of one account, or of all, and compare it; with archives also the archived lines.

        `expected`: the least number of accounts of the whole store. The report names accounts and servers that are
        unreachable; the others are audited.
        """
        return await audit_store(self._links, self._scripts, account, **options)

    async def has_traces(self, account: str) -> bool:
        """Whether anything in the store says that the account exists or existed."""
        return await has_traces(self._links, account)

    async def lines(
        self, account: str, *, since: datetime | None = None, archives: Sequence[Path] = (), read: ReadLine = read_line
    ) -> AsyncIterator[LedgerLine]:
        """The account's ledger lines since `since`, in order. Without archives, one line stands for those that left.

        ValueError for a line that cannot be read; with `read_shown_line` it has the number after the line before.
        """
        start = int(since.timestamp() * 1000) if since else 0
        checkpoint = await read_archive_checkpoint(self._links, account)
        if archives:
            for line in read_archives(archives, account):
                if line.n <= checkpoint.n and line.milliseconds >= start:
                    yield line
        elif checkpoint.n and checkpoint.milliseconds >= start:
            yield checkpoint.line(account)
        before = checkpoint.n
        async for kept in read_lines(self._links, account, since=str(start), read=read):
            if kept.kind == UNREADABLE:
                kept = msgspec.structs.replace(kept, n=before + 1)
            if kept.n > checkpoint.n:
                yield kept
            before = kept.n

    async def charge_of(self, account: str, request_id: str) -> tuple[LedgerLine, int] | None:
        """The last line of a request settled within a day, and the charge of all its lines, in nano-units."""
        key = slot(account)
        marker = await self._links.link(key).call("GET", f"{key}:st:{request_id}")
        _, amount, id_ = marker.decode().split(" ") if marker else ("", "", "-")
        if id_ == "-":
            return None
        async for line in read_lines(self._links, account, since=id_, until=id_):
            return line, -int(amount)
        return None

    async def refunded_of(self, account: str, request_id: str) -> int:
        """What was given back of a call's charge, in nano-units."""
        key = slot(account)
        return int(await self._links.link(key).call("HGET", f"{key}:rf", request_id) or 0)


def _forget(future: asyncio.Future[object]) -> None:
    """Drop the error of a command that is not repeated."""
    if not future.cancelled():
        future.exception()

"""Turns holds into charges, each exactly once, through the journal if there is one.

Every settlement is a repeatable entry: the script answers a repetition with the stored result. So if the store is
unreachable, the entry stays in the journal and is sent again, by this process or by another one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from itertools import chain
from typing import Any

from msgspec import Struct

from gateway.amounts import MAX_AMOUNT
from gateway.billing.call_record import CallRecord
from gateway.errors import GatewayError, InternalError, StoreUnavailable
from gateway.ledger.entry import Entry
from gateway.ledger.gather_all import batches, gather_all, gather_bounded
from gateway.ledger.hold import Hold
from gateway.ledger.journal import ELSEWHERE, NOWHERE, Journal
from gateway.ledger.line_meta import held_in, model_of, released_meta, settled_meta
from gateway.ledger.script_batcher import LENGTH, Argument, Batch, Batches, Tick, bulk, command_start, own_error
from gateway.store.command import Script
from gateway.store.links import Links, slot
from gateway.store.verification import verify

log = logging.getLogger("gateway.ledger")

OLD, NOACCT = 4, 20  # codes of settle.lua that do not settle an entry
DUP = 1  # code of settle.lua: settled before
MOST_TOKENS = 1_000_000_000  # of one entry
FORCED, NOT_FORCED = bulk(1), bulk(0)
WIDTH = 3  # numbers per entry in a reply
LATE = 2  # code of settle.lua: the hold was lost
SEARCHES = 32  # accounts whose lines are read at once
OLD_AT_ONCE = 512  # entries of `send_old` in flight at once: other calls of this worker wait behind them
YIELD_EVERY = 256  # entries found or sent: some 2 ms
LEFT = "lines of that time left the store; an archive or the database is needed"


#: Called with the model, the uncollected nano-units, and whether the hold was lost.
Shortfall = Callable[[str, int, bool], None]


class Waiting(Struct):
    """An entry that is being sent; `segment` is its place in the journal. An entry that is sent again has a future.

    The result of the future is why the store refused the entry, or "".
    """

    entry: Entry
    future: asyncio.Future[str] | None = None
    segment: int = NOWHERE
    settled: bool = False  # the store has confirmed it before
    old: list[Waiting] | None = None  # receives it if the ledger must be searched; None: it is searched for at once
    ended: bool = False  # whether `drain` no longer waits for it


class SettlementWriter:
    """Sends entries. `search` finds the lines of requests without a marker; see `search_settled`.

    `on_lines` is called with an account that has new lines. `line_form` makes the meta of a line in the store of the
    meta of an entry.
    """

    def __init__(
        self,
        links: Links,
        script: Script,
        *,
        tick: Tick,
        search: Callable[[str, Mapping[str, int]], Awaitable[dict[str, bool | None]]],
        journal: Journal | None = None,
        on_shortfall: Shortfall = lambda model, uncollected, late: None,
        on_lines: Callable[[str], object] = lambda account: None,
        line_form: Callable[[str], str] | None = None,
    ) -> None:
        self.journal = journal
        self._links = links
        #: Called when the store is unreachable, so that the journal is sent later.
        self.on_journaled: Callable[[], None] = lambda: None
        self._on_shortfall = on_shortfall
        self._on_lines = on_lines
        self._line_form = line_form
        self._search = search
        self._tasks: set[asyncio.Task[None]] = set()
        self._booked = 0  # entries being sent without a future: a future with its callback costs 0.7 µs
        self._all_ended = asyncio.Event()
        self._batches: Batches[Waiting] = Batches(
            links,
            script,
            tick=tick,
            arguments=self._arguments,
            command=self._command,
            on_answer=self._answered,
            on_failure=self._failed,
            before=self._write_journal if journal is not None else None,
        )
        self._start = command_start(script)

    def book(self, hold: Hold, record: CallRecord | None, *, free: bool = False) -> None:
        """Charge the cost of the call; `free`: release the hold, the request stays counted in the limits.

        Without a record the call was abandoned and is free. An impossible cost is replaced by the hold's amount and
        marked as clamped. A failure is logged.
        """
        entry = _release(hold, record) if free or record is None else charge_entry(hold, record)
        self._booked += 1
        self._batches.put(entry.account, Waiting(entry))

    async def drain(self) -> None:
        """Wait until every booked entry is stored, journaled or logged as lost."""
        while self._booked:
            self._all_ended.clear()
            await self._all_ended.wait()

    def send(self, entry: Entry, *, settled: bool = False, old: list[Waiting] | None = None) -> asyncio.Future[str]:
        """Send an entry of a journal. The future ends when the store took or refused it, or with StoreUnavailable.

        Its result is the reason of a refusal, or "". `settled`: the store has confirmed the entry before, so it is not
        refused if it is so old that its line may have been archived. `old` receives the entry if the ledger must be
        searched for it; then `send_old` must follow. Without `old` the ledger is searched for this entry alone.
        """
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._batches.put(entry.account, Waiting(entry, future, ELSEWHERE, settled, old=old))
        return future

    async def send_old(self, old: Sequence[Waiting]) -> list[str]:
        """Charge the entries that `send` put into `old`, except those with a line; StoreUnavailable.

        Returns for each why the store refused it, or "". The lines of each account are read once, so the time grows
        with lines and entries, not with their product. Entries that are not sent because the store is away have no
        effect: they are in their journal, or in their file, until this returns.
        """
        by_account: dict[str, list[Waiting]] = {}
        for item in old:
            item.future, item.old = asyncio.get_running_loop().create_future(), None
            by_account.setdefault(item.entry.account, []).append(item)
        futures = [item.future for item in old if item.future is not None]
        try:
            for names in batches(by_account, SEARCHES):
                found = await gather_bounded(self._without_line(name, by_account[name]) for name in names)
                await self._send_all(list(chain.from_iterable(found)))
            return await gather_all(futures)
        finally:
            for future in futures:
                _forget(future)

    async def _send_all(self, items: Sequence[Waiting]) -> None:
        for some in batches(items, OLD_AT_ONCE):
            for item in some:
                self._batches.put(item.entry.account, item)
            await gather_all(item.future for item in some if item.future is not None)

    def _write_journal(self, waiting: dict[str, list[Waiting]]) -> None:
        assert self.journal is not None
        new, entries = [], []
        for items in waiting.values():
            for item in items:
                if item.segment == NOWHERE:
                    new.append(item)
                    entries.append(item.entry)
        if new:
            segment = self.journal.append(entries)
            for item in new:
                item.segment = segment

    def _command(self, batch: Batch[Waiting], key: str) -> bytes:
        """The EVALSHA with `_arguments`, formatted directly: a third of the time of packing a list."""
        text = f"*{4 + 9 * len(batch.items)}{self._start}{LENGTH[len(key)]}{key}"
        form = self._line_form
        for item in batch.items:
            e = item.entry
            request_id, key_id, kind, meta = e.request_id, e.key_id, e.kind, e.meta if form is None else form(e.meta)
            amount, tokens, at, hold = (
                str(e.amount),
                str(e.tokens),
                str(e.at),
                str(e.hold if e.hold >= 0 else held_in(e.meta)),
            )
            text += (
                f"{LENGTH[len(request_id)]}{request_id}{LENGTH[len(key_id)]}{key_id}{LENGTH[len(kind)]}{kind}"
                f"{LENGTH[len(amount)]}{amount}{LENGTH[len(tokens)]}{tokens}{LENGTH[len(at)]}{at}"
                f"{FORCED if e.force else NOT_FORCED}{LENGTH[len(meta)]}{meta}{LENGTH[len(hold)]}{hold}"
            )
        return f"{text}\r\n".encode() if text.isascii() else b""  # LENGTH counts characters

    def _arguments(self, batch: Batch[Waiting]) -> list[Argument]:
        args: list[Argument] = []
        for item in batch.items:
            e = item.entry
            args += (
                e.request_id,
                e.key_id,
                e.kind,
                e.amount,
                e.tokens,
                e.at,
                e.force,
                e.meta if self._line_form is None else self._line_form(e.meta),
                e.hold if e.hold >= 0 else held_in(e.meta),
            )
        return args

    def _answered(self, batch: Batch[Waiting], reply: list[Any]) -> None:
        if reply[0] == NOACCT:
            self._start_task(self._without_account(batch))
            return
        self._on_lines(batch.account)
        at = 0
        for item in batch.items:
            code, charged = reply[at], reply[at + 1]
            at += WIDTH
            if code == OLD:
                self._set_old_aside(item)
            else:
                if code == LATE or (code != DUP and charged != item.entry.amount):
                    self._report(item.entry, charged, late=code == LATE)
                self._confirm(item)
                self._end(item)

    def _set_old_aside(self, item: Waiting) -> None:
        """Leave an entry whose marker may have expired to `send_old`, or search for it now."""
        if item.old is None:
            self._start_task(self._book_old(item))
        else:
            item.old.append(item)
            self._resolve(item)

    def _report(self, entry: Entry, charged: int, *, late: bool) -> None:
        """Report a charge that is not the cost, or whose hold was lost; `charged` is negative."""
        uncollected = max(0, charged - entry.amount)
        model = model_of(entry.meta)
        if late:
            log.warning("%s: the hold was lost; %d of %d nano are charged", entry.request_id, -charged, -entry.amount)
        elif uncollected:
            log.warning("%s: %d of %d nano cannot be collected", entry.request_id, uncollected, -entry.amount)
        self._on_shortfall(model, uncollected, late)

    def _failed(self, batch: Batch[Waiting], error: GatewayError) -> None:
        is_repeatable = self.journal is not None or all(item.future is not None for item in batch.items)
        if len(batch.items) > 1 and is_repeatable and not isinstance(error, StoreUnavailable):
            for item in batch.items:  # one of them failed; those before it are booked and must not be set aside
                if not item.ended:
                    self._batches.send(Batch(batch.account, [item], self._batches))
        else:
            self._refused(batch, error)

    def _refused(self, batch: Batch[Waiting], error: GatewayError) -> None:
        """End the entries of a batch that failed: they wait in the journal, or a repetition would fail again."""
        away = isinstance(error, StoreUnavailable)
        reason = error.detail or error.message
        for item in batch.items:
            if item.ended:  # before a later part of the reply could not be used
                continue
            if self.journal is not None and item.segment != NOWHERE and not away:
                self.journal.refuse(item.entry, reason)
                self._confirm(item)
            if item.segment == NOWHERE:
                amount, text = -item.entry.amount, error.log_text() or error.message
                log.error("%s: settlement of %d nano failed: %s", item.entry.request_id, amount, text)
            if item.future is not None and away:
                if not item.future.done():
                    item.future.set_exception(own_error(error))
            else:
                self._end(item, "" if away else reason)
        if away and self.journal is not None:
            self.on_journaled()

    def _end(self, item: Waiting, reason: str = "") -> None:
        if item.future is not None:
            self._resolve(item, reason)
        elif not item.ended:
            item.ended = True
            self._booked -= 1
            if not self._booked:
                self._all_ended.set()

    @staticmethod
    def _resolve(item: Waiting, reason: str = "") -> None:
        if item.future is not None and not item.future.done():
            item.future.set_result(reason)

    def _confirm(self, item: Waiting) -> None:
        if self.journal is None:
            return
        if item.segment >= 0:
            self.journal.confirm(item.segment)
        elif item.segment == NOWHERE:  # the journal failed: until now the call is only in the checkpoint file
            self.journal.checkpoint.clear(item.entry.request_id)

    def _start_task(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _without_account(self, batch: Batch[Waiting]) -> None:
        """Set the entries aside, unless the store lost its data: then they stay in the journal."""
        error: GatewayError = InternalError(detail=f"there is no account {batch.account}")
        try:
            await verify(self._links.link(slot(batch.account)))
        except StoreUnavailable as away:
            error = own_error(away)
        self._refused(batch, error)

    async def _book_old(self, item: Waiting) -> None:
        """Search the ledger for an entry whose marker may have expired; charge it if it has no line."""
        for found in await self._without_line(item.entry.account, [item]):
            self._batches.put(found.entry.account, found)

    async def _without_line(self, account: str, items: Sequence[Waiting]) -> list[Waiting]:
        """The entries of an account that have no line in the ledger, to be charged; the others end here."""
        admitted: dict[str, int] = {}
        for item in items:  # two journals may have the same entry
            request_id, at = item.entry.request_id, item.entry.at
            admitted[request_id] = min(at, admitted.get(request_id, at))
        try:
            found = await self._search(account, admitted)
        except GatewayError as error:
            self._refused(Batch(account, items, self._batches), error)
            return []
        without: list[Waiting] = []
        for number, item in enumerate(items, start=1):
            if number % YIELD_EVERY == 0:
                await asyncio.sleep(0)  # other calls of this worker go on
            is_settled = found[item.entry.request_id]
            if is_settled is None and not item.settled:
                self._refused(Batch(account, [item], self._batches), InternalError(detail=LEFT))
            elif is_settled is False:
                item.entry.force = 1
                without.append(item)
            else:  # its line is in the store, or has left it since the store confirmed it
                self._confirm(item)
                self._end(item)
        return without


def _forget(future: asyncio.Future[str]) -> None:
    """Drop the error of an entry if another one has ended `send_old`."""
    if future.done() and not future.cancelled():
        future.exception()


def charge_entry(hold: Hold, record: CallRecord) -> Entry:
    """The entry that charges the cost of a call; an impossible cost is replaced by the hold."""
    amount = record.cost
    clamped = not 0 <= amount <= MAX_AMOUNT
    if clamped:
        amount = hold.amount
    tokens = record.tokens_in + record.tokens_out
    if not 0 <= tokens <= MOST_TOKENS:
        tokens = min(max(tokens, 0), MOST_TOKENS)
    return Entry(
        hold.key.account,
        hold.request_id,
        hold.key.id,
        "use",
        -amount,
        tokens,
        hold.admitted_at,
        settled_meta(hold, record, clamped=clamped),
        hold=hold.amount,
    )


def _release(hold: Hold, record: CallRecord | None) -> Entry:
    meta = released_meta(hold) if record is None else settled_meta(hold, record, clamped=False)
    return Entry(hold.key.account, hold.request_id, hold.key.id, "void", 0, 0, hold.admitted_at, meta, hold=hold.amount)

"""Proves the history of an account: the lines in the database by themselves, and against the store.

Rules, each with the name `history …`:

- `history sequence`, `history running N`, `history hash N`: the lines in the database follow each other.
- `history sums`: their sum and the opening sum are the balance in the import state.
- `history usage_hourly`, `history usage_daily`, `history usage_monthly`: the sums of usage have the cost of the lines.
- `history opening`: at the last line that left the store, the database has the store's opening sum and hash chain.
- `history lines`: the lines that both have are the same.
- `history missing`: lines that left the store are in the database.
- `history cost ID`, `history price_table VERSION`, `history line N`: the rules of `ledger.auditing.costs`, and that
  a line can be read, for lines that left the store. The audit of the store computes the others.

It also counts the superseded lines that are neither booked again nor acknowledged, and what else an older store lacks.

It may run while the importer works: an account that changes meanwhile is read again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from itertools import groupby
from operator import attrgetter
from typing import TypeVar

import sqlalchemy as sa
from msgspec import Struct
from sqlalchemy.engine import Connection

from gateway.database.engine import Database
from gateway.database.tables import import_state, ledger_lines, usage_daily, usage_hourly, usage_monthly
from gateway.errors import StoreUnavailable
from gateway.history import binding
from gateway.history.import_state import ImportState, chain, read_states
from gateway.history.line_row import LINE_COLUMNS, facts_of, line_of
from gateway.history.lost_changes import audit_lost_changes
from gateway.history.rollups import costs_usage
from gateway.history.sql_thread import SqlThread
from gateway.history.superseded import audit_superseded
from gateway.ledger.archive_checkpoint import ArchiveCheckpoint, read_archive_checkpoint
from gateway.ledger.auditing.costs import CostCheck, PriceBook, call_meta
from gateway.ledger.auditing.pages import Page, PageAuditors, in_pages
from gateway.ledger.auditing.report import AuditReport, Mismatch
from gateway.ledger.gather_all import Progress, gather_bounded, unwatched
from gateway.ledger.line import LedgerLine, read_lines
from gateway.store.links import Links

T = TypeVar("T")

TRIES = 3  # an import, a trim or a fork may come between the reads
PAGE = 2000  # lines read at once
SUMMED = (usage_hourly, usage_daily, usage_monthly)
NO_PRICES = "price tables"
FAULTS = 3  # faults of an account that are named; a broken chain would name every line

_Row = sa.Row[tuple[object, ...]]
_COLUMNS = [ledger_lines.c[name] for name in LINE_COLUMNS]


class PricesUnreachable(Exception):
    """The server of the price tables is away, so that nothing can be computed again."""


class _Proof(Struct):
    """What the database has of an account."""

    state: ImportState
    has_state: bool
    faults: list[tuple[str, object, object]] = []
    lines: int = 0
    at: dict[int, tuple[int, str]] = {}  # balance and hash at the numbers that were asked for
    recomputed: int = 0  # calls whose lines left the store
    not_recomputed: int = 0
    unread: set[str] = set()  # versions of prices that were not looked for: some costs are not computed


async def audit_history(
    links: Links,
    database: Database,
    sql: SqlThread,
    account: str | None = None,
    *,
    progress: Progress = unwatched,
    processes: PageAuditors | None = None,
) -> AuditReport:
    """The report on one account, or on all that the database has; `processes` audits many.

    DatabaseUnavailable if the database is; DatabaseRefused if it is not the store's.
    """
    if not await binding.belong(links, database, sql):
        return AuditReport()
    names = [account] if account is not None else await sql.run(_accounts, database)
    report = await in_pages(
        dict.fromkeys(names, ()),
        "history",
        HistoryPages(links, database, sql).audit,
        processes=processes,
        progress=progress,
    )
    report.unreachable = list(dict.fromkeys(report.unreachable))
    report.add(await audit_superseded(links, database, sql, account))
    if account is None:
        report.add(await sql.run(audit_lost_changes, database))
    return report


class HistoryPages:
    """Audits pages of accounts that the database has."""

    def __init__(self, links: Links, database: Database, sql: SqlThread) -> None:
        self._links, self._database, self._sql = links, database, sql
        self._prices = PriceBook(links)
        self._has_prices = True  # until their server is away; then no other page asks it

    async def audit(self, page: Page) -> AuditReport:
        """The report on some accounts."""
        report = AuditReport()
        try:
            proofs = await self._proofs(list(page))
        except PricesUnreachable:
            self._has_prices = False
            report.unreachable.append(NO_PRICES)
            return report
        report.unreachable += [name for name in page if name not in proofs]
        for name, proof in proofs.items():
            report.history_lines += proof.lines
            report.recomputed += proof.recomputed
            report.not_recomputed += proof.not_recomputed
            report.mismatches += [
                Mismatch(name, f"history {rule}", str(expected), str(found))
                for rule, expected, found in proof.faults[:FAULTS]
            ]
        return report

    async def _proofs(self, accounts: Sequence[str]) -> dict[str, _Proof]:
        if not self._has_prices:
            raise PricesUnreachable
        return await _audit(self._links, self._database, self._sql, accounts, self._prices)


async def _audit(
    links: Links, database: Database, sql: SqlThread, accounts: Sequence[str], prices: PriceBook
) -> dict[str, _Proof]:
    """The proofs by account, in the given order; without the accounts whose server is away."""
    proofs: dict[str, _Proof] = {}
    waiting = list(accounts)
    for _ in range(TRIES):
        read = await gather_bounded(_reached(read_archive_checkpoint(links, account)) for account in waiting)
        checkpoints = {account: one for account, one in zip(waiting, read, strict=True) if one is not None}
        found = await _proved(database, sql, {account: one.n for account, one in checkpoints.items()}, prices)
        compared = await gather_bounded(
            _reached(_compare(links, found[account], one)) for account, one in checkpoints.items()
        )
        proofs |= {proof.state.account: proof for proof in compared if proof is not None}
        waiting = [account for account, proof in proofs.items() if account in waiting and proof.faults]
        if not waiting:
            break
    return {account: proofs[account] for account in accounts if account in proofs}


async def _proved(
    database: Database, sql: SqlThread, wanted: Mapping[str, int], prices: PriceBook
) -> dict[str, _Proof]:
    """What the database has of the accounts. Accounts whose lines name prices that are not read yet are read again."""
    found = await sql.run(_prove, database, wanted, prices)
    for _ in range(TRIES):  # a fork may replace lines between two reads
        again = {account: wanted[account] for account, proof in found.items() if proof.unread}
        if not again:
            break
        try:
            await prices.read(version for account in again for version in found[account].unread)
        except StoreUnavailable:
            raise PricesUnreachable from None
        found |= await sql.run(_prove, database, again, prices)
    return found


async def _reached(answer: Awaitable[T]) -> T | None:
    """The answer; None if the server is away."""
    try:
        return await answer
    except StoreUnavailable:
        return None


async def _compare(links: Links, proof: _Proof, checkpoint: ArchiveCheckpoint) -> _Proof:
    """Compare with the store what the database has by itself."""
    if proof.has_state:
        _compare_opening(proof, checkpoint)
        await _compare_lines(links, proof, checkpoint)
    elif checkpoint.n:
        proof.faults.append(("missing", f"line {checkpoint.n}", "none"))
    return proof


def _accounts(database: Database) -> list[str]:
    with database.reading() as connection:
        return list(connection.scalars(sa.select(import_state.c.account).order_by(import_state.c.account)))


def _prove(database: Database, wanted: Mapping[str, int], prices: PriceBook) -> dict[str, _Proof]:
    """Read all lines of the accounts in one transaction, and check them by themselves.

    `wanted` has by account the number of the last line that left the store: at it the balance and the hash are asked
    for, and up to it calls are computed again.
    """
    with database.reading() as connection:
        states = read_states(connection, wanted)
        costs = [(table.name, _costs(connection, table, wanted)) for table in SUMMED]
        proofs = {}
        for account in wanted:
            state = states.get(account)
            proofs[account] = _Proof(state or ImportState(account), has_state=state is not None)
        for account, rows in _rows(connection, states):
            summed = {name: cost.get(account, 0) for name, cost in costs}
            _prove_account(rows, proofs[account], wanted[account], summed, CostCheck(prices))
    return proofs


def _costs(connection: Connection, table: sa.Table, accounts: Collection[str]) -> dict[str, int]:
    """The cost in a rollup, by account."""
    columns = table.c
    query = sa.select(columns.account, sa.func.sum(columns.cost)).where(columns.account.in_(list(accounts)))
    return {account: int(cost) for account, cost in connection.execute(query.group_by(columns.account))}


def _rows(connection: Connection, states: Mapping[str, ImportState]) -> Iterator[tuple[str, Iterable[_Row]]]:
    """Each account with its lines since the opening; read them before the next account.

    Accounts of few lines are in one query: a query for each took three quarters of the time of an audit of many.
    """
    small = {account: state for account, state in states.items() if state.last_seq - state.opening_seq <= PAGE}
    for account in states.keys() - small.keys():
        yield account, _pages(connection, account, states[account].opening_seq)
    columns = ledger_lines.c
    query = sa.select(*_COLUMNS).where(columns.account.in_(list(small))).order_by(columns.account, columns.seq)
    streamed = connection.execute(query, execution_options={"stream_results": True, "yield_per": PAGE})
    seen = set()
    for account, rows in groupby(streamed, key=attrgetter("account")):
        seen.add(account)
        opening = small[account].opening_seq
        yield account, (row for row in rows if row.seq > opening)
    for account in small.keys() - seen:
        yield account, ()


def _pages(connection: Connection, account: str, after: int) -> Iterator[_Row]:
    columns = ledger_lines.c
    while True:
        query = sa.select(*_COLUMNS).where(columns.account == account, columns.seq > after)
        rows = connection.execute(query.order_by(columns.seq).limit(PAGE)).all()
        yield from rows
        if len(rows) < PAGE:
            return
        after = rows[-1].seq


def _prove_account(
    rows: Iterable[_Row], proof: _Proof, number: int, costs: Mapping[str, int], check: CostCheck
) -> None:
    state = proof.state
    n, balance, hash_ = state.opening_seq, state.opening_balance, state.opening_hash
    proof.at = {n: (balance, hash_.hex())} if n == number else {}
    cost = total = 0
    for row in rows:
        line = line_of(row)
        hash_ = _check(proof, line, n, balance, hash_)
        _compute(proof, line, number, check)
        n, balance, total = line.n, line.balance, total + line.amount
        cost -= line.amount if costs_usage(line, facts_of(line.meta_text)) else 0
        if n == number:
            proof.at[n] = (balance, line.hash)
        proof.lines += 1
    found = (n, balance, total, hash_.hex())
    expected = (state.last_seq, state.balance, state.total, state.last_hash.hex())
    if expected != found:
        proof.faults.append(("sums", expected, found))
    proof.faults += [(name, cost, summed) for name, summed in costs.items() if summed != cost]
    check.finish()
    proof.recomputed, proof.not_recomputed, proof.unread = check.recomputed, check.not_recomputed, check.unread
    proof.faults += check.findings


def _check(proof: _Proof, line: LedgerLine, n: int, balance: int, hash_: bytes) -> bytes:
    """Check that a line follows; returns its hash as it is stored."""
    for rule, expected, found in (
        ("sequence", n + 1, line.n),
        (f"running {line.n}", balance + line.amount, line.balance),
        (f"hash {line.n}", chain(hash_, line).hex(), line.hash),
    ):
        if expected != found:
            proof.faults.append((rule, expected, found))
    return bytes.fromhex(line.hash)


def _compute(proof: _Proof, line: LedgerLine, number: int, check: CostCheck) -> None:
    """Compute a line that left the store, or the amendment of a call whose reclaim did."""
    try:
        meta = call_meta(line)
    except ValueError:
        proof.faults.append((f"line {line.n}", "a ledger line", "unreadable"))
        return
    if line.n <= number:
        check.add(line, meta)
    else:
        check.amend(line, meta)


def _compare_opening(proof: _Proof, checkpoint: ArchiveCheckpoint) -> None:
    if checkpoint.n > proof.state.last_seq:
        proof.faults.append(("missing", f"lines up to {checkpoint.n}", f"lines up to {proof.state.last_seq}"))
    elif checkpoint.n >= proof.state.opening_seq:
        expected = (checkpoint.balance, checkpoint.hash)
        if proof.at.get(checkpoint.n) != expected:
            proof.faults.append(("opening", expected, proof.at.get(checkpoint.n)))


async def _compare_lines(links: Links, proof: _Proof, checkpoint: ArchiveCheckpoint) -> None:
    """Compare the hash chain over the store's lines with the one in the database, at the database's last line."""
    state, hash_, n = proof.state, checkpoint.hash, checkpoint.n
    if n >= state.last_seq:
        return
    async with aclosing(read_lines(links, state.account)) as lines:  # else the loop closes it in a task
        async for line in lines:
            hash_, n = line.chained(hash_), line.n
            if n == state.last_seq:
                break
    if (n, hash_) != (state.last_seq, state.last_hash.hex()):
        proof.faults.append(("lines", (state.last_seq, state.last_hash.hex()), (n, hash_)))

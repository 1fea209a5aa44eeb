"""The part of the audit that reads the store's ledger lines: their sums, and through `costs` their costs.

Rules:

- `sequence`: lines count 1, 2, 3 …
- `running N`: the balance of line N is the one before plus its amount.
- `twice ID`: no request or operation is booked a second time.
- `line ID`: the line can be read. Sums that would contain it are not compared.
"""

from __future__ import annotations

from typing import Any

from gateway.ledger.archive_checkpoint import ArchiveCheckpoint
from gateway.ledger.auditing.costs import CallMeta, CostCheck, PriceBook, call_meta
from gateway.ledger.auditing.report import AuditReport, LateLine, Mismatch, Uncollected
from gateway.ledger.line import PAGE, LedgerLine, read_line
from gateway.store.links import Links, slot

CALL = frozenset({"use", "reclaim"})  # a call has one line of these kinds


class LinePass:
    """One pass over an account's lines. `checkpoint` holds the sums of the archived lines and gets those of the others.

    `surplus`: hashes by number of the lines that are in the archive, too.
    """

    def __init__(
        self, account: str, checkpoint: ArchiveCheckpoint, surplus: dict[int, str], report: AuditReport
    ) -> None:
        self.sums = checkpoint
        self.sums_are_known = True  # no line was unreadable
        self.ends_readable = True  # the last line was readable
        self._archived = checkpoint.balance if checkpoint.n else None
        self._explained = self._old_reclaims = 0  # nano-units that the account may lack by what lines say
        self._has_old_lines = checkpoint.n > 0
        self._account = account
        self._surplus = surplus
        self._report = report
        self._chained = max(surplus, default=0)
        self._booked: set[int] = set()
        self._uncollected = self._uncollected_lines = 0

    async def read(self, links: Links, prices: PriceBook, last: str) -> None:
        """Check the stream's lines up to the id `last`, page by page."""
        key, since = slot(self._account), "-"
        costs = CostCheck(prices, continued=self._archived is not None)
        while last:
            page = await links.link(key).call("XRANGE", f"{key}:lg", since, last, "COUNT", PAGE)
            read = [(id_, self._decode(id_, fields)) for id_, fields in page]
            await prices.read(found[1].price for _, found in read if found is not None)
            for id_, found in read:
                self._report.lines += 1
                if found is None:
                    self._unreadable(id_)
                else:
                    self._add(*found, costs)
            if len(page) < PAGE:
                break
            since = "(" + page[-1][0].decode()
        self._end(costs)

    def explains(self, lacking: int, floor: int) -> bool:
        """Whether late lines, debits by hand, or lines from before charges had bounds explain what an account lacks."""
        explained = self._explained + (self._old_reclaims if self._has_old_lines else 0)
        if self._archived is not None:
            explained += max(0, floor - self._archived)
        return lacking <= explained

    def _decode(self, id_: bytes, fields: list[bytes]) -> tuple[LedgerLine, CallMeta] | None:
        try:
            line = read_line(self._account, id_, fields)
            return line, call_meta(line)
        except (ValueError, KeyError):
            return None

    def _unreadable(self, id_: bytes) -> None:
        self._mismatch(f"line {id_.decode()}", "a ledger line", "unreadable")
        self.sums_are_known = self.ends_readable = False

    def _add(self, line: LedgerLine, meta: CallMeta, costs: CostCheck) -> None:
        if not self.ends_readable:  # go on with what this line says
            self.sums.n, self.sums.balance = line.n - 1, line.balance - line.amount
            self.ends_readable = True
        self._check_sums(line)
        self._check_twice(line, meta)
        self._explain(line, meta)
        if line.late:
            self._report.late.append(LateLine(self._account, line.request_id, line.n, line.amount))
        if line.uncollected:
            self._uncollected += line.uncollected
            self._uncollected_lines += 1
        costs.add(line, meta)

    def _check_sums(self, line: LedgerLine) -> None:
        sums = self.sums
        expected = sums.n + 1, sums.balance + line.amount
        sums.add(line, chain=line.n <= self._chained)
        if line.n != expected[0]:
            self._mismatch("sequence", expected[0], line.n)
        if line.balance != expected[1]:
            self._mismatch(f"running {line.n}", expected[1], line.balance)
            sums.balance = line.balance
        if self._surplus.get(line.n, sums.hash) != sums.hash:
            self._mismatch(f"archive hash {line.n}", sums.hash, self._surplus[line.n])

    def _check_twice(self, line: LedgerLine, meta: CallMeta) -> None:
        kind = "call" if line.kind in CALL else line.kind
        if kind in ("topup", "adj") and not meta.key:
            kind = "operation"
        mark = hash((kind, line.request_id))  # a number takes less memory than the text, for millions of lines
        if mark in self._booked:
            self._mismatch(f"twice {line.request_id}", f"one {line.kind}", f"a second one, line {line.n}")
        self._booked.add(mark)

    def _explain(self, line: LedgerLine, meta: CallMeta) -> None:
        if line.amount >= 0:
            return
        if line.kind == "reclaim":
            self._old_reclaims -= line.amount
        elif line.late or not meta.endpoint:
            self._explained -= line.amount
            self._has_old_lines = self._has_old_lines or line.kind == "use"

    def _end(self, costs: CostCheck) -> None:
        costs.finish()
        self._report.recomputed += costs.recomputed
        self._report.not_recomputed += costs.not_recomputed
        for finding in costs.findings:
            self._mismatch(*finding)
        if self._uncollected_lines:
            self._report.uncollected.append(Uncollected(self._account, self._uncollected_lines, self._uncollected))
        if self._chained > self.sums.n:
            self._mismatch("archive", f"line {self._chained}", f"none after {self.sums.n}")

    def _mismatch(self, rule: str, expected: Any, found: Any) -> None:
        self._report.mismatches.append(Mismatch(self._account, rule, str(expected), str(found)))

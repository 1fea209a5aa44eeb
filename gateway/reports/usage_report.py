"""A usage report as a JSON document; `report_table` makes flat records of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import cached_property, partial, reduce
from typing import Any

import msgspec
from msgspec import Struct, structs

from gateway.admin.times import from_micros, time_text
from gateway.amounts import format_amount
from gateway.database.tables import USAGE
from gateway.history.histogram import Times, durations, first_tokens
from gateway.history.usage_sums import ERRORS, Period, Sums, UsageRow, together
from gateway.ledger.gather_all import batches

ROWS_AT_ONCE = 500  # in a piece of the document: some 120 kB
_PERIOD_FORMATS = {"hour": "%Y-%m-%dT%H:00Z", "day": "%Y-%m-%d", "month": "%Y-%m"}
_TOKENS_IN = [name for name in USAGE if name.startswith("in_")]
_TOKENS_OUT = [name for name in USAGE if name.startswith("out_")]


class Report(Struct, frozen=True, kw_only=True, dict=True):
    """The sums by group, from `since` to before `until`; amounts are nano-units."""

    since: datetime
    until: datetime
    dimensions: tuple[str, ...]
    period: Period | None
    rows: list[UsageRow]
    emails: Mapping[str, str]  # by user id
    margin: bool
    others: Sums | None = None  # of rows that are left out

    @cached_property
    def total(self) -> Sums:
        """The sums over all rows."""
        sums = [row.sums for row in self.rows] + ([self.others] if self.others else [])
        names = sums[0] if sums else (ERRORS,)
        return Sums((name, reduce(partial(together, name), (one[name] for one in sums), 0)) for name in names)

    @property
    def group_by(self) -> list[str]:
        """The period first, if there is one."""
        return [*([self.period] if self.period else []), *self.dimensions]

    def json_form(self) -> dict[str, Any]:
        """The JSON document of `gateway report`."""
        return {
            "from": time_text(self.since),
            "to": time_text(self.until),
            "group_by": self.group_by,
            "rows": [self.row_form(row) for row in self.rows],
            **self._ends,
        }

    def json_pieces(self) -> Iterator[bytes]:
        """The same document as JSON text, some rows at a time: as objects, all rows take nine times their text."""
        head = {"from": time_text(self.since), "to": time_text(self.until), "group_by": self.group_by}
        yield b'%b,"rows":[' % msgspec.json.encode(head)[:-1]
        for number, rows in enumerate(batches(self.rows, ROWS_AT_ONCE)):
            yield b"%b%b" % (b"," if number else b"", msgspec.json.encode([self.row_form(row) for row in rows])[1:-1])
        yield b"],%b" % msgspec.json.encode(self._ends)[1:]

    def row_form(self, row: UsageRow) -> dict[str, Any]:
        """One of the rows in the JSON document."""
        return self._labels(row) | self._form(row.sums)

    @property
    def _ends(self) -> dict[str, Any]:
        others = {} if self.others is None else {"others": self.others_form}
        return {**others, "total": self.total_form}

    @property
    def others_form(self) -> dict[str, Any] | None:
        """The sums of the rows that are left out in the form of the others; None if none is."""
        return None if self.others is None else self._form(self.others)

    @property
    def total_form(self) -> dict[str, Any]:
        """The sums over all rows in the JSON document."""
        return self._form(self.total)

    def _labels(self, row: UsageRow) -> dict[str, Any]:
        labels: dict[str, Any] = dict(zip(self.dimensions, row.labels, strict=True))
        if self.period is not None:
            labels = {self.period: from_micros(row.period).strftime(_PERIOD_FORMATS[self.period]), **labels}
        if "user" in labels:
            labels["email"] = self.emails.get(labels["user"])
        return labels

    def _form(self, sums: Sums) -> dict[str, Any]:
        form = {
            "calls": sums["calls"],
            "errors": sums.get(ERRORS),
            "estimated": sums["estimated"],
            "tokens_in": sum([sums[name] for name in _TOKENS_IN]),
            "tokens_out": sum([sums[name] for name in _TOKENS_OUT]),
            "usage": {name: sums[name] for name in USAGE if sums.get(name)},
            "amount": format_amount(sums["cost"]),
            "uncollected": format_amount(sums["uncollected"]),
            "duration_ms": _times(durations(sums)),
            "first_token_ms": _times(first_tokens(sums)),
        }
        if self.margin:
            form["upstream_cost"] = format_amount(sums["upstream_cost"])
            form["margin"] = format_amount(sums["cost"] - sums["upstream_cost"])
            form["upstream_cost_known"] = sums["upstream_cost_known"]
        return form


def _times(times: Times | None) -> dict[str, int] | None:
    return None if times is None else structs.asdict(times)

"""One statement, and its forms: a JSON document, and records for a CSV file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct, structs

from gateway.admin.times import from_micros, time_text
from gateway.amounts import format_amount, parse_amount
from gateway.errors import InternalError
from gateway.history.calendar import next_month
from gateway.history.month_lines import Charged, MonthLines
from gateway.ledger.line import LedgerLine

MONTH_FORMAT = "%Y-%m"
CREDITS = ("open", "topup")  # kinds of ledger lines
AMOUNTS = (
    "opening_balance", "correction", "credits", "adjustments", "refunds", "charges", "closing_balance", "uncollected",
)  # fmt: skip
CSV_COLUMNS = (
    "section", "at", "id", "request_id", "note", "model", "key", "key_name", "calls", "tokens_in", "tokens_out",
    "amount", "uncollected",
)  # fmt: skip

_SHOWN_AMOUNTS = ("amount", "uncollected")


class ChargedKey(Struct, frozen=True):
    """What the calls of one model and key were charged; amounts are positive nano-units."""

    model: str
    key: str
    key_name: str
    calls: int
    tokens_in: int
    tokens_out: int
    amount: int
    uncollected: int


class Movement(Struct, frozen=True):
    """A credit, an adjustment or a refund, in nano-units. `request_id` is the refunded call."""

    at: datetime
    section: str
    line: int
    id: str
    amount: int
    request_id: str = ""
    note: str = ""


class Statement(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An account's month. Opening balance + correction + credits + adjustments + refunds − charges = closing balance.

    `correction` is what changed the ledger after the statement before was final, such as a restored backup. Movements
    beyond the first thousand are only in the sums, and `not_listed` is their number.
    """

    account: str
    month: str
    since: datetime
    until: datetime  # not included
    opening_balance: int
    closing_balance: int
    correction: int = 0
    credits: int = 0
    adjustments: int = 0
    refunds: int = 0
    charges: int = 0
    uncollected: int = 0
    first_line: int = 0  # 0: the month has no line
    last_line: int = 0  # the last line up to the end of the month
    last_line_hash: str = ""
    charged: list[ChargedKey] = []
    movements: list[Movement] = []
    not_listed: int = 0
    missing_lines: int = 0  # lines that are not in the database yet
    number: int | None = None  # None: preliminary
    fixed: datetime | None = None
    hash: str = ""  # of the stored document; not a part of it
    ledger: str = ""  # whether the last line of a final statement still is in the ledger: matches, differs, gone

    @property
    def is_final(self) -> bool:
        """Whether it is stored and does not change any more."""
        return self.number is not None

    def json_form(self) -> dict[str, Any]:
        """The JSON document of `gateway accounts statement`."""
        form = structs.asdict(self)
        form |= {name: format_amount(form[name]) for name in AMOUNTS}
        form |= {"since": time_text(self.since), "until": time_text(self.until), "fixed": time_text(self.fixed)}
        form["status"] = "final" if self.is_final else "preliminary"
        form["charged"] = [_shown(charged) for charged in self.charged]
        form["movements"] = [_shown(movement) for movement in self.movements]
        return form

    def csv_records(self) -> Iterator[dict[str, Any]]:
        """Rows of the columns `CSV_COLUMNS`; the amounts of all rows but the last add up to that of the last."""
        opening = {"section": "opening balance", "at": time_text(self.since)}
        yield opening | {"amount": format_amount(self.opening_balance)}
        if self.correction:
            yield {"section": "correction", "amount": format_amount(self.correction)}
        yield from map(_shown, self.movements)
        if self.not_listed:
            note = f"{self.not_listed} further movements"
            yield {"section": "other", "note": note, "amount": format_amount(self.not_listed_amount)}
        for charged in self.charged:
            yield {"section": "charges"} | _shown(charged) | {"amount": format_amount(-charged.amount)}
        status = f"final, number {self.number}" if self.is_final else "preliminary"
        closing = {"section": "closing balance", "at": time_text(self.until), "note": status}
        yield closing | {"amount": format_amount(self.closing_balance)}

    @property
    def not_listed_amount(self) -> int:
        """The sum of the movements that are not listed."""
        return self.credits + self.adjustments + self.refunds - sum(movement.amount for movement in self.movements)


def statement_of(form: Mapping[str, Any]) -> Statement:
    """The statement of a JSON document that `json_form` made."""
    values = {name: value for name, value in form.items() if name != "status"}
    values |= {name: parse_amount(values[name]) for name in AMOUNTS}
    for name in ("charged", "movements"):
        rows = [dict(row) for row in values[name]]
        values[name] = [row | {key: parse_amount(row[key]) for key in _SHOWN_AMOUNTS if key in row} for row in rows]
    return msgspec.convert(values, Statement)


def draft_statement(
    account: str,
    month: int,
    lines: MonthLines,
    key_names: Mapping[str, str],
    *,
    before: int | None,
    missing_lines: int,
) -> Statement:
    """A preliminary statement. `before` is the closing balance of the final statement of the month before.

    InternalError if the sums do not lead from the opening to the closing balance.
    """
    movements = [_movement(line) for line in lines.listed]
    sums = dict.fromkeys(("credits", "adjustments", "refunds"), 0)
    for movement in movements:
        sums[movement.section] += movement.amount
    for kind, (_, amount) in lines.others.items():
        sums[_section(kind)] += amount
    opening = lines.opening if before is None else before
    charges = sum(charged.amount for charged in lines.charges)
    if lines.opening + sum(sums.values()) - charges != lines.closing:
        raise InternalError(detail=f"the statement of {account} does not add up; see `gateway audit`")
    return Statement(
        account=account,
        month=from_micros(month).strftime(MONTH_FORMAT),
        since=from_micros(month),
        until=from_micros(next_month(month)),
        opening_balance=opening,
        closing_balance=lines.closing,
        correction=lines.opening - opening,
        credits=sums["credits"],
        adjustments=sums["adjustments"],
        refunds=sums["refunds"],
        charges=charges,
        uncollected=sum(charged.uncollected for charged in lines.charges),
        first_line=lines.first_seq if lines.has_lines else 0,
        last_line=lines.last_seq,
        last_line_hash=lines.last_hash.hex(),
        charged=[_charged(charged, key_names) for charged in lines.charges],
        movements=movements,
        not_listed=sum(count for count, _ in lines.others.values()),
        missing_lines=missing_lines,
    )


def _charged(charged: Charged, key_names: Mapping[str, str]) -> ChargedKey:
    values = structs.asdict(charged)
    return ChargedKey(key_name=key_names.get(charged.key, ""), **values)


def _movement(line: LedgerLine) -> Movement:
    refunds, note = line.meta.get("refunds", ""), line.meta.get("note", "")
    return Movement(line.at, _section(line.kind), line.n, line.request_id, line.amount, refunds, note)


def _section(kind: str) -> str:
    return "credits" if kind in CREDITS else "refunds" if kind == "refund" else "adjustments"


def _shown(one: ChargedKey | Movement) -> dict[str, Any]:
    form = structs.asdict(one)
    form |= {name: format_amount(form[name]) for name in _SHOWN_AMOUNTS if name in form}
    return form | ({"at": time_text(form["at"])} if "at" in form else {})

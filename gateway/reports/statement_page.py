"""A statement as one HTML page that prints well: it needs no other file, no script and no network."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from gateway.admin.times import time_text
from gateway.amounts import format_amount
from gateway.reports.statement import Statement

STYLE = """
body{font:14px/1.45 system-ui,sans-serif;color:#1a1a1a;margin:2rem auto;max-width:60rem;padding:0 1rem}
h1{font-size:1.5rem;margin:0}h2{font-size:1.1rem;margin:2rem 0 .4rem}
table{border-collapse:collapse;width:100%}caption{text-align:left}
th,td{padding:.3rem .6rem;border-bottom:1px solid #ddd;text-align:left;vertical-align:top;overflow-wrap:anywhere}
th{font-weight:600}.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
tr.sum td{font-weight:600;border-top:2px solid #1a1a1a}.small{color:#555;font-size:.85rem;overflow-wrap:anywhere}
.draft{border:2px solid #b45309;padding:.5rem 1rem;margin:1rem 0}
@media print{body{margin:0;max-width:none;padding:0}thead{display:table-header-group}tr{break-inside:avoid}}
"""

_SUMMARY = (
    ("Opening balance", "opening_balance"),
    ("Corrections of earlier months", "correction"),
    ("Credits", "credits"),
    ("Adjustments", "adjustments"),
    ("Refunds", "refunds"),
)

Row = Sequence[str]


def statement_page(statement: Statement) -> str:
    """The page. Every text of it is escaped."""
    title = f"Statement {statement.month} of {statement.account}"
    parts = [
        f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>',
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head><body>',
        f"<h1>{escape(title)}</h1>",
        *_heading(statement),
        *_summary(statement),
        *_charges(statement),
        *_movements(statement),
        *_proof(statement),
        "</body></html>\n",
    ]
    return "".join(parts)


def _heading(statement: Statement) -> Iterable[str]:
    yield f"<p>From {time_text(statement.since)} to before {time_text(statement.until)} (UTC).</p>"
    if statement.is_final:
        yield f"<p>Number {statement.number}, final since {time_text(statement.fixed)}.</p>"
    else:
        missing = f" {statement.missing_lines} ledger lines are not imported yet." if statement.missing_lines else ""
        yield f'<p class="draft"><strong>Preliminary.</strong> It may still change.{missing}</p>'


def _summary(statement: Statement) -> Iterable[str]:
    rows = [(label, format_amount(getattr(statement, name))) for label, name in _SUMMARY]
    if not statement.correction:
        del rows[1]
    rows.append(("Charges", format_amount(-statement.charges)))
    yield "<h2>Balance</h2>"
    yield from _table(("", "Amount"), rows, ("Closing balance", format_amount(statement.closing_balance)), numbers=1)


def _charges(statement: Statement) -> Iterable[str]:
    if not statement.charged:
        return
    rows = [
        (
            one.model,
            _key(one.key, one.key_name),
            str(one.calls),
            str(one.tokens_in),
            str(one.tokens_out),
            format_amount(one.amount),
        )
        for one in statement.charged
    ]
    calls, tokens_in, tokens_out = (
        str(sum(getattr(one, name) for one in statement.charged)) for name in ("calls", "tokens_in", "tokens_out")
    )
    yield "<h2>Charges by model and key</h2>"
    heading = ("Model", "Key", "Calls", "Tokens in", "Tokens out", "Amount")
    yield from _table(
        heading, rows, ("Total", "", calls, tokens_in, tokens_out, format_amount(statement.charges)), numbers=4
    )


def _movements(statement: Statement) -> Iterable[str]:
    if not statement.movements:
        return
    rows = [
        (
            time_text(one.at) or "",
            one.section,
            " ".join(filter(None, (one.id, one.request_id, one.note))),
            format_amount(one.amount),
        )
        for one in statement.movements
    ]
    if statement.not_listed:
        rows.append(("", "", f"{statement.not_listed} further movements", format_amount(statement.not_listed_amount)))
    total = statement.credits + statement.adjustments + statement.refunds
    yield "<h2>Credits, adjustments and refunds</h2>"
    yield from _table(("Time", "", "What", "Amount"), rows, ("Total", "", "", format_amount(total)), numbers=1)


def _proof(statement: Statement) -> Iterable[str]:
    lines = f"{statement.first_line} to {statement.last_line}" if statement.first_line else "none"
    yield f'<p class="small">Ledger lines: {lines}. Hash of the last line: {statement.last_line_hash or "none"}.'
    if statement.hash:
        yield f" Hash of this statement: {statement.hash}."
    yield "</p>"


def _table(heading: Row, rows: Iterable[Row], total: Row, *, numbers: int) -> Iterable[str]:
    """A table whose last `numbers` columns are numbers."""
    yield f"<table><thead><tr>{_cells(heading, 'th', numbers)}</tr></thead><tbody>"
    for row in rows:
        yield f"<tr>{_cells(row, 'td', numbers)}</tr>"
    yield f'<tr class="sum">{_cells(total, "td", numbers)}</tr></tbody></table>'


def _cells(row: Row, tag: str, numbers: int) -> str:
    first = len(row) - numbers
    classes = ("" if place < first else ' class="n"' for place in range(len(row)))
    return "".join(f"<{tag}{class_}>{escape(text)}</{tag}>" for class_, text in zip(classes, row, strict=True))


def _key(key: str, name: str) -> str:
    return f"{name} ({key})" if name else key

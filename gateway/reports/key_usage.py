"""The usage that a key may see, its account's or only its own user's for the key of a member; and its settled calls."""

from __future__ import annotations

from typing import Any

from gateway.admin.actor import Actor
from gateway.admin.times import from_micros
from gateway.admin.transactions import Transactions
from gateway.errors import InvalidValue
from gateway.history.reader import read_request
from gateway.history.usage_question import ReceiptQuestion, SettledCall, UsageQuestion
from gateway.reports.reports import ReportQuery, Reports

MOST_ROWS = 10_000


async def key_usage(reports: Reports, question: UsageQuestion) -> dict[str, Any]:
    """The JSON document of `GET /v1/usage`; InvalidValue for more than `MOST_ROWS` rows."""
    actor = Actor(kind="token", id=question.key, scopes=frozenset({"read"}), account=question.account)
    filters = {"account": [question.account]} | ({"user": [question.user]} if question.user else {})
    filters |= {"session": [question.session]} if question.session else {}
    query = ReportQuery(
        since=from_micros(question.since),
        until=from_micros(question.until),
        group_by=question.group_by,
        filters=filters,
    )
    report = await reports.report(actor, query)
    if len(report.rows) > MOST_ROWS:
        raise InvalidValue(
            f"The answer has more than {MOST_ROWS:,} rows; choose a shorter range or fewer groups", param="group_by"
        )
    form = report.json_form()
    form = {"data" if name == "rows" else name: value for name, value in form.items()}
    return {"object": "usage", "account": question.account, "currency": question.currency, **form}


KINDS = frozenset({"use", "reclaim", "adj"})  # of the lines that make up a charge


async def key_receipt(transactions: Transactions, question: ReceiptQuestion) -> SettledCall | None:
    """The call in the database; None if there is none, or if another key made it."""
    found = await transactions.read(read_request, question.request_id)
    lines = [line for line in found if line.account == question.account and line.kind in KINDS]
    if not lines or lines[-1].meta.get("key") != question.key:
        return None
    return SettledCall(lines[-1], -sum(line.amount for line in lines))

"""The usage that a key may see: its account's, or only its own user's for the key of a member."""

from __future__ import annotations

from typing import Any

from gateway.admin.actor import Actor
from gateway.admin.reports import ReportQuery, Reports
from gateway.admin.times import from_micros
from gateway.errors import InvalidValue
from gateway.history.usage_question import UsageQuestion

MOST_ROWS = 10_000


async def key_usage(reports: Reports, question: UsageQuestion) -> dict[str, Any]:
    """The JSON document of `GET /v1/usage`; InvalidValue for more than `MOST_ROWS` rows."""
    actor = Actor(kind="token", id=question.key, scopes=frozenset({"read"}), account=question.account)
    filters = {"account": [question.account]} | ({"user": [question.user]} if question.user else {})
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

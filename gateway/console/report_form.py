"""The form of a usage report: its range, groups and filters, as they are in the address of the page."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from gateway.console.ranges import Range, chosen_range
from gateway.console.visit import Visit
from gateway.errors import InvalidValue
from gateway.history.usage_sums import DIMENSIONS, PERIODS
from gateway.reports.reports import ReportQuery

#: The groups in words.
GROUPS = {
    "account": "Account",
    "user": "Person",
    "key": "Key",
    "model": "Model",
    "provider": "Provider",
    "endpoint": "Endpoint",
    "outcome": "Outcome",
    "tag": "Tag",
    "hour": "Hour",
    "day": "Day",
    "month": "Month",
}
MOST_GROUPS = 3
MOST_ROWS = 10_000  # of a page and its files, as for callers of `/v1/usage`: a JSON file of them takes 29 MB


class ReportForm(Struct, frozen=True):
    """What was asked for, of one account or, with "", of all. `typed` are the filters, values separated by commas."""

    account: str
    range: Range
    group_by: list[str]
    typed: dict[str, str]

    @property
    def groups(self) -> dict[str, str]:
        """What can be grouped by, in words."""
        known = (*DIMENSIONS, *PERIODS)
        return {name: GROUPS[name] for name in known if not (self.account and name == "account")}

    def link(self) -> dict[str, Any]:
        """The parameters of a link to the same report of another range."""
        return {"group_by": self.group_by, **self.typed}

    def query(self, *, margin: bool = False) -> ReportQuery:
        """The query for the service; InvalidValue for more than `MOST_GROUPS` groups."""
        if len(self.group_by) > MOST_GROUPS:
            raise InvalidValue(f"Group by at most {MOST_GROUPS} of them", param="group_by")
        filters = {name: values for name, text in self.typed.items() if (values := _values(text))}
        if self.account:
            filters["account"] = [self.account]
        return ReportQuery(
            since=self.range.since,
            until=self.range.until,
            group_by=self.group_by,
            filters=filters,
            margin=margin,
            most=MOST_ROWS,
        )


def report_form(visit: Visit, account: str, *, default: str) -> ReportForm:
    """The form of the address; without groups it is grouped by `default`."""
    filters = [name for name in DIMENSIONS if not (account and name == "account")]
    return ReportForm(
        account=account,
        range=chosen_range(visit),
        group_by=list(dict.fromkeys(visit.queries("group_by"))) or [default],
        typed={name: visit.query(name) for name in filters},
    )


def _values(text: str) -> list[str]:
    return [value for part in text.split(",") if (value := part.strip())]

"""A usage report as flat records, for tables and CSV files; made from its JSON document, so it needs no database."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MOST_GROUPS = 500  # that a report with a limit may have
KINDS = ("duration", "first_token")
TIMES = ("mean", "p50", "p95", "p99")
MARGIN = ("upstream_cost", "margin", "upstream_cost_known")


class ReportTable:
    """The columns and the rows of a report's document; `columns` and `record` do not need its rows."""

    def __init__(self, form: Mapping[str, Any]) -> None:
        self._form = form

    def columns(self) -> list[str]:
        """The columns of `records`; a bucket of usage that no row has is left out."""
        groups, total = self._form["group_by"], self._form["total"]
        emails = ["email"] if "user" in groups else []
        sums = ["calls", "errors", "estimated", "tokens_in", "tokens_out", *total["usage"], "amount", "uncollected"]
        margin = MARGIN if "margin" in total else ()
        return [*groups, *emails, *sums, *margin, *(f"{kind}_{name}_ms" for kind in KINDS for name in TIMES)]

    def records(self) -> list[dict[str, Any]]:
        """The rows without nested values."""
        return [self.record(row) for row in self._form["rows"]]

    def ends(self) -> list[dict[str, Any]]:
        """Records of the sums over the groups that are left out, if there are any, and over all groups."""
        names = [name for name in ("others", "total") if name in self._form]
        return [dict.fromkeys(self._form["group_by"][:1], name) | self.record(self._form[name]) for name in names]

    def record(self, sums: Mapping[str, Any]) -> dict[str, Any]:
        """A row of the document without nested values."""
        record: dict[str, Any] = dict.fromkeys(self._form["total"]["usage"], 0) | dict(sums) | sums["usage"]
        for kind in KINDS:
            times = record.pop(f"{kind}_ms") or dict.fromkeys(TIMES)
            record |= {f"{kind}_{name}_ms": value for name, value in times.items()}
        return record
